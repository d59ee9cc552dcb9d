"""The steps of a proof: their order, what stops them, and the verdict over them. The simulator is replaced."""

from __future__ import annotations

import numpy as np
import pytest

from tirx_attn import kernel
from tirx_attn.commands import proof
from tirx_attn.commands.arguments import parse_problem
from tirx_attn.commands.output import Reporter
from tirx_attn.verify import attention_reference, simulator
from tirx_attn.verify.process import SimulatorError, SimulatorUnavailable

PROBLEM = parse_problem("1,128,256,2,1,128", False, "sm_100a")


def right_answer(func, arrays, **_options):
    o, _ = attention_reference(arrays["Q"], arrays["K"], arrays["V"])
    return simulator.Run({"O": o.astype(np.float16)}, "clean", (), 1.0, 2.0)


def clean(checker):
    return lambda func, arrays, **options: simulator.Check(checker, "clean", (), 1.0, 2.0)


@pytest.fixture(autouse=True)
def a_kernel_without_faults(monkeypatch):
    structure = proof.Step("structure", None, proof.PASSED, "clean")
    monkeypatch.setattr(proof, "check_structure", lambda func, plan: structure)
    monkeypatch.setattr(proof, "require_simulator", lambda: None)
    monkeypatch.setattr(kernel, "build_kernel", lambda plan: None)
    monkeypatch.setattr(simulator, "run", right_answer)
    for checker in proof.CHECKERS:
        monkeypatch.setattr(simulator, checker, clean(checker))


def prove(**options):
    return proof.prove(None, PROBLEM, Reporter(), 10.0, **options)


@pytest.mark.parametrize("runs", [(), ("numbers",), ("racecheck", "numbers"), proof.RUNS])
def test_the_runs_that_are_asked_for_are_taken_in_their_order(runs):
    taken = [(step.name, step.input) for step in prove(runs=runs)]
    assert taken == [("structure", None), *((name, key) for name in proof.RUNS if name in runs for key in proof.INPUTS)]
    assert taken == proof.planned(runs)


def statuses(steps):
    return {(step.name, step.input): step.status for step in steps}


def test_all_steps_pass_cheapest_first():
    steps = prove()
    assert [(step.name, step.input) for step in steps] == proof.planned()
    assert [step.name for step in steps] == ["structure"] + 3 * ["numbers"] + 3 * ["synccheck"] + 3 * ["racecheck"]
    assert proof.verdict(steps) == "passed"
    numbers = steps[1].to_dict()
    assert 0 < numbers["error"] <= numbers["bound"]
    assert numbers["build_seconds"] == 2.0


def test_the_inputs_take_both_outcomes_of_the_rescale():
    assert list(proof.INPUTS) == ["ordinary data", "rescale in every block", "rescale in no block"]
    assert [make(PROBLEM.config).name for make in proof.INPUTS.values()] == [
        "random",
        "rescale_every",
        "rescale_never",
    ]


def test_nothing_runs_after_a_structural_fault(monkeypatch):
    fault = proof.Step("structure", None, proof.FAILED, "error", [{"kind": "deadlock", "message": "s_ready"}])
    monkeypatch.setattr(proof, "check_structure", lambda func, plan: fault)
    monkeypatch.setattr(simulator, "run", lambda *_, **__: pytest.fail("the simulator ran"))
    steps = prove()
    assert proof.verdict(steps) == "failed"
    assert {step.status for step in steps[1:]} == {"skipped"}
    assert steps[1].detail == "the structural check failed"


def test_a_missing_simulator_is_skipped_not_passed(monkeypatch):
    def missing():
        raise SimulatorUnavailable("cargo is missing: install it")

    monkeypatch.setattr(proof, "require_simulator", missing)
    steps = prove()
    assert proof.verdict(steps) == "skipped"
    assert steps[0].status == "passed"
    assert {step.detail for step in steps[1:]} == {"cargo is missing: install it"}


@pytest.mark.parametrize("wrong", [0.1, np.nan], ids=["off", "nan"])
def test_a_wrong_number_fails(monkeypatch, wrong):
    def off(func, arrays, **_options):
        run = right_answer(func, arrays)
        run.outputs["O"][0, 5, 1, 7] += wrong
        return run

    monkeypatch.setattr(simulator, "run", off)
    steps = prove()
    assert proof.verdict(steps) == "failed"
    assert {step.status for step in steps if step.name == "numbers"} == {"failed"}
    assert {step.status for step in steps if step.name == "racecheck"} == {"passed"}
    assert (steps[1].to_dict()["error"] is None) == bool(np.isnan(wrong))


