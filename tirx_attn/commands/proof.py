"""The steps that prove one kernel: structure, numbers, synchronisation. Shared by `check` and `demo`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tirx_attn.commands.arguments import Problem
from tirx_attn.commands.output import Reporter
from tirx_attn.family import AnyPlan
from tirx_attn.schedule import Plan
from tirx_attn.verify import ErrorVerdict, gpu, simulated_plan, simulator
from tirx_attn.verify.inputs import CHECKERS, INPUTS
from tirx_attn.verify.probe import Probe
from tirx_attn.verify.process import SimulatorError, SimulatorUnavailable, require_simulator

RUNS = ("numbers", *CHECKERS)
"""The steps that run the kernel, behind the structural check."""

PASSED, FAILED, SKIPPED, NOT_APPLICABLE = "passed", "failed", "skipped", "not applicable"
"""A skipped step lacks a package; one that is not applicable has no machine here that could take it."""


@dataclass
class Step:
    """Outcome of one step.

    Attributes:
        name: "structure", "numbers", "synccheck" or "racecheck".
        input: key of `INPUTS`; None for the structural check, which needs no data.
        status: "passed", "failed", "skipped" or "not applicable".
        detail: what was found, or why the step was not taken, in a line.
        findings: what a checker reported.
        figures: further JSON-able results.
        seconds, build_seconds: wall time of the step, and of the build in it.
    """

    name: str
    input: str | None
    status: str
    detail: str
    findings: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    build_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON-able data."""
        return {
            "step": self.name,
            "input": self.input,
            "status": self.status,
            "detail": self.detail,
            **self.figures,
            "findings": self.findings,
            "seconds": round(self.seconds, 3),
            "build_seconds": round(self.build_seconds, 3),
        }


def planned(runs: Sequence[str] = RUNS) -> list[tuple[str, str | None]]:
    """(name, input) of all steps, in order: the cheapest proof first."""
    return [("structure", None), *((name, key) for name in RUNS if name in runs for key in INPUTS)]


def prove(func: Any, problem: Problem, reporter: Reporter, time_limit: float, runs: Sequence[str] = RUNS) -> list[Step]:
    """Take all steps on a PrimFunc.

    Nothing runs on the simulator after a failed structural check, or after a step that passed its time limit.

    Args:
        func: the PrimFunc.
        problem: what it was generated for.
        reporter: for progress.
        time_limit: seconds for each step on the simulator, its build included.
        runs: those of `RUNS` to take behind the structural check.
    """
    return list(_steps(func, problem, reporter, time_limit, runs))


def verdict(steps: list[Step]) -> str:
    """Verdict over steps: "failed" if one failed, else "skipped" if one was skipped, else "passed".

    Steps that do not apply do not count.
    """
    found = {step.status for step in steps}
    return next((status for status in (FAILED, SKIPPED) if status in found), PASSED)


def _steps(func: Any, problem: Problem, reporter: Reporter, time_limit: float, runs: Sequence[str]) -> Iterator[Step]:
    with reporter.step("structural check"):
        structure = check_structure(func, problem.plan)
    yield structure
    if not problem.family.simulated:
        yield from _on_gpu(problem, structure.status == PASSED, reporter, time_limit, runs)
        return
    reason = "" if structure.status == PASSED else "the structural check failed"
    if not reason:
        try:
            require_simulator()
        except SimulatorUnavailable as error:
            reason = str(error)
    probes: dict[str, Probe] = {}
    func = None
    for name, key in planned(runs)[1:]:
        assert key is not None
        if reason:
            reporter.skip(1)
            yield Step(name, key, SKIPPED, reason)
            continue
        if key not in probes:
            probes[key] = INPUTS[key](problem.config)
        if func is None:
            func = simulation(problem)
        with reporter.step(f"{name}: {key}") as note:
            step = simulated_step(name, key, func, probes[key], time_limit, note)
        if step.figures.get("timed_out"):
            reason = f"{name} on {key} passed the time limit of {time_limit:g} s"
        yield step


