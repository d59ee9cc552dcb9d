"""`tirx-attn tune`: legal schedules near the tuned one, checked by structure and ranked by the timeline model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirx_attn.commands import output
from tirx_attn.commands.arguments import (
    ArchOption,
    ArgumentError,
    CausalOption,
    DtypeOption,
    FixedShapeOption,
    JsonOption,
    Problem,
    ScheduleOption,
)
from tirx_attn.commands.model import build_for_model, fixed_problem, predict_plan
from tirx_attn.commands.wrap import command
from tirx_attn.runtime.errors import CompileError

if TYPE_CHECKING:
    from tirx_attn.analysis.timeline import Prediction
    from tirx_attn.analysis.timeline.candidates import Candidate

REASONS = 3
"""Parts of the deciding chain that are named, those that differ most."""

TopOption = Annotated[str, typer.Option("--top", metavar="N", help="Rows to print.")]
KnobOption = Annotated[
    list[str] | None, typer.Option("--knob", metavar="NAME", help="Try this knob only. Repeatable. Without it, all.")
]


@dataclass(frozen=True)
class Tried:
    """One schedule.

    Attributes:
        candidate: what it changes.
        prediction: the model's; None where it was not to be had.
        problem: why not.
    """

    candidate: Candidate
    prediction: Prediction | None
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The row, JSON-able."""
        found = self.prediction.to_dict() if self.prediction else None
        return {"changes": self.candidate.changes, "prediction": found, "problem": self.problem}


@command
def tune(
    shape: FixedShapeOption,
    causal: CausalOption = False,
    dtype: DtypeOption = "fp16",
    arch: ArchOption = "sm_100a",
    schedule: ScheduleOption = None,
    knob: KnobOption = None,
    top: TopOption = "10",
    as_json: JsonOption = False,
) -> bool:
    """Rank legal schedules by the timeline model.

    Takes the tuned schedule, or that of --schedule, and legal changes of one knob; then the changes that gain,
    together. Each one is built, checked by structure and replayed: some ten seconds each. Ctrl-C ranks what is done.

    Example: tirx-attn tune --shape 1,4096,4096,32,8,128 --causal --knob kv_stages --knob pv_split
    """
    from tirx_attn.analysis.timeline.candidates import combined, neighbours

    problem, rows = fixed_problem(shape, causal, arch, schedule, dtype), _parse_top(top)
    try:
        candidates = neighbours(problem.plan, knob)
    except ValueError as error:
        raise ArgumentError(f"--knob {error}") from None
    reporter = output.Reporter()
    tried: list[Tried] = []
    try:
        for number, candidate in enumerate(candidates, 1):
            tried.append(_try(candidate, problem, reporter, f"{number}/{len(candidates)}  "))
        gains = [t.candidate for t in ranked(tried) if t.candidate.changes and _gain(t, tried) < 0]
        together = combined(problem.plan, gains)
        if together is not None:
            tried.append(_try(together, problem, reporter, "together  "))
    except KeyboardInterrupt:
        if tried:
            reporter.note(f"interrupted: {len(tried)} of {len(candidates)} schedules are ranked")
            _show(problem, tried, rows, as_json, complete=False)
        raise
    _show(problem, tried, rows, as_json, complete=True)
    return True


def _parse_top(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentError(f"--top {text!r}: allowed values are positive integers")
    return int(text)


def ranked(tried: list[Tried]) -> list[Tried]:
    """What the model could say something of, fastest first."""
    known = [each for each in tried if each.prediction is not None]
    return sorted(known, key=lambda each: each.prediction.time_us if each.prediction else 0.0)


def reasons(found: Prediction, base: Prediction) -> str:
    """How the deciding chain differs from that of the schedule that the search began at, in cycles per key block."""
    from tirx_attn.analysis.timeline.model import by_role

    now, was = ((each.block_cycles, by_role(each.path)) for each in (found, base))
    parts = [(now[0] * now[1].get(name, 0.0) - was[0] * was[1].get(name, 0.0), name) for name in {**now[1], **was[1]}]
    parts.sort(key=lambda part: -abs(part[0]))
    told = [f"{name} {cycles:+.0f}" for cycles, name in parts[:REASONS] if abs(cycles) >= 1]
    return "; ".join(told) or "the loop is the same: " + _elsewhere(found, base)


def _elsewhere(found: Prediction, base: Prediction) -> str:
    task, total = found.task_cycles - base.task_cycles, found.cycles - base.cycles
    if abs(task) >= 1:
        return f"start and end of a task {task:+.0f} cycles"
    return f"order of tasks {total:+.0f} cycles" if abs(total) >= 1 else "no difference"


def _try(candidate: Candidate, problem: Problem, reporter: output.Reporter, label: str) -> Tried:
    from tirx_attn.analysis.timeline import Tasks
    from tirx_attn.barriers.check import check

    with reporter.step(f"{label}{candidate.name}"):
        try:
            func, figures = build_for_model(candidate.plan, problem.arch)
        except (CompileError, ValueError) as error:
            return Tried(candidate, None, f"does not compile: {str(error).splitlines()[0]}")
        tasks = Tasks(candidate.plan)
        report = check(func, sizes=tasks.sizes(tasks.samples()[-1]))
        if report.findings:
            return Tried(candidate, None, f"structural check: {report.findings[0].message.splitlines()[0]}")
        return Tried(candidate, predict_plan(candidate.plan, figures, func)[0])


def _gain(each: Tried, tried: list[Tried]) -> float:
    base = tried[0].prediction
    return each.prediction.time_us / base.time_us - 1 if each.prediction and base else 0.0


def _show(problem: Problem, tried: list[Tried], top: int, as_json: bool, complete: bool) -> None:
    rows, refused = ranked(tried), [each for each in tried if each.prediction is None]
    if as_json:
        document = {"command": "tune", **problem.to_dict(), "complete": complete}
        lists = {"ranked": [r.to_dict() for r in rows], "refused": [r.to_dict() for r in refused]}
        output.print_json({**document, **lists})
        return
    console = output.stdout()
    title = f"{problem.title} on {problem.plan.target.name} ({problem.arch}), from row {problem.row.id}"
    made = output.table(title, "schedule", "µs", "change", "cycles per key block", "critical", "why")
    for column in made.columns[1:4]:
        column.justify = "right"
    base = tried[0].prediction
    for each in rows[:top]:
        found = each.prediction
        if found is None:
            continue
        why = reasons(found, base) if base and each is not tried[0] else f"first stall: {found.first_stall}"
        figures = f"{found.time_us:,.1f}", f"{100 * _gain(each, tried):+.1f} %", f"{found.block_cycles:,.0f}"
        made.add_row(each.candidate.name, *figures, found.critical, why)
    console.print(made)
    if len(rows) > top:
        console.print(f"{len(rows) - top} more; --top {len(rows)} prints them all")
    for each in refused:
        console.print(f"{each.candidate.name}: {each.problem}", markup=False)
