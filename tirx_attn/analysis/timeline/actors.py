"""State of a replay: slots of edges, products, and the warps that walk their programs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tirx_attn.analysis.timeline import trace as t
from tirx_attn.analysis.timeline.figures import Work
from tirx_attn.analysis.timeline.moments import START, Moment


@dataclass
class Slot:
    """An edge's slot, or a named barrier: what a phase still lacks, and when each one was complete, by whom."""

    count: int
    pending: int
    bytes: int = 0
    complete: list[Moment] = field(default_factory=list)
    by: list[str] = field(default_factory=list)
    waiting: list[Any] = field(default_factory=list)


@dataclass
class Product:
    """A product of a warp: its cycles, and who goes on behind it."""

    cycles: float
    moment: Moment
    writes: str
    is_done: bool = False
    done: Moment = START
    then: list[Callable[[Moment], None]] = field(default_factory=list)


class Actor:
    """A role's warp, where it stands, and what it has issued."""

    def __init__(self, role: str, program: Sequence[tuple[Work, t.Step]]):
        self.role, self.program = role, program
        self.moment: Moment = START
        self.queue: deque[Product] = deque()
        self.latest: Product | None = None
        self.groups: list[Product | None] = []
        self.started: Any = None
        self.stored: Moment = START
