"""What a replay shows: when units are busy, which waits block, and the chain of moments that decides the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Moment = tuple[float, Any, str]
"""(time, the moment that decided it, what passed in between)."""

START: Moment = (0.0, None, "")

TENSOR, MUFU, ISSUE, TMA = "tensor pipe", "MUFU", "issue slots", "TMA"
UNITS = (TENSOR, MUFU, ISSUE, TMA)
"""Units that steps share: of the SM, but MUFU and issue slots are those of one partition."""


@dataclass(frozen=True)
class Stall:
    """A wait that blocked.

    Attributes:
        role: who waited.
        edge: for what.
        start, end: from when to when, in cycles.
        by: who let it go, a role or a unit: the last to arrive.
        released: when that was.
    """

    role: str
    edge: str
    start: float
    end: float
    by: str = ""
    released: float = 0.0


class Span(NamedTuple):
    """What a role or a unit does besides waiting for an edge.

    Attributes:
        lane: the role, TENSOR, TMA or TMA_STORE.
        what: one of the names below.
        start, end: from when to when, in cycles.
        detail: of a role's instructions, the step that they lead to; of a product, what it writes; of a load, its edge.
        role: of a unit's span, who asked for it.
        queued: cycles of it in which a role's instructions queued for MUFU or an issue slot.
        done: of a unit's span, when its result is there: later than its end by a latency.
    """

    lane: str
    what: str
    start: float
    end: float
    detail: str = ""
    role: str = ""
    queued: float = 0.0
    done: float = 0.0


TMA_STORE = "TMA store"
INSTRUCTIONS, EXPONENTIALS = "instructions", "exponentials"
TMEM_READ, TMEM_WRITE, DRAIN = "TMEM read", "TMEM write", "waits for its store"
PRODUCT, LOAD, STORE = "product", "load", "store"


@dataclass
class Timeline:
    """What a replay shows. Times are cycles.

    Attributes:
        end: when the CTA ended.
        stalls: waits that blocked, in the order in which they ended.
        busy: unit -> (start, end) of each use; UNITS says which.
        spans: what roles do, in the order in which it ended; with the stalls it is all of a role's time. Also the uses
            of the tensor pipe and of TMA.
        last: the moment that ended the CTA.
    """

    end: float = 0.0
    stalls: list[Stall] = field(default_factory=list)
    busy: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {unit: [] for unit in UNITS})
    spans: list[Span] = field(default_factory=list)
    last: Moment = START

    def use(self, unit: str, start: float, end: float) -> float:
        """Share of a window in which a unit is busy."""
        inside = sum(max(0.0, min(b, end) - max(a, start)) for a, b in self.busy[unit])
        return inside / (end - start) if end > start else 0.0

    def path(self, start: float, end: float) -> dict[str, float]:
        """Cycles by what passed, along the chain of moments that decided the end, within a window."""
        found: dict[str, float] = {}
        moment: Any = self.last
        while moment[1] is not None:
            time, before, label = moment
            inside = min(time, end) - max(before[0], start)
            if inside > 0:
                found[label] = found.get(label, 0.0) + inside
            moment = before
        return found
