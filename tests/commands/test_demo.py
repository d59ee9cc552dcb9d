"""`tirx-attn demo` over stand-ins: what is on the screen when, lanes side by side, and how it ends."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tirx_attn.commands import demo, proof
from tirx_attn.verify import attention_reference, simulator
from tirx_attn.verify.process import SimulatorUnavailable

MACHINE_CODE = {
    "resources": {"registers": 128, "spill_instructions": 0}, "seconds": {"trace": 1.0, "lower": 0.5, "nvrtc": 2.0},
}  # fmt: skip


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    structure = proof.Step("structure", None, proof.PASSED, "clean")
    monkeypatch.setattr(demo, "compile_problem", lambda problem, reporter: SimpleNamespace(func=None))
    monkeypatch.setattr(demo, "machine_code_record", lambda built: MACHINE_CODE)
    monkeypatch.setattr(proof, "check_structure", lambda func, plan: structure)
    monkeypatch.setattr(proof, "simulation", lambda problem: problem.config)
    monkeypatch.setattr(demo, "require_simulator", lambda: None)
    monkeypatch.setattr(simulator, "run", right_answer)
    for checker in proof.CHECKERS:
        monkeypatch.setattr(simulator, checker, clean(checker))


def right_answer(config, arrays, **_options):
    o, _ = attention_reference(arrays["Q"], arrays["K"], arrays["V"], causal=config.is_causal)
    return simulator.Run({"O": o.astype(np.float16)}, "clean", (), 1.0, 2.0)


def clean(checker):
    return lambda config, arrays, **options: simulator.Check(checker, "clean", (), 1.0, 2.0)


def test_rows_come_as_they_are_known(tirx_attn, monkeypatch):
    """Structure and machine code of both kernels are out before the first run on the simulator begins."""
    seen = []
    printed = demo.Rows._print
    monkeypatch.setattr(demo.Rows, "_print", lambda self, *cells: seen.append(cells[0]) or printed(self, *cells))
    monkeypatch.setattr(simulator, "run", lambda *rest, **more: seen.append("run") or right_answer(*rest, **more))
    result = tirx_attn("demo")
    assert result.exit_code == 0, result.stderr
    assert seen.index("structural check") < seen.index("run")
    assert seen.index("sm_100a machine code") < seen.index("run")
    labels = [label for label in seen if ": " in label]
    assert sorted(labels) == sorted(f"{name}: {key}" for name in proof.RUNS for key in proof.INPUTS)
    lines = result.stdout.splitlines()
    (row,) = [line for line in lines if line.startswith("sm_100a machine code")]
    assert row.count("128 registers, 0 spills, 3.5 s") == 2
    assert lines[-1].startswith("everything passed, ")


def test_the_three_kinds_run_side_by_side(tirx_attn, monkeypatch):
    """Each waits for the two others, which never come where one follows the other."""
    together = threading.Barrier(3, timeout=600)
    names = set()

    def meeting(answer):
        def run(*rest, **more):
            names.add(simulator._lane_name())
            together.wait()
            return answer(*rest, **more)

        return run

    monkeypatch.setattr(simulator, "run", meeting(right_answer))
    for checker in proof.CHECKERS:
        monkeypatch.setattr(simulator, checker, meeting(clean(checker)))
    assert tirx_attn("demo", "--json").exit_code == 0
    assert names == set(proof.RUNS)


def test_the_document_has_the_steps_in_their_order(tirx_attn):
    document = json.loads(tirx_attn("demo", "--json").stdout)
    assert document["verdict"] == "passed"
    for kernel in document["kernels"]:
        assert [(step["step"], step["input"]) for step in kernel["steps"]] == proof.planned()
        assert kernel["machine_code"] == MACHINE_CODE


@pytest.mark.parametrize("where", ["structure", "simulator"])
def test_what_cannot_run_is_skipped_with_its_reason(tirx_attn, monkeypatch, where):
    def missing():
        raise SimulatorUnavailable("cargo is missing: install it")

    if where == "structure":
        fault = proof.Step("structure", None, proof.FAILED, "error", [{"kind": "deadlock", "message": "s_ready hangs"}])
        monkeypatch.setattr(proof, "check_structure", lambda func, plan: fault)
    else:
        monkeypatch.setattr(demo, "require_simulator", missing)
    monkeypatch.setattr(simulator, "run", lambda *_, **__: pytest.fail("the simulator ran"))
    result = tirx_attn("demo")
    assert result.exit_code == 1
    reason = "a structural check failed" if where == "structure" else "cargo is missing: install it"
    assert result.stdout.count(reason) == 2 * 9
    ends = {"structure": "a step failed", "simulator": "a step was skipped"}
    assert result.stdout.splitlines()[-1].startswith(ends[where])
    assert ("s_ready hangs" in result.stdout) == (where == "structure")


def test_a_lane_that_breaks_ends_the_demo(tirx_attn, monkeypatch):
    def broken(*_rest, **_more):
        raise OSError("no memory is left")

    closed = []
    monkeypatch.setattr(simulator, "synccheck", broken)
    monkeypatch.setattr(simulator, "close", lambda: closed.append(1))
    result = tirx_attn("demo")
    assert result.exit_code == 1
    assert "tirx-attn demo: no memory is left" in result.stderr
    assert closed
