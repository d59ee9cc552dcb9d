"""`tirx-attn model`: how long a launch takes by the timeline model, and what decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirx_attn.commands import output, roofline
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
    parse_problem,
)
from tirx_attn.commands.wrap import command

if TYPE_CHECKING:
    from tirx_attn.analysis.timeline import CodeFigures, Constants, Prediction

RooflineOption = Annotated[
    bool, typer.Option("--roofline", help="Only what arithmetic says: traffic, clocks of a tile, order of tasks.")
]
SHOWN = 0.005
"""Shares below that of the time are left out of the tables."""


@command
def model(
    shape: FixedShapeOption,
    causal: CausalOption = False,
    dtype: DtypeOption = "fp16",
    arch: ArchOption = "sm_100a",
    schedule: ScheduleOption = None,
    only_roofline: RooflineOption = False,
    as_json: JsonOption = False,
) -> bool:
    """Predict time, critical resource and stalls.

    Builds the kernel, plays it once by structure, and replays that with the costs of its machine code; runs nothing.
    docs/model.md says what is fitted, how well, and what the model cannot tell. With --roofline it builds nothing:
    docs/studies.md says what those figures mean.

    Example: tirx-attn model --shape 1,8192,8192,32,32,128 --schedule kv_stages=2
    """
    problem = fixed_problem(shape, causal, arch, schedule, dtype)
    if only_roofline:
        roofline.show(problem.plan, output.stdout(), as_json)
        return True
    reporter = output.Reporter(total=2)
    with reporter.step(f"{problem.arch}: {problem.title}, to machine code"):
        func, figures = build_for_model(problem.plan, problem.arch)
    with reporter.step("timeline"):
        prediction, constants = predict_plan(problem.plan, figures, func)
    if as_json:
        output.print_json(
            {"command": "model", **problem.to_dict(), **prediction.to_dict(), "constants": constants.to_dict()}
        )
        return True
    _print(problem, prediction, constants)
    return True


def fixed_problem(shape: str, causal: bool, arch: str, schedule: list[str] | None, dtype: str) -> Problem:
    """The problem of the options, with known lengths."""
    problem = parse_problem(shape, causal, arch, schedule, dtype=dtype)
    if problem.config.run_time_names:
        raise ArgumentError(
            f"--shape {shape}: {problem.config.run_time_names[0]}={OPEN!r}: allowed values are positive integers, "
            "since the time depends on the lengths"
        )
    tiles = problem.plan.tiles
    if not any(int(tiles.key_blocks(m)) for m in range(int(tiles.m_blocks))):
        raise ArgumentError(f"--shape {shape}: no query sees a key, allowed are problems with something to multiply")
    return problem


def build_for_model(plan: Any, arch: str) -> tuple[Any, CodeFigures]:
    """PrimFunc for all lengths of a plan's kernel, and figures of its machine code."""
    from tirx_attn.analysis.timeline import Tasks
    from tirx_attn.analysis.timeline.measured import figures_of
    from tirx_attn.runtime.builder import build

    kernel = Tasks(plan).open_plan()
    made = build(kernel.config, schedule=kernel.schedule, arch=arch)
    return made.func, figures_of(made.cubin, plan.config.D, takes_turns=getattr(plan.schedule, "stagger", False))


def predict_plan(plan: Any, figures: CodeFigures, func: Any) -> tuple[Prediction, Constants]:
    """The prediction, and the constants that it used."""
    from tirx_attn.analysis.timeline import constants_for, predict

    constants = constants_for(plan.target)
    return predict(plan, figures, func=func, constants=constants), constants


def _print(problem: Problem, found: Prediction, constants: Constants) -> None:
    console = output.stdout()
    made = output.table(f"{problem.title} on {problem.plan.target.name} ({problem.arch})", "what", "value")
    made.add_row("time", f"{found.time_us:,.1f} µs at {found.clock_ghz:.2f} GHz")
    made.add_row("speed", f"{found.tflops:,.0f} TFLOP/s over the visible pairs")
    made.add_row("cycles", f"{found.cycles:,.0f} in all, {found.task_cycles:,.0f} for the longest task")
    made.add_row("cycles per key block", f"{found.block_cycles:,.0f} for all query tiles of a task")
    made.add_row("critical", found.critical)
    made.add_row("first stall", found.first_stall)
    made.add_row("constants", constants.name)
    console.print(made)
    shares = output.table("Steady state", "unit", "busy", "the chain that decides", "share")
    chain = [(name, share) for name, share in found.path.items() if share >= SHOWN]
    units = list(found.use.items())
    for i in range(max(len(chain), len(units))):
        unit, use = units[i] if i < len(units) else ("", None)
        name, share = chain[i] if i < len(chain) else ("", None)
        shares.add_row(unit, _percent(use), name, _percent(share))
    console.print(shares)
    stalls = output.table("Waits", "role", "edge", "cycles per key block", "share")
    stalls.columns[2].justify = stalls.columns[3].justify = "right"
    for row in found.stalls:
        if row.share >= SHOWN:
            stalls.add_row(row.role, row.edge, f"{row.cycles:,.0f}", _percent(row.share))
    console.print(stalls)
    costs = output.table("Constants", "name", "value", "unit", "origin", "meaning")
    for each in constants.to_dict():
        origin = "fitted" if each["fitted"] else "assumed"
        costs.add_row(each["name"], str(each["value"]), each["unit"], origin, each["meaning"])
    console.print(costs)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
