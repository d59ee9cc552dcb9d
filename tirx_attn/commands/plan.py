"""`tirx-attn plan`: schedule, launch, memory maps, registers and barriers of a problem. Loads no TVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rich.markup import escape
from rich.table import Table

from tirx_attn.barriers import render
from tirx_attn.commands import output
from tirx_attn.commands.arguments import (
    ArchOption,
    CausalOption,
    DtypeOption,
    JsonOption,
    LseOption,
    Problem,
    ScaleOption,
    ScheduleOption,
    ShapeOption,
    parse_problem,
)
from tirx_attn.commands.wrap import command
from tirx_attn.config import RUNTIME, TILE_KEYS
from tirx_attn.schedule import Plan
from tirx_attn.schedule.parts import WARPGROUP_THREADS, Region
from tirx_attn.schedule.plan import TmemPlan
from tirx_attn.schedule.tiles import ceil_div

AT_LAUNCH = "known at launch"


@command
def plan(
    shape: ShapeOption,
    causal: CausalOption = False,
    dtype: DtypeOption = "fp16",
    lse: LseOption = False,
    scale: ScaleOption = None,
    arch: ArchOption = "sm_100a",
    schedule: ScheduleOption = None,
    as_json: JsonOption = False,
) -> bool:
    """Show schedule, grid, memory maps, registers and barriers.

    Example: tirx-attn plan --shape 1,4096,4096,32,8,128 --causal

    For all lengths: `tirx-attn plan --shape _,_,_,32,8,128 --causal`
    """
    problem = parse_problem(shape, causal, arch, schedule, dtype=dtype, lse=lse, scale=scale)
    if as_json:
        output.print_json(plan_document(problem))
        return True
    console = output.stdout()
    console.print(f"[bold]{problem.title}[/bold] on {problem.plan.target.name} ({problem.arch})\n")
    for made in (
        _kernel(problem),
        _launch(problem),
        _knobs(problem),
        _roles(problem),
        *_memories(problem),
        _barriers(problem),
    ):
        console.print(made)
        console.print()
    return True


def plan_document(problem: Problem) -> dict[str, Any]:
    """The plan as one JSON-able document."""
    return {
        "command": "plan",
        **problem.to_dict(),
        "parameters": problem.parameters,
        "plan": problem.plan.to_dict(),
        "protocol": render.to_dict(problem.table),
    }


def _kernel(problem: Problem) -> Table:
    config = problem.config
    made = output.table("Kernel", "what", "value")
    parameters = (f"{each['name']} {each['shape']}".removesuffix(" []") for each in problem.parameters)
    made.add_row("parameters", escape(", ".join(parameters)))
    made.add_row("dtype", f"{config.dtype} in and out, fp32 accumulation")
    scale = "a float32 parameter" if config.scale == RUNTIME else str(config.scale or f"1/sqrt({config.D})")
    made.add_row("scale", scale)
    made.add_row("LSE", "written in fp32, natural logarithm" if config.return_lse else "not written")
    return made


def _launch(problem: Problem) -> Table:
    plan, config, tiles = problem.plan, problem.config, problem.plan.tiles
    launch = plan.to_dict()["launch"]
    grid, tasks = launch["grid"], launch["tasks"]
    made = output.table("Launch", "what", "value")
    persistent = "persistent, " if plan.is_persistent else ""
    threads = f"of {plan.warps.threads} threads, {persistent}one at a time per SM"
    made.add_row("grid", f"{grid} CTAs {threads}" if grid else f"one CTA per task, {AT_LAUNCH}; each {threads}")
    if not plan.is_persistent:
        per_cta = "one per CTA, longest first"
    else:
        per_cta = f"up to {plan.tasks_per_cta} per CTA" if tasks else "spread evenly over the CTAs"
    tile = "pair of query tiles" if tiles.tiles_per_task == 2 else "query tile"
    made.add_row("tasks", f"{tasks or f'{AT_LAUNCH}:'} (batch, K/V head, {tile}), {per_cta}")
    packing = f"{tiles.tokens_per_tile} tokens x {config.ratio} heads of one K/V head"
    made.add_row("query tile", f"{packing}, {tiles.used_rows} of {tiles.rows} rows")
    # The last query sees all keys, masked or not.
    blocks = AT_LAUNCH if config.Skv is None else f"{ceil_div(config.Skv, TILE_KEYS)} in the longest task"
    made.add_row("key blocks", f"{blocks}, last to first")
    if not plan.is_persistent:
        l2_heads = launch["l2_heads"]
        heads = f"{l2_heads} (batch, K/V head) at a time" if l2_heads else f"groups of heads that fit, {AT_LAUNCH}"
        made.add_row("in L2", f"K and V of {heads}")
    work = AT_LAUNCH if config.run_time_names else f"{config.flops / 1e9:,.3f} Gflop in the two products"
    made.add_row("work", work)
    return made


def _knobs(problem: Problem) -> Table:
    made = output.table(f"Schedule: tuning row {problem.row.id}, {problem.row.regime}", "knob", "value", "from")
    for field in fields(problem.schedule):
        value = getattr(problem.schedule, field.name)
        made.add_row(field.name, str(value), "--schedule" if field.name in problem.changes else problem.row.id)
    return made


def _roles(problem: Problem) -> Table:
    warps = problem.plan.warps
    made = output.table("Roles", "role", "runs on", "registers per thread")
    for role in warps.roles:
        groups = ", ".join(f"WG{group}" for group in role.warpgroups)
        made.add_row(role.name, groups if role.warp is None else f"{groups} warp {role.warp}", str(role.registers))
    used = WARPGROUP_THREADS * sum(warps.registers)
    made.caption = f"{used:,} of {problem.plan.target.registers:,} registers of an SM"
    return made


def _memories(problem: Problem) -> list[Table]:
    plan = problem.plan
    return [_smem(problem), _tmem(plan.tmem)] if isinstance(plan, Plan) else [_smem(problem)]


def _smem(problem: Problem) -> Table:
    smem = problem.plan.smem
    made = _regions(f"Shared memory, {smem.size:,} of {problem.plan.target.smem_bytes:,} bytes", "bytes", smem.regions)
    also = " and the address of the TMEM allocation" if problem.plan.target.tmem_columns else ""
    made.caption = f"control: mbarriers{also}"
    return made


def _tmem(tmem: TmemPlan) -> Table:
    made = _regions(f"Tensor memory, {tmem.columns} columns of 128 lanes x 32 bit", "columns", tmem.regions)
    lies_over = tmem.p[0].start < tmem.s[0].end
    made.caption = "P aliases the upper half of its own S" if lies_over else "P lies beside S and O"
    if tmem.acc_scale:
        made.caption += "; acc_scale and row_sum, where they are here, scores that are in registers by then"
    return made


def _regions(title: str, unit: str, regions: Sequence[Region]) -> Table:
    made = output.table(title, "region", "from", "to", unit)
    for column in made.columns[1:]:
        column.justify = "right"
    for region in sorted(regions, key=lambda region: region.start):
        made.add_row(region.name, f"{region.start:,}", f"{region.end:,}", f"{region.size:,}")
    return made


def _barriers(problem: Problem) -> Table:
    counts = f"{problem.table.mbarriers} mbarriers, {problem.table.named_barriers} hardware named barriers"
    made = output.table(f"Barriers: {counts}", *render.COLUMNS)
    made.show_lines = True
    for edge in problem.table.edges:
        made.add_row(*render.edge_row(edge))
    return made
