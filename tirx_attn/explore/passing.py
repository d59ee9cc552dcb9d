"""Where the time of a task goes: spans by lane, cycles by role, waits by edge and by who ended them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tirx_attn.analysis.timeline import Prediction
from tirx_attn.analysis.timeline import moments as m
from tirx_attn.analysis.timeline.model import steady
from tirx_attn.analysis.timeline.moments import Span, Stall, Timeline

WAIT = "wait"
UNIT_LANES = (m.TENSOR, m.TMA, m.TMA_STORE)
COLUMNS = (m.INSTRUCTIONS, m.EXPONENTIALS, "queue for MUFU or issue", "tensor memory", "own stores", "waits")
"""What a role's cycles are divided into."""

ALIKE = ("what", "detail", "role", "edge", "by")
"""What pieces of one span have in common."""

_QUEUE, _WAITS = 2, 5
_COLUMN = {m.INSTRUCTIONS: 0, m.EXPONENTIALS: 1, m.TMEM_READ: 3, m.TMEM_WRITE: 3, m.DRAIN: 4}


def passing(timeline: Timeline, prediction: Prediction, blocks: int, protocol: dict[str, Any]) -> dict[str, Any]:
    """The timeline of one task as data.

    Args:
        timeline: of a task of so many key blocks.
        prediction: whose steady state is that of the timeline.
        protocol: roles in the order of their lanes.
    """
    start, end, inside = steady(timeline, blocks)
    order = [role["name"] for role in protocol["roles"]]
    walkers = sorted({s.lane for s in timeline.spans} - set(UNIT_LANES) | {s.role for s in timeline.stalls})
    roles = sorted((w for w in walkers if base(w) in order), key=lambda w: (order.index(base(w)), w))
    units = [lane for lane in UNIT_LANES if any(span.lane == lane for span in timeline.spans)]
    return {
        "end": timeline.end,
        "blocks": blocks,
        "steady": {"start": start, "end": end, "blocks": inside},
        "lanes": [*roles, *units],
        "roles": roles,
        "without_role": [walker for walker in walkers if walker not in roles],
        "spans": sorted(_spans(timeline), key=lambda span: (span["start"], span["end"])),
        "columns": list(COLUMNS),
        "cycles": {role: cycles(timeline, role, start, end, inside) for role in roles},
        "waits": [
            {"role": row.role, "edge": row.edge, "cycles": row.cycles, "share": row.share,
             "by": released_by(timeline, row.role, row.edge, start, end)}
            for row in prediction.stalls
        ],
    }  # fmt: skip


def base(walker: str) -> str:
    """Name of a role without the number of its warpgroup."""
    return walker.partition(" ")[0]


def cycles(timeline: Timeline, role: str, start: float, end: float, blocks: int) -> list[float]:
    """Cycles per key block of a role within a window, by COLUMNS; their sum is the window's."""
    found = [0.0] * len(COLUMNS)
    for span in timeline.spans:
        if span.lane != role:
            continue
        share = _inside(span, start, end) / (span.end - span.start) if span.end > span.start else 0.0
        found[_COLUMN[span.what]] += share * (span.end - span.start - span.queued)
        found[_QUEUE] += share * span.queued
    found[_WAITS] = sum(_inside(stall, start, end) for stall in timeline.stalls if stall.role == role)
    return [value / blocks for value in found]


def released_by(timeline: Timeline, role: str, edge: str, start: float, end: float) -> dict[str, float]:
    """Who ended the waits of a role on an edge -> share of their cycles within a window, longest first."""
    found: dict[str, float] = {}
    for stall in timeline.stalls:
        if (stall.role, stall.edge) == (role, edge) and _inside(stall, start, end) > 0:
            found[stall.by] = found.get(stall.by, 0.0) + _inside(stall, start, end)
    total = sum(found.values())
    return {by: value / total for by, value in sorted(found.items(), key=lambda item: -item[1])}


def _inside(piece: Span | Stall, start: float, end: float) -> float:
    return max(0.0, min(piece.end, end) - max(piece.start, start))


def _spans(timeline: Timeline) -> Iterator[dict[str, Any]]:
    for span in timeline.spans:
        made = {"lane": span.lane, "start": span.start, "end": span.end, "what": span.what, "detail": span.detail}
        if span.what == m.PRODUCT:
            made["what"] = product(span.detail)
        if span.role:
            made |= {"role": span.role, "done": span.done}
        if span.queued:
            made["queued"] = span.queued
        yield made
    for stall in timeline.stalls:
        yield {"lane": stall.role, "start": stall.start, "end": stall.end, "what": WAIT, "edge": stall.edge,
               "by": stall.by, "released": stall.released}  # fmt: skip


def merged(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Spans in which alike ones that follow each other on a lane without a gap are one, of so many `pieces`."""
    made: list[dict[str, Any]] = []
    last: dict[str, dict[str, Any]] = {}
    for span in spans:
        before = last.get(span["lane"])
        alike = before is not None and all(before.get(key) == span.get(key) for key in ALIKE)
        if before is not None and alike and before["end"] == span["start"]:
            before["end"], before["pieces"] = span["end"], before["pieces"] + 1
            before |= {key: span[key] for key in ("released", "done") if key in span}
            if "queued" in span or "queued" in before:
                before["queued"] = before.get("queued", 0.0) + span.get("queued", 0.0)
        else:
            last[span["lane"]] = {**span, "pieces": 1}
            made.append(last[span["lane"]])
    return made


def product(writes: str) -> str:
    """Name of a product by what it writes: S or O."""
    words = re.split(r"[^a-z]+", writes.lower())
    return "QKᵀ" if "s" in words else "PV" if "o" in words else f"product {writes}"
