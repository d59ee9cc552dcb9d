"""`tirx-attn plan`: schedule, launch, memory maps, registers and barriers of a problem. Loads no TVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rich.table import Table

from tirx_attn.barriers import render
from tirx_attn.commands import output
from tirx_attn.commands.arguments import (
    ArchOption,
    CausalOption,
    JsonOption,
    Problem,
    ScheduleOption,
    ShapeOption,
    parse_problem,
)
from tirx_attn.commands.wrap import command
from tirx_attn.schedule import Schedule
from tirx_attn.schedule.plan import WARPGROUP_THREADS, Region


@command
def plan(
    shape: ShapeOption,
    causal: CausalOption = False,
    arch: ArchOption = "sm_100a",
    schedule: ScheduleOption = None,
    as_json: JsonOption = False,
) -> bool:
    """Show schedule, grid, memory maps, registers and barriers.

    Example: tirx-attn plan --shape 1,4096,4096,32,8,128 --causal
    """
    problem = parse_problem(shape, causal, arch, schedule)
    if as_json:
        output.print_json(plan_document(problem))
        return True
    console = output.stdout()
    console.print(f"[bold]{problem.title}[/bold] on {problem.plan.target.name} ({problem.arch})\n")
    for made in (
        _launch(problem),
        _knobs(problem),
        _roles(problem),
        _smem(problem),
        _tmem(problem),
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
        "plan": problem.plan.to_dict(),
        "protocol": render.to_dict(problem.table),
    }


def _launch(problem: Problem) -> Table:
    plan = problem.plan
    made = output.table("Launch", "what", "value")
    per_cta = f"up to {-(-plan.tasks // plan.grid)} per CTA" if plan.is_persistent else "one per CTA, longest first"
    made.add_row("grid", f"{plan.grid} CTAs of {plan.warps.threads} threads, one at a time per SM")
    made.add_row("tasks", f"{plan.tasks} (batch, K/V head, pair of query tiles), {per_cta}")
    made.add_row("query tile", f"{plan.tiles.tokens_per_tile} tokens x {plan.config.ratio} heads of one K/V head")
    made.add_row("key blocks", f"{plan.tiles.key_blocks(plan.tiles.m_blocks - 1)} in the longest task, last to first")
    if not plan.is_persistent:
        made.add_row("in L2", f"K and V of {plan.l2_heads} (batch, K/V head) at a time")
    made.add_row("work", f"{plan.config.flops / 1e9:,.3f} Gflop in the two products")
    return made


def _knobs(problem: Problem) -> Table:
    made = output.table(f"Schedule: tuning row {problem.row.id}, {problem.row.regime}", "knob", "value", "from")
    for field in fields(Schedule):
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


def _smem(problem: Problem) -> Table:
    smem = problem.plan.smem
    made = _regions(f"Shared memory, {smem.size:,} of {problem.plan.target.smem_bytes:,} bytes", "bytes", smem.regions)
    made.caption = "control: mbarriers and the address of the TMEM allocation"
    return made


def _tmem(problem: Problem) -> Table:
    tmem = problem.plan.tmem
    made = _regions(f"Tensor memory, {tmem.columns} columns of 128 lanes x 32 bit", "columns", tmem.regions)
    made.caption = "P aliases the upper half of its own S"
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
