"""Colours by meaning, as CSS variables. None is the only carrier: kinds have dashes, edges numbers, bars names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tirx_attn.analysis.timeline.model import FULL

KINDS: dict[str, tuple[str, list[int]]] = {
    "TMA mbarrier": ("var(--kind-0)", [1, 0]),
    "tcgen05 mbarrier": ("var(--kind-1)", [8, 3]),
    "mbarrier": ("var(--kind-2)", [4, 3]),
    "hardware named barrier": ("var(--kind-3)", [1, 3]),
}
"""Kind of an edge -> colour and dashes of its arrow."""

BUSY: dict[str, tuple[str, str]] = {
    "instructions": ("var(--busy-0)", "in"),
    "exponentials": ("var(--busy-1)", "exp"),
    "QKᵀ": ("var(--busy-2)", "QK"),
    "PV": ("var(--busy-3)", "PV"),
    "TMEM read": ("var(--busy-4)", "r"),
    "TMEM write": ("var(--busy-4)", "w"),
    "load": ("var(--busy-5)", "ld"),
    "store": ("var(--busy-5)", "st"),
    "waits for its store": ("var(--busy-5)", "st"),
}
"""What a lane does -> colour of its bar, and its name in few letters."""

EDGES = 8
"""Colours for edges that are waited for; further ones share a grey."""


@dataclass(frozen=True)
class Colours:
    """Colours of edges by their rank, and their numbers in the table of edges."""

    rank: dict[str, int]
    number: dict[str, int]

    def of(self, edge: str) -> str:
        """A CSS value."""
        rank = self.rank.get(edge, EDGES)
        return f"var(--edge-{rank})" if rank < EDGES else "var(--edge-other)"

    def short(self, edge: str) -> str:
        """The number of an edge; nothing for what is not in the table."""
        return str(self.number.get(edge, ""))


def colours(sides: list[dict[str, Any]], numbers: dict[str, int]) -> Colours:
    """Colours of the edges of all sides: those that are waited for longest, in the steady state, come first.

    Behind them come those on which a role is idle nearly all of the time.
    """
    total: dict[str, float] = {edge["name"]: 0.0 for side in sides for edge in side["protocol"]["edges"]}
    idle = dict.fromkeys(total, True)
    for row in (row for side in sides for row in side["time"]["waits"]):
        total[row["edge"]] = total.get(row["edge"], 0.0) + row["cycles"]
        idle[row["edge"]] = idle.get(row["edge"], True) and row["share"] > FULL
    order = sorted(total, key=lambda edge: (idle[edge], -total[edge]))
    return Colours({edge: rank for rank, edge in enumerate(order)}, numbers)
