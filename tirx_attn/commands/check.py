"""`tirx-attn check`: proves one kernel; without a GPU, but for the numbers of an sm_90a kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from tirx_attn.commands import output, proof
from tirx_attn.commands.arguments import (
    OPEN,
    ArchOption,
    ArgumentError,
    CausalOption,
    DtypeOption,
    FixedShapeOption,
    JsonOption,
    Problem,
    ScheduleOption,
    parse_list,
    parse_problem,
    parse_seconds,
)
from tirx_attn.commands.wrap import command

TimeLimitOption = Annotated[
    str,
    typer.Option("--time-limit", metavar="SECONDS", help="For each run, its build included."),
]
SimulateOption = Annotated[
    str,
    typer.Option(
        "--simulate",
        metavar="WHICH",
        help=f"What runs behind the structural check: all, none, or some of {', '.join(proof.RUNS)}.",
    ),
]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print a table in Markdown, without times.")]
STYLES = {proof.PASSED: "green", proof.FAILED: "bold red", proof.SKIPPED: "yellow", proof.NOT_APPLICABLE: "dim"}


@command
def check(
    shape: FixedShapeOption,
    causal: CausalOption = False,
    dtype: DtypeOption = "fp16",
    arch: ArchOption = "sm_100a",
    schedule: ScheduleOption = None,
    simulate: SimulateOption = "all",
    time_limit: TimeLimitOption = "600",
    markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> bool:
    """Prove the synchronisation and the numbers of one kernel.

    First by structure, in seconds, at the shape's lengths and at others that use each slot of the protocol several
    times; then on the simulator, with ordinary data, with keys that force a rescale in every block, and with keys that
    force none. The simulator wants small problems: a few hundred tokens, a few heads. It has no WGMMA: kernels for
    sm_90a are proved by structure, and their numbers on a GPU where there is one.

    Example: tirx-attn check --shape 1,256,384,2,1,128 --schedule stagger=true
    """
    if markdown and as_json:
        raise ArgumentError("--markdown with --json: allowed is one of them")
    started = time.perf_counter()
    problem = parse_problem(shape, causal, arch, schedule, dtype=dtype)
    if problem.config.run_time_names:
        raise ArgumentError(
            f"--shape {shape}: {problem.config.run_time_names[0]}={OPEN!r}: allowed values are positive integers, "
            "since check needs lengths to run the kernel at; tests/ checks the run-time kernel itself, at many lengths"
        )
    limit = parse_seconds("--time-limit", time_limit)
    runs = parse_runs(simulate)
    reporter = output.Reporter(total=1 + len(proof.planned(runs)))
    with reporter.step(f"{problem.title}: TIRx function"):
        from tirx_attn.family import build_planned

        func = build_planned(problem.plan)
    steps = proof.prove(func, problem, reporter, limit, runs)
    seconds = time.perf_counter() - started
    if as_json:
        output.print_json(document(problem, steps, seconds))
    elif markdown:
        print("\n".join(_markdown(steps)))
    else:
        _print(problem, steps, seconds)
    return proof.verdict(steps) == proof.PASSED


def parse_runs(text: str) -> Sequence[str]:
    """The runs of --simulate."""
    chosen: dict[str, Sequence[str]] = {"all": proof.RUNS, "none": ()}
    if text in chosen:
        return chosen[text]
    words = parse_list("--simulate", text, (*chosen, *proof.RUNS))
    if not chosen.keys().isdisjoint(words):
        raise ArgumentError(f"--simulate {text}: allowed are all, none, or some of {', '.join(proof.RUNS)}")
    return words


def document(problem: Problem, steps: list[proof.Step], seconds: float) -> dict[str, Any]:
    """The check as one JSON-able document."""
    return {
        "command": "check",
        **problem.to_dict(),
        "steps": [step.to_dict() for step in steps],
        "verdict": proof.verdict(steps),
        "seconds": round(seconds, 3),
    }


def _print(problem: Problem, steps: list[proof.Step], seconds: float) -> None:
    console = output.stdout()
    made = output.table(problem.title, "step", "input", "status", "result", "seconds")
    made.columns[-1].justify = "right"
    for step in steps:
        status = f"[{STYLES[step.status]}]{step.status}[/]"
        made.add_row(step.name, step.input or "-", status, _escape(step.detail), f"{step.seconds:.1f}")
        if "exercised" in step.figures:
            made.add_row("exercised", "-", "", _escape(_exercised(step.figures["exercised"])), "")
    console.print(made)
    for line in _findings(steps):
        console.print(line, markup=False, soft_wrap=True)
    result = proof.verdict(steps)
    console.print(f"[{STYLES[result]}]{result}[/] in {seconds:.0f} s")


def _exercised(data: dict[str, Any]) -> str:
    """What the structural check has not seen twice, in a line."""
    where = f"; further launches: {'; '.join(data['launches'])}" if data["launches"] else ""
    unseen = f"not twice: {'; '.join(data['unseen'])}" if data["unseen"] else "each slot, phase and branch twice"
    return unseen + where


def _markdown(steps: list[proof.Step]) -> list[str]:
    """A table without times, the findings, and the verdict."""
    lines = ["| step | input | status | result |", "|---|---|---|---|"]
    # The first line of a finding follows in full.
    lines += [
        f"| {step.name} | {step.input or '-'} | {step.status} | {step.detail.partition(': ')[0]} |" for step in steps
    ]
    return ["\n".join(lines), *_findings(steps), proof.verdict(steps)]


def _findings(steps: list[proof.Step]) -> Iterator[str]:
    for step in steps:
        for finding in step.findings:
            where = " ".join(filter(None, (step.name, step.input, finding["kind"])))
            yield f"{where}: {finding['message']}"


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
