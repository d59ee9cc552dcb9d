"""`tirx-attn demo`: generates, compiles and proves two small kernels, and prints each result as soon as it is known."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from rich.markup import escape

from tirx_attn.commands import interrupts, output, proof
from tirx_attn.commands.arguments import JsonOption, Problem, parse_problem
from tirx_attn.commands.build import compile_problem, machine_code_record
from tirx_attn.commands.check import STYLES
from tirx_attn.commands.wrap import command
from tirx_attn.verify import simulator
from tirx_attn.verify.inputs import INPUTS
from tirx_attn.verify.probe import Probe
from tirx_attn.verify.process import SimulatorUnavailable, require_simulator

ARCH = "sm_100a"
KERNELS = {
    "full": ("1,256,384,2,1,128", False),
    "causal": ("1,256,256,2,1,128", True),
}
"""Name -> shape and mask. Two query heads share one K/V head, so that packed rows are proved as well."""

TIME_LIMIT = 1800.0
"""Seconds for a step with its build; the first builds of a machine include the simulator's own crates."""

WIDTHS = (36, 58, 58)
"""Columns of the table: what, and each kernel."""

TEXTS = {
    proof.PASSED: "everything passed",
    proof.FAILED: "a step failed",
    proof.SKIPPED: "a step was skipped",
}


@dataclass
class Demo:
    """What the demo did with one kernel.

    Attributes:
        name, problem: of `KERNELS`.
        machine_code: what ptxas made of it.
        steps: by (name, input), as far as they are taken.
    """

    name: str
    problem: Problem
    machine_code: dict[str, Any] = field(default_factory=dict)
    steps: dict[tuple[str, str | None], proof.Step] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return proof.verdict(list(self.steps.values()))

    def to_dict(self) -> dict[str, Any]:
        """The kernel's part of the JSON document."""
        return {
            "name": self.name,
            **self.problem.to_dict(),
            "machine_code": self.machine_code,
            "steps": [self.steps[which].to_dict() for which in proof.planned()],
            "verdict": self.verdict,
        }


@command
def demo(as_json: JsonOption = False) -> bool:
    """Generate, compile and prove two kernels; takes a few minutes.

    Structure and machine code come first. The simulator's builds for numbers, synccheck and racecheck run side by side.

    Example: tirx-attn demo
    """
    started = time.perf_counter()
    reporter = output.Reporter()
    demos = [Demo(name, parse_problem(shape, causal, ARCH)) for name, (shape, causal) in KERNELS.items()]
    rows = None if as_json else Rows(demos)
    for each in demos:
        built = compile_problem(each.problem, reporter)
        each.machine_code = machine_code_record(built)
        with reporter.step(f"{each.name}: structural check"):
            each.steps["structure", None] = proof.check_structure(built.func, each.problem.plan)
    if rows:
        rows.first()
    _simulate(demos, reporter, rows)
    seconds = time.perf_counter() - started
    found = {each.verdict for each in demos}
    verdict = next((status for status in (proof.FAILED, proof.SKIPPED) if status in found), proof.PASSED)
    if rows is None:
        kernels = [each.to_dict() for each in demos]
        output.print_json({"command": "demo", "kernels": kernels, "verdict": verdict, "seconds": round(seconds, 3)})
    else:
        rows.last(verdict, seconds)
    return verdict == proof.PASSED


def _simulate(demos: list[Demo], reporter: output.Reporter, rows: Rows | None) -> None:
    """Take all steps on the simulator: one lane for each of `RUNS`, in which one kernel follows the other."""
    reason = "" if all(each.verdict == proof.PASSED for each in demos) else "a structural check failed"
    try:
        require_simulator()
    except SimulatorUnavailable as error:
        reason = reason or str(error)
    if reason:
        for each in demos:
            each.steps |= {(name, key): proof.Step(name, key, proof.SKIPPED, reason) for name, key in _runs()}
        for which in _runs():
            if rows:
                rows.step(which)
        return
    with ExitStack() as stack, reporter.step(f"{' and '.join(KERNELS)}: on the simulator") as note:
        # The lanes' threads end before their executors are left: cancelled, or with a process that is gone.
        lanes = {name: stack.enter_context(ThreadPoolExecutor(1)) for name in proof.RUNS}
        stack.callback(simulator.close)
        for lane in lanes.values():
            stack.callback(lane.shutdown, wait=False, cancel_futures=True)
        pending: dict[Future[proof.Step], Demo] = {}
        for each in demos:
            func = proof.simulation(each.problem)
            for name, lane in lanes.items():
                for key, make in INPUTS.items():
                    pending[lane.submit(_step, name, key, func, make(each.problem.config))] = each
        while pending:
            interrupts.check()
            note(f"builds and runs: {len(pending)} are left")
            for future in wait(pending, timeout=0.5, return_when=FIRST_COMPLETED).done:
                step, each = future.result(), pending.pop(future)
                each.steps[step.name, step.input] = step
                if rows and all((step.name, step.input) in one.steps for one in demos):
                    rows.step((step.name, step.input))


def _step(name: str, key: str, func: Any, probe: Probe) -> proof.Step:
    with simulator.lane(name):
        return proof.simulated_step(name, key, func, probe, TIME_LIMIT, lambda _: None)


def _runs() -> list[tuple[str, str | None]]:
    return [which for which in proof.planned() if which[0] in proof.RUNS]


class Rows:
    """The table, printed line by line."""

    def __init__(self, demos: list[Demo]):
        self._demos = demos
        self._console = output.stdout()
        self._print("[bold]FlashAttention-4 forward, generated with TIRx[/]", *(f"[bold]{e.name}[/]" for e in demos))
        self._print("problem", *(each.problem.title.partition(" ")[2] for each in demos))
        self._print("schedule", *(f"tuning row {each.problem.row.id}" for each in demos))

    def first(self) -> None:
        """What is known before anything runs on the simulator."""
        self._print(f"{ARCH} machine code", *(_machine_code(each.machine_code) for each in self._demos))
        self.step(("structure", None))

    def step(self, which: tuple[str, str | None]) -> None:
        """A step that was taken for all kernels."""
        name, key = which
        label = f"{name}: {key}" if key else "structural check"
        self._print(label, *(_cell(each.steps[which]) for each in self._demos))

    def last(self, verdict: str, seconds: float) -> None:
        """Verdicts, and what was found."""
        self._print("verdict", *(f"[{STYLES[each.verdict]}]{each.verdict}[/]" for each in self._demos))
        for each in self._demos:
            for step in each.steps.values():
                for finding in step.findings:
                    text = f"{each.name}, {step.name}: {finding['message']}"
                    self._console.print(text, markup=False, soft_wrap=True)
        self._console.print(f"[{STYLES[verdict]}]{TEXTS[verdict]}[/], {seconds:.0f} s")

    def _print(self, *cells: str) -> None:
        self._console.print(output.row(cells, WIDTHS))
        self._console.file.flush()


def _machine_code(record: dict[str, Any]) -> str:
    resources = record["resources"]
    took = sum(record["seconds"].values())
    return f"{resources['registers']} registers, {resources['spill_instructions']} spills, {took:.1f} s"


def _cell(step: proof.Step) -> str:
    return f"[{STYLES[step.status]}]{escape(step.detail)}[/], {step.seconds:.1f} s"
