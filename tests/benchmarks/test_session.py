"""The run over shapes: records, failures, resuming, budget, a GPU that is lost."""

from __future__ import annotations

import pytest

from benchmarks import session
from benchmarks.document import is_done, new
from benchmarks.measure import Settings
from benchmarks.session import DeviceLost, run
from benchmarks.shapes import all_shapes, select
from tests.benchmarks.fakes import FakeClock, FakeGauge, FakePeer, FakeProblem

SHAPES = select(all_shapes(), ["mha_d64"])[:3]
SETTINGS = Settings(seconds=0.1, warmup=0.05, cool_samples=1)


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """The objects that other tests left make it take a second."""
    monkeypatch.setattr(session.gc, "collect", lambda: 0)


class Run:
    """One run over SHAPES with fakes, and what it saved and said."""

    def __init__(self, peers, document=None, clock=None, **more):
        self.document = document or new()
        self.document["runs"].append({})
        self.clock = clock or FakeClock()
        self.saved: list[int] = []
        self.said: list[str] = []
        self.arguments = (SHAPES, peers, self.document, self.clock, FakeGauge(), SETTINGS)
        self.more = {"save": self.save, "say": self.said.append, "problem": FakeProblem, **more}

    def save(self):
        self.saved.append(len(self.document["shapes"]))

    def __call__(self):
        return run(*self.arguments, **self.more)


def test_every_shape_is_saved_when_it_is_done():
    this = Run({"ours": FakePeer(1.0), "cudnn": FakePeer(2.0)})
    assert this()
    assert this.saved == [1, 2, 3]
    assert [one["name"] for one in this.document["shapes"]] == [shape.name for shape in SHAPES]
    entry = this.document["shapes"][0]
    assert entry["flops"] == SHAPES[0].flops
    assert entry["config"]["Sq"] == 512
    ours = entry["results"]["ours"]
    assert ours["steady"]["tflops"] == pytest.approx(SHAPES[0].flops * 1e-9)
    assert (ours["difference"], ours["variant"], ours["note"]) == (1e-4, "v", "n")
    assert this.said[0].startswith(f"{SHAPES[0].name}: ours 34.36, cudnn 17.18 (")


@pytest.mark.parametrize(
    ("peer", "error"),
    [
        (FakePeer(1.0, fails="no kernel for D"), "RuntimeError: no kernel for D"),
        (FakePeer(1.0, output="noise"), "WrongResult: O is noise"),
        (FakePeer(1.0, breaks=100), "RuntimeError: broke"),
    ],
)
def test_a_failure_is_a_result(peer, error):
    this = Run({"fa2": peer, "cudnn": FakePeer(2.0)})
    assert this()
    results = this.document["shapes"][0]["results"]
    assert results["fa2"]["error"] == error
    assert "steady" not in results["fa2"]
    assert "steady" in results["cudnn"]
    assert this.said[0].startswith(f"{SHAPES[0].name}: fa2 failed, cudnn")


def test_inputs_that_cannot_be_made_fail_every_peer():
    def problem(config):
        raise MemoryError("full")

    this = Run({"ours": FakePeer(1.0)}, problem=problem)
    assert this()
    assert this.document["shapes"][0]["results"] == {"ours": {"error": "inputs: MemoryError: full"}}


def test_a_second_run_measures_what_is_left():
    first = Run({"ours": FakePeer(1.0)}, budget=0.0)
    assert not first()
    assert first.saved == [1]
    assert "are left" in first.said[-1]
    second = Run({"ours": FakePeer(2.0)}, first.document)
    assert second()
    assert second.said[0] == f"{SHAPES[0].name}: there already"
    assert [one["run"] for one in second.document["shapes"]] == [0, 1, 1]
    assert second.document["shapes"][0]["results"]["ours"]["steady"]["ms"] == pytest.approx(1.0)
    assert is_done(second.document, SHAPES[2], ["ours"])
    assert not is_done(second.document, SHAPES[2], ["ours", "fa2"])


def test_a_lost_gpu_ends_the_run_with_what_there_is():
    clock = FakeClock()
    peer = FakePeer(1.0)

    def problem(config):
        clock.lost = config == SHAPES[1].config
        return FakeProblem(config)

    this = Run({"ours": peer}, clock=clock, problem=problem)
    with pytest.raises(DeviceLost, match=f"after {SHAPES[1].name}: RuntimeError: illegal memory access"):
        this()
    assert this.saved == [1, 2]
    assert this.document["shapes"][1]["results"]["ours"] == {"error": "RuntimeError: illegal memory access"}
