"""The choice of a variant, and peers that cannot be made."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.tuning import NoVariant, fastest, in_threads
from tests.benchmarks.fakes import FakeClock, FakePeer, FakeProblem


def variants(clock: FakeClock, **made: FakePeer):
    return {name: partial(peer, FakeProblem(None), clock) for name, peer in made.items()}


def test_fastest_right_variant_is_taken_and_all_are_told_of():
    clock = FakeClock()
    made = variants(
        clock, slow=FakePeer(2.0), wrong=FakePeer(0.1, output="noise"), no=FakePeer(1.0, fails="x"), fast=FakePeer(1.0)
    )
    best = fastest(made, FakeProblem(None), clock)
    assert best.variant == "fast"
    assert best.tuning == {
        "slow": pytest.approx(2.0), "wrong": "WrongResult: O is noise", "no": "RuntimeError: x",
        "fast": pytest.approx(1.0),
    }  # fmt: skip


def test_no_variant_gives_every_reason():
    clock = FakeClock()
    made = variants(clock, a=FakePeer(1.0, fails="x"), b=FakePeer(1.0, fails="y"))
    with pytest.raises(NoVariant, match=r"^a: RuntimeError: x; b: RuntimeError: y$"):
        fastest(made, FakeProblem(None), clock)


def test_a_job_that_fails_does_not_stop_the_others():
    done: list[int] = []
    in_threads([partial(done.append, 1), partial(int, "x"), partial(done.append, 2)])
    assert sorted(done) == [1, 2]


def test_a_peer_that_cannot_be_imported_fails_on_every_shape(monkeypatch):
    def broken():
        raise ImportError("no jax")

    monkeypatch.setattr(peers, "_pallas", broken)
    made = peers.make_peers(["ours", "pallas"], Path("nowhere"))
    assert list(made) == ["ours", "pallas"]
    with pytest.raises(ImportError, match="no jax"):
        made["pallas"](FakeProblem(None), FakeClock())