@pytest.mark.parametrize("verdict", ["review", "incomplete", "error"])
def test_a_checker_that_is_not_clean_fails(monkeypatch, verdict):
    found = simulator.Check("racecheck", verdict, (("war", "S is overwritten\nwhile it is read"),), 1.0, 2.0)
    monkeypatch.setattr(simulator, "racecheck", lambda *_, **__: found)
    steps = prove()
    assert proof.verdict(steps) == "failed"
    assert steps[-1].detail == f"{verdict}, 1 finding: S is overwritten"
    assert steps[-1].findings == [{"kind": "war", "message": "S is overwritten\nwhile it is read"}]


def test_a_launch_that_reads_unwritten_memory_fails(monkeypatch):
    def review(func, arrays, **_options):
        run = right_answer(func, arrays)
        return simulator.Run(run.outputs, "review", (("uninitialised", "reads o_smem"),), 1.0, 2.0)

    monkeypatch.setattr(simulator, "run", review)
    assert statuses(prove())["numbers", "ordinary data"] == "failed"


def test_a_deadlock_is_a_failure_with_its_text(monkeypatch):
    def deadlock(*_arguments, **_options):
        raise SimulatorError("run: Deadlock: warp 12 waits for kv_load.full")

    monkeypatch.setattr(simulator, "run", deadlock)
    step = prove()[1]
    assert (step.status, step.detail) == ("failed", "run: Deadlock: warp 12 waits for kv_load.full")


def test_nothing_runs_after_the_time_limit(monkeypatch):
    def slow(*_arguments, **_options):
        raise TimeoutError("synccheck passed its time limit of 10 s while building")

    monkeypatch.setattr(simulator, "synccheck", slow)
    found = statuses(prove())
    assert found["numbers", "rescale in no block"] == "passed"
    assert found["synccheck", "ordinary data"] == "failed"
    assert found["synccheck", "rescale in every block"] == "skipped"
    assert found["racecheck", "rescale in no block"] == "skipped"


def test_progress_is_a_line_per_step_where_stderr_is_no_terminal(capsys):
    proof.prove(None, PROBLEM, Reporter(total=10), 10.0)
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0] == "1/10  structural check"
    assert lines[-1] == "10/10  racecheck: rescale in no block"
    assert len(lines) == 10


class TestOnGpu:
    """A kernel that the simulator has no instructions for, on a machine that has the GPU, or not."""

    HOPPER = parse_problem("1,128,256,1,1,128", False, "sm_90a")

    @pytest.fixture(autouse=True)
    def a_gpu(self, monkeypatch):
        monkeypatch.setattr(proof.gpu, "absent", lambda arch: "")
        monkeypatch.setattr(proof.gpu, "missing", lambda: "")

    def use(self, monkeypatch, run):
        class Kernel:
            def __init__(self, plan, timeout):
                assert (plan.target.arch, timeout) == ("sm_90a", 10.0)

        Kernel.run = run
        monkeypatch.setattr(proof.gpu, "GpuKernel", Kernel)
        return proof.prove(None, self.HOPPER, Reporter(), 10.0)

    def test_numbers_are_judged(self, monkeypatch):
        steps = self.use(monkeypatch, lambda self, probe: right_answer(None, probe.arrays).outputs["O"])
        assert [step.status for step in steps] == ["passed"] * 4 + ["not applicable"] * 6
        assert proof.verdict(steps) == "passed"
        assert steps[1].figures["error"] <= steps[1].figures["bound"]

    def test_a_wrong_answer_fails(self, monkeypatch):
        steps = self.use(monkeypatch, lambda self, probe: probe.q * 0 + 7)
        assert [step.status for step in steps[1:4]] == ["failed"] * 3
        assert proof.verdict(steps) == "failed"

    def test_after_a_failure_of_the_gpu_nothing_more_is_asked_of_it(self, monkeypatch):
        def run(self, probe):
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

        steps = self.use(monkeypatch, run)
        assert [step.status for step in steps[:4]] == ["passed", "failed", "skipped", "skipped"]
        assert steps[1].detail == "CUDA error: an illegal memory access was encountered"

    @pytest.mark.parametrize(("function", "status"), [("absent", "not applicable"), ("missing", "skipped")])
    def test_without_gpu_or_torch(self, monkeypatch, function, status):
        monkeypatch.setattr(proof.gpu, function, lambda *_: "there is none")
        steps = self.use(monkeypatch, lambda self, probe: pytest.fail("it ran"))
        assert [(step.status, step.detail) for step in steps[1:4]] == [(status, "there is none")] * 3
        assert proof.verdict(steps) == ("passed" if function == "absent" else "skipped")
