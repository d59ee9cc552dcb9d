"""Roles, edges and memory of a plan as data to draw: lanes, rows, regions."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from tirx_attn.barriers import render
from tirx_attn.barriers.protocol import Edge, Protocol
from tirx_attn.family import AnyPlan
from tirx_attn.schedule.parts import WARPGROUP_THREADS, Region, Role

MAX_PERMUTED = 7
"""Roles whose order is searched; more keep the plan's."""


def protocol(plan: AnyPlan, table: Protocol) -> dict[str, Any]:
    """Roles in the order of their lanes, and edges in the order of the table."""
    lanes = lane_order([role.name for role in plan.warps.roles], table)
    edges = []
    for edge, data in zip(table.edges, render.to_dict(table)["edges"], strict=True):
        _, kind, arrives, waits, _, start = render.edge_row(edge)
        shown = {"kind_slots": kind, "arrives": arrives, "waits": waits, "at_start": start, "counts": counts(edge)}
        edges.append({**data, **shown})
    return {
        "roles": [_role(plan.warps[name]) for name in lanes],
        "edges": edges,
        "mbarriers": table.mbarriers,
        "named_barriers": table.named_barriers,
    }


def lane_order(roles: list[str], table: Protocol) -> list[str]:
    """Roles in the order that keeps arrows shortest; of two such orders the one in which TMA's role is further left."""
    arrows = [(p.role, c) for edge in table.edges for p in edge.producers for c in edge.consumers]
    sources = [p.role for edge in table.edges if edge.tx_bytes for p in edge.producers]

    def length(order: list[str]) -> tuple[int, int]:
        return sum(abs(order.index(a) - order.index(b)) for a, b in arrows), sum(map(order.index, sources))

    return min(map(list, permutations(roles)), key=length) if len(roles) <= MAX_PERMUTED else roles


def counts(edge: Edge) -> str:
    """What completes a phase, in short: arrivals by role, bytes, threads that wait."""
    parts = [f"{p.arrivals} {p.role}" for p in edge.producers]
    parts += [f"{edge.tx_bytes // 1024} KiB"] if edge.tx_bytes else []
    parts += [f"{edge.count - sum(p.arrivals for p in edge.producers)} waiting"] if edge.kind.name == "NAMED" else []
    return " + ".join(parts)


def _role(role: Role) -> dict[str, Any]:
    groups = ", ".join(f"WG{group}" for group in role.warpgroups)
    where = groups if role.warp is None else f"{groups} warp {role.warp}"
    return {"name": role.name, "where": where, "warpgroups": list(role.warpgroups), "registers": role.registers}


def memories(plan: AnyPlan, table: Protocol) -> list[dict[str, Any]]:
    """Maps of shared memory, of tensor memory where there is one, and of the register file."""
    smem = {
        "key": "smem",
        "title": "Shared memory",
        "unit": "bytes",
        "limit": plan.target.smem_bytes,
        "regions": _regions(plan.smem.regions, table, plan.schedule),
    }
    tmem = getattr(plan, "tmem", None)
    maps = [smem]
    if tmem is not None:
        regions = _regions(tmem.regions, table, plan.schedule)
        maps.append(
            {"key": "tmem", "title": "Tensor memory", "unit": "columns", "limit": tmem.columns, "regions": regions}
        )
    return [*maps, registers(plan)]


def registers(plan: AnyPlan) -> dict[str, Any]:
    """The register file by warpgroup."""
    regions, start = [], 0
    for group, budget in enumerate(plan.warps.registers):
        roles = [role.name for role in plan.warps.roles if group in role.warpgroups]
        size = WARPGROUP_THREADS * budget
        note = f"{', '.join(roles)}: {budget} a thread"
        place = {"name": f"WG{group}", "start": start, "size": size, "layer": 0, "over": "", "slots": 1}
        regions.append({**place, "note": note})
        start += size
    return {
        "key": "registers",
        "title": "Register file",
        "unit": "registers",
        "limit": plan.target.registers,
        "regions": regions,
    }


def _regions(regions: tuple[Region, ...], table: Protocol, schedule: Any) -> list[dict[str, Any]]:
    """Regions by start. What lies over an earlier one of the plan is in a layer of its own.

    A region has as many slots as a knob says, else as its edges have stages.
    """
    made: list[dict[str, Any]] = []
    placed: list[Region] = []
    for region in regions:
        if not region.size:
            continue
        under = [other.name for other in placed if region.start < other.end and other.start < region.end]
        placed.append(region)
        edges = edges_of(region.name, table)
        of_a_stage = region.name[-1].isdigit()
        stages = [
            edge.stages for edge in edges if "." in edge.name and not of_a_stage and region.size % edge.stages == 0
        ]
        slots = getattr(schedule, f"{region.name}_stages", max(stages, default=1))
        made.append(
            {
                "name": region.name,
                "start": region.start,
                "size": region.size,
                "layer": int(bool(under)),
                "over": ", ".join(under),
                "slots": slots,
                "note": ", ".join(edge.name for edge in edges),
            }
        )
    return sorted(made, key=lambda region: (region["layer"], region["start"]))


def edges_of(region: str, table: Protocol) -> list[Edge]:
    """Edges named after a region: those of its pipeline, and of a stage in tensor memory single ones too."""
    name = region.rstrip("0123456789")
    own = [edge for edge in table.edges if edge.name.partition(".")[0] == name]
    prefixed = [edge for edge in table.edges if edge.name.startswith(f"{name}_") and edge not in own]
    return own + [edge for edge in prefixed if ("." in edge.name) == (name == region)]
