"""The tuned and a changed kernel by turns, in time that the calls themselves make."""

from __future__ import annotations

import pytest

from benchmarks import versus
from benchmarks.measure import Implementation
from tests.benchmarks.fakes import FakeClock
from tirx_attn import AttentionConfig

CONFIG = AttentionConfig(4, 4096, 4096, 16, 8, 64, True)


def test_both_are_timed_by_turns_in_each_round():
    clock, order = FakeClock(), []

    def kernel(name: str, seconds: float) -> Implementation:
        def call() -> None:
            order.append(name)
            clock.busy(seconds)

        return Implementation(call, lambda: None)

    times = versus.by_turns({"tuned": kernel("tuned", 2e-3), "changed": kernel("changed", 1e-3)}, clock)
    assert times == {
        "tuned": pytest.approx([2.0] * versus.ROUNDS), "changed": pytest.approx([1.0] * versus.ROUNDS)
    }  # fmt: skip
    calls = round(versus.SECONDS / 1e-3)
    assert order[:6] == ["tuned"] * 3 + ["changed"] * 3
    assert order[6 : 6 + 4 * calls : calls] == ["tuned", "changed", "changed", "tuned"]


def test_every_kernel_has_a_file_of_its_own():
    assert versus.library(CONFIG, ()) == "float16_causal_h16x8_d64_tuned.so"
    assert versus.library(CONFIG, ("ping_pong=false", "q_stages=1")) == (
        "float16_causal_h16x8_d64_ping_pongfalse_q_stages1.so"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--export", "-o", "x"], "--schedule"),
        (["--export", "--schedule", "turns=1", "-o", "x"], "turns"),
        (["--export", "--schedule", "ping_pong=false", "--group", "mha", "-o", "x"], "mha"),
    ],
)
def test_wrong_words_are_refused_before_any_work(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((SystemExit, ValueError)) as stopped:
        versus.main(options)
    assert message in f"{stopped.value}{capsys.readouterr().err}"
    assert not list(tmp_path.iterdir())
