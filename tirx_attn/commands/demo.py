"""`tirx-attn demo`: generates, compiles and proves two small kernels, and prints one table."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from rich.markup import escape

from tirx_attn.commands import output, proof
from tirx_attn.commands.arguments import JsonOption, Problem, parse_problem
from tirx_attn.commands.build import compile_problem, machine_code_record
from tirx_attn.commands.check import STYLES
from tirx_attn.commands.wrap import command

ARCH = "sm_100a"
KERNELS = {
    "full": ("1,256,384,2,1,128", False),
    "causal": ("1,256,256,2,1,128", True),
}
"""Name -> shape and mask. Two query heads share one K/V head, so that packed rows are proved as well."""

TIME_LIMIT = 900.0
"""Seconds for a step with its build; the very first build of a machine includes the simulator's own crates."""


@dataclass
class Demo:
    """What the demo did with one kernel."""

    name: str
    problem: Problem
    machine_code: dict[str, Any]
    steps: list[proof.Step]

    @property
    def verdict(self) -> str:
        return proof.verdict(self.steps)

    def to_dict(self) -> dict[str, Any]:
        """The kernel's part of the JSON document."""
        return {
            "name": self.name,
            **self.problem.to_dict(),
            "machine_code": self.machine_code,
            "steps": [step.to_dict() for step in self.steps],
            "verdict": self.verdict,
        }


@command
def demo(as_json: JsonOption = False) -> bool:
    """Generate, compile and prove two kernels; takes a few minutes.

    Example: tirx-attn demo
    """
    started = time.perf_counter()
    reporter = output.Reporter(total=len(KERNELS) * (1 + len(proof.planned())))
    demos = [_demo(name, *KERNELS[name], reporter) for name in KERNELS]
    seconds = time.perf_counter() - started
    found = {each.verdict for each in demos}
    verdict = next((status for status in (proof.FAILED, proof.SKIPPED) if status in found), proof.PASSED)
    if as_json:
        kernels = [each.to_dict() for each in demos]
        output.print_json({"command": "demo", "kernels": kernels, "verdict": verdict, "seconds": round(seconds, 3)})
    else:
        _print(demos, verdict, seconds)
    return verdict == proof.PASSED


def _demo(name: str, shape: str, causal: bool, reporter: output.Reporter) -> Demo:
    problem = parse_problem(shape, causal, ARCH)
    built = compile_problem(problem, reporter)
    return Demo(name, problem, machine_code_record(built), proof.prove(built.func, problem, reporter, TIME_LIMIT))


def _print(demos: list[Demo], verdict: str, seconds: float) -> None:
    made = output.table("FlashAttention-4 forward, generated with TIRx", "", *(each.name for each in demos))
    made.add_row("problem", *(each.problem.title.partition(" ")[2] for each in demos))
    made.add_row("schedule", *(f"tuning row {each.problem.row.id}" for each in demos))
    made.add_row(f"{ARCH} machine code", *(_machine_code(each.machine_code) for each in demos))
    for number, (name, key) in enumerate(proof.planned()):
        label = f"{name}: {key}" if key else "structural check"
        made.add_row(label, *(_cell(each.steps[number]) for each in demos), end_section=key is None)
    made.add_row("verdict", *(f"[{STYLES[each.verdict]}]{each.verdict}[/]" for each in demos))
    console = output.stdout()
    console.print(made)
    for each in demos:
        for step in each.steps:
            for finding in step.findings:
                console.print(f"{each.name}, {step.name}: {finding['message']}", markup=False, soft_wrap=True)
    texts = {
        proof.PASSED: "everything passed",
        proof.FAILED: "a step failed",
        proof.SKIPPED: "a step was skipped",
    }
    console.print(f"[{STYLES[verdict]}]{texts[verdict]}[/], {seconds:.0f} s")


def _machine_code(record: dict[str, Any]) -> str:
    resources = record["resources"]
    took = sum(record["seconds"].values())
    return f"{resources['registers']} registers, {resources['spill_instructions']} spills, {took:.1f} s"


def _cell(step: proof.Step) -> str:
    return f"[{STYLES[step.status]}]{escape(step.detail)}[/], {step.seconds:.1f} s"