def _on_gpu(
    problem: Problem, sound: bool, reporter: Reporter, time_limit: float, runs: Sequence[str]
) -> Iterator[Step]:
    """The steps of a kernel that the simulator has no instructions for: numbers, where a GPU fits."""
    absent = gpu.absent(problem.arch)
    skipped = "" if sound else "the structural check failed"
    if sound and not absent:
        skipped = gpu.missing()
    kernel: gpu.GpuKernel | None = None
    for name, key in planned(runs)[1:]:
        assert key is not None
        if name != "numbers" or absent:
            reporter.skip(1)
            why = absent if name == "numbers" else f"the simulator does not model {problem.arch}"
            yield Step(name, key, NOT_APPLICABLE, why)
        elif skipped:
            reporter.skip(1)
            yield Step(name, key, SKIPPED, skipped)
        else:
            with reporter.step(f"{name} on the GPU: {key}"):
                started, build_seconds = time.perf_counter(), 0.0
                try:
                    if kernel is None:
                        kernel = gpu.GpuKernel(problem.plan, time_limit)
                        build_seconds = time.perf_counter() - started
                    probe = INPUTS[key](problem.config)
                    step = _judged(key, probe.judge(kernel.run(probe)))
                except RuntimeError as error:  # of the compiler or of CUDA, which then answers no more
                    step = Step(name, key, FAILED, str(error).splitlines()[0])
                    skipped = f"{name} on {key} failed"
                step.seconds, step.build_seconds = time.perf_counter() - started, build_seconds
            yield step


def simulation(problem: Problem) -> Any:
    """The PrimFunc that the simulator takes: the same device code with compact tensors."""
    from tirx_attn.kernel import build_kernel

    assert isinstance(problem.plan, Plan)
    return build_kernel(simulated_plan(problem.plan))


def check_structure(func: Any, plan: AnyPlan | None = None) -> Step:
    """What the PrimFunc does, held against what it declares, played to its end.

    With its plan, also in further launches, until every slot, phase and branch has been exercised.
    """
    from tirx_attn.barriers.check import check
    from tirx_attn.verify.exercise import check_launches

    started = time.perf_counter()
    try:
        report = check(func) if plan is None else check_launches(plan, func)
    except ValueError as error:  # a statement that the checker cannot translate
        return Step("structure", None, FAILED, f"not understood: {error}", seconds=time.perf_counter() - started)
    data = report.to_dict()
    findings = data["findings"]
    status = PASSED if report.verdict == "clean" else FAILED
    detail = _summary(report.verdict, findings)
    figures = {name: data[name] for name in ("verdict", "exercised")}
    return Step("structure", None, status, detail, findings, figures, time.perf_counter() - started)


def simulated_step(
    name: str, key: str, func: Any, probe: Probe, time_limit: float, note: Callable[[str], None]
) -> Step:
    """One of `RUNS` on one of `INPUTS`, for a PrimFunc of `simulation`."""
    started = time.perf_counter()
    try:
        if name == "numbers":
            step = _numbers(key, func, probe, time_limit, note)
        else:
            report = getattr(simulator, name)(func, probe.arrays, time_limit=time_limit, notes=note)
            findings = [{"kind": kind, "message": message} for kind, message in report.findings]
            status = PASSED if report.clean else FAILED
            step = Step(name, key, status, _summary(report.verdict, findings), findings, {"verdict": report.verdict})
            step.build_seconds = report.build_seconds
    except (SimulatorError, TimeoutError) as error:
        step = Step(name, key, FAILED, str(error), figures={"timed_out": isinstance(error, TimeoutError)})
    step.seconds = time.perf_counter() - started
    return step


def _numbers(key: str, func: Any, probe: Probe, time_limit: float, note: Callable[[str], None]) -> Step:
    run = simulator.run(func, probe.arrays, time_limit=time_limit, notes=note)
    step = _judged(key, probe.judge(run.outputs["O"]))
    step.findings = [{"kind": kind, "message": message} for kind, message in run.findings]
    if step.findings:
        step.detail += f"; {_summary(run.verdict, step.findings)}"
    if run.verdict != "clean":
        step.status = FAILED
    step.figures["verdict"] = run.verdict
    step.build_seconds = run.build_seconds
    return step


def _judged(key: str, judged: ErrorVerdict) -> Step:
    # JSON knows no infinity, which is the error of an output with a NaN.
    error = judged.error if judged.error < float("inf") else None
    detail = f"error {judged.error:.2e}, allowed {judged.bound:.2e}"
    figures = {"error": error, "bound": judged.bound}
    return Step("numbers", key, PASSED if judged.ok else FAILED, detail, figures=figures)


def _summary(verdict: str, findings: list[dict[str, Any]]) -> str:
    if not findings:
        return verdict
    plural = "s" if len(findings) > 1 else ""
    return f"{verdict}, {len(findings)} finding{plural}: {findings[0]['message'].splitlines()[0]}"
