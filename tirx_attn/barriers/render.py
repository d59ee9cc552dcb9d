"""The protocol table for people: Markdown, a Mermaid graph, JSON-able data. docs/barriers.md is made of these."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from tirx_attn.barriers.protocol import Edge, Kind, Protocol
from tirx_attn.schedule.parts import Warps
from tirx_attn.targets import Target

COLUMNS = ("edge", "kind x slots", "arrives (count)", "waits", "true after the wait", "at start")


def edge_row(edge: Edge) -> tuple[str, ...]:
    """Cells of one edge, in the order of COLUMNS."""
    arrivals = "; ".join(f"{p.role} {p.arrivals}: {p.signal}" for p in edge.producers)
    total = f" = {edge.count}" if len(edge.producers) > 1 or edge.kind is Kind.NAMED else ""
    waits = f" + {edge.waiting} waiting" if edge.kind is Kind.NAMED else ""
    tx = f" + {edge.tx_bytes} bytes" if edge.tx_bytes else ""
    return (
        edge.name,
        f"{edge.kind.value} x{edge.stages}",
        arrivals + tx + waits + total,
        ", ".join(edge.consumers),
        edge.protects,
        start_state(edge),
    )


def start_state(edge: Edge) -> str:
    """What holds before the first task, in words."""
    if edge.credit and edge.free_stages:
        return f"{edge.credit} arrives once on stage {', '.join(map(str, edge.free_stages))}"
    if edge.credit:
        return f"{edge.credit} arrives once"
    if len(edge.free_stages) == edge.stages:
        return "free"
    if edge.free_stages:
        return f"stage {', '.join(map(str, edge.free_stages))} free"
    return "-"


def to_markdown(table: Protocol) -> str:
    """The table as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(edge_row(edge)) + " |" for edge in table.edges]
    return "\n".join(lines) + "\n"


def to_mermaid(table: Protocol) -> str:
    """The table as a Mermaid graph: roles are nodes, an edge runs from who arrives to who waits."""
    lines = ["graph LR"]
    for edge in table.edges:
        for producer in edge.producers:
            for consumer in edge.consumers:
                lines.append(f'    {producer.role} -- "{edge.name} {producer.arrivals}" --> {consumer}')
    return "\n".join(lines) + "\n"


def to_dict(table: Protocol) -> dict[str, Any]:
    """The table as JSON-able data."""
    return {
        "mbarriers": table.mbarriers,
        "named_barriers": table.named_barriers,
        "edges": [
            {
                "name": edge.name,
                "kind": edge.kind.value,
                "slots": edge.stages,
                "count": edge.count,
                "tx_bytes": edge.tx_bytes,
                "producers": [
                    {"role": p.role, "arrivals": p.arrivals, "signal": p.signal, "groups": p.groups}
                    for p in edge.producers
                ],
                "consumers": list(edge.consumers),
                "protects": edge.protects,
                "credit": edge.credit,
                "free_stages": list(edge.free_stages),
            }
            for edge in table.edges
        ],
    }


def declaration(warps: Warps, table: Protocol, target: Target) -> str:
    """What a PrimFunc says of itself: roles, edges and the limits they must keep, as JSON."""
    return json.dumps(
        {
            "roles": [asdict(role) for role in warps.roles],
            "protocol": to_dict(table),
            "registers": target.registers,
            "named_barriers": target.named_barriers,
        }
    )
