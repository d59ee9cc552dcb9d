"""`tirx-attn explore`: a page with a kernel's protocol, memory maps and the timeline of a task, and a trace of it."""

from __future__ import annotations

from pathlib import Path
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
from tirx_attn.commands.build import check_folder
from tirx_attn.commands.model import build_for_model, fixed_problem
from tirx_attn.commands.wrap import command
from tirx_attn.runtime.files import write_atomic

if TYPE_CHECKING:
    from tirx_attn.explore import Study

PAGE, TRACE = "index.html", "trace.json"
TUNED = "tuned"

FolderOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help=f"Folder for {PAGE} and {TRACE}; made if need be.")
]
AgainstOption = Annotated[
    list[str] | None,
    typer.Option(
        "--against",
        metavar=f"KEY=VALUE|{TUNED}",
        help="Show a second schedule beside it: the tuned one with this knob, as --schedule sets it, or as it is. "
        "Repeatable.",
    ),
]


@command
def explore(
    shape: FixedShapeOption,
    folder: FolderOption,
    causal: CausalOption = False,
    dtype: DtypeOption = "fp16",
    arch: ArchOption = "sm_100a",
    schedule: ScheduleOption = None,
    against: AgainstOption = None,
    as_json: JsonOption = False,
) -> bool:
    """Write a page that shows protocol, memory and time.

    One HTML file, which opens without a network: who waits for whom on which edge, what lies where, and where the time
    of a task goes by the timeline model. Beside it a trace for Perfetto. Builds the kernel; runs nothing.

    Example: tirx-attn explore --shape 1,8192,8192,32,32,128 --against kv_stages=2 -o page
    """
    problems = [fixed_problem(shape, causal, arch, schedule, dtype)]
    if against:
        problems.append(_against(shape, causal, arch, against, dtype, problems[0]))
    check_folder(folder)
    _check_installed()
    from tirx_attn.explore import document, trace_events
    from tirx_attn.explore.page import page

    reporter = output.Reporter(total=2 * len(problems) + 1)
    studies = [_study(problem, reporter) for problem in problems]
    with reporter.step("page and trace"):
        made = document(problems[0].title, problems[0].arch, studies)
        folder.mkdir(parents=True, exist_ok=True)
        files = [
            write_atomic(folder / TRACE, output.compact_json(trace_events(made))),
            write_atomic(folder / PAGE, page(made)),
        ]
    if as_json:
        output.print_json(_summary(problems, made, files))
        return True
    _print(problems[0], made, files)
    return True


def _against(shape: str, causal: bool, arch: str, items: list[str], dtype: str, first: Problem) -> Problem:
    if TUNED in items and len(items) > 1:
        raise ArgumentError(f"--against {TUNED}: allowed is {TUNED} by itself, or KEY=VALUE")
    try:
        made = fixed_problem(shape, causal, arch, [] if items == [TUNED] else items, dtype)
    except ArgumentError as error:
        raise ArgumentError(str(error).replace("--schedule", "--against")) from None
    if made.schedule == first.schedule:
        raise ArgumentError(f"--against {', '.join(items)}: is the same schedule, allowed are others")
    return made


def _check_installed() -> None:
    from tirx_attn.explore.page import missing

    problem = missing()
    if problem:
        raise OSError(problem)


def _study(problem: Problem, reporter: output.Reporter) -> Study:
    from tirx_attn.analysis.timeline import Tasks, constants_for
    from tirx_attn.analysis.timeline.durations import play
    from tirx_attn.explore import Study

    with reporter.step(f"{problem.arch}: {problem.title}, {_origin(problem)}, to machine code"):
        func, figures = build_for_model(problem.plan, problem.arch)
    with reporter.step("timeline"):
        played = play(Tasks(problem.plan), func)
        constants = constants_for(problem.plan.target)
        words = {"origin": _origin(problem), "changes": problem.changes}
        return Study.of(problem.plan, problem.table, played, figures, constants, **words)


def _origin(problem: Problem) -> str:
    changes = [f"{name}={value}" for name, value in problem.changes.items()]
    return ", ".join([f"tuning row {problem.row.id}", *changes])


def _summary(problems: list[Problem], made: dict[str, Any], files: list[Path]) -> dict[str, Any]:
    sides = [
        {
            "name": side["name"],
            "schedule": problem.to_dict()["schedule"],
            "changes": problem.changes,
            **{row["key"]: row["value"] for row in side["figures"]},
        }
        for problem, side in zip(problems, made["sides"], strict=True)
    ]
    return {
        "command": "explore",
        "arch": made["arch"],
        "title": made["title"],
        "files": [{"path": str(path), "bytes": path.stat().st_size} for path in files],
        "sides": sides,
        "differences": made.get("differences"),
    }


def _print(problem: Problem, made: dict[str, Any], files: list[Path]) -> None:
    names = [f"{side['name']}: {side['origin']}" for side in made["sides"]]
    shown = output.table(f"{problem.title} on {problem.plan.target.name} ({problem.arch})", "what", *names)
    for rows in zip(*(side["figures"] for side in made["sides"]), strict=True):
        shown.add_row(rows[0]["label"], *(row["text"] for row in rows))
    console = output.stdout()
    console.print(shown)
    for path in files:
        console.print(str(path), markup=False, soft_wrap=True)
