"""Figures of one role's loop."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tirx_attn.analysis import kinds, roles
from tirx_attn.analysis.listing import Line
from tirx_attn.analysis.roles import Body
from tirx_attn.config import TILE_KEYS

MMA_DEPTH = 16
"""Reduction length of one tcgen05.mma on 16-bit operands."""


@dataclass(frozen=True)
class RoleLoop:
    """Figures of one iteration of a loop, for one thread (in mma and load: for the one warp).

    Stalls are the cycles that the assembler makes the warp wait before its next instruction may issue. Their sum is a
    lower bound for one warp alone on its partition, not a time: waits for results and barriers come on top.

    Attributes:
        role: "softmax" or, with WGMMAs, "consumer"; "masked", "correction", "mma", "load", "other".
        start, end: addresses of the first instruction and of the last jump back.
        surrounds: start and end of the steady loop for a "masked" that is the loop nest around it less the inner loops;
            None for a loop of its own.
        tiles: tiles (one query tile, one key tile) in an iteration; 1 for load and other, whose code does not tell.
        instructions: between start and end; retries of waits, which lie out of line, are left out.
        always_instructions: those that every iteration runs.
        stalls: stall sum of `instructions`, in cycles.
        always_stalls: stall sum of `always_instructions`, in cycles.
        kinds: kind -> instructions, see `tirx_attn.analysis.kinds.KINDS`; without those that do not occur.
        elements: elements of P; 0 where the loop has no exponentials.
        emulated: exponentials on the FMA pipe, told by their addition that rounds down.
        rescales: exponentials beyond `elements`: those of the rescaling factors.
        p_arrivals: cycles from `start` to each arrival at an mbarrier after the first store of P to TMEM.
        phases: cycles before the first MUFU.EX2, from it to the last, from the last to the end; all before where there
            are none.
        always_p_arrivals, always_phases: the same without the instructions that only some iterations run; for a
            "masked" with several paths the ones to compare.
        ldtm_columns, sttm_columns: columns of TMEM that are loaded and stored.
        out_of_line: instructions of the loop that lie elsewhere.
    """

    role: str
    start: int
    end: int
    surrounds: tuple[int, int] | None
    tiles: float
    instructions: int
    always_instructions: int
    stalls: int
    always_stalls: int
    kinds: dict[str, int]
    elements: int
    emulated: int
    rescales: int
    p_arrivals: tuple[int, ...]
    phases: tuple[int, int, int]
    always_p_arrivals: tuple[int, ...]
    always_phases: tuple[int, int, int]
    ldtm_columns: int
    sttm_columns: int
    out_of_line: int

    @property
    def mufu(self) -> int:
        """Instructions of the MUFU pipe."""
        return self.kinds.get(kinds.EXP2, 0) + self.kinds.get(kinds.OTHER_MUFU, 0)

    @property
    def emulated_share(self) -> float:
        """Part of the elements' exponentials that the FMA pipe computes."""
        return self.emulated / self.elements if self.elements else 0.0

    def per_tile(self, figure: float) -> float:
        """A figure of an iteration for one tile."""
        return figure / self.tiles

    def to_dict(self) -> dict[str, object]:
        """The fields as a JSON-able dict."""
        made = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in made.items()}


def measure(body: Body, *, head_size: int, elements_per_tile: int) -> RoleLoop:
    """Figures of a loop's body. A thread computes `elements_per_tile` elements of P for a query tile and a key tile."""
    counts = kinds.count(line.instruction for line in body.lines)
    columns = {name: sum(_columns(line) for line in body.lines if line.name == name) for name in ("LDTM", "STTM")}
    exp2 = counts.get(kinds.EXP2, 0)
    has_rows = body.role in (roles.SOFTMAX, roles.CONSUMER, roles.MASKED)
    emulated = _emulated(body.lines) if has_rows else 0
    elements = roles.elements(body.lines) if has_rows else 0
    if has_rows and (body.surrounds or not elements):
        # Other values may be rounded in a loop nest, such as the output: as many whole tiles as there are exponentials.
        elements = max(1, (exp2 + emulated) // elements_per_tile) * elements_per_tile
    tiles = {
        roles.CORRECTION: columns["STTM"] / head_size,  # acc_scale may be loaded from TMEM too
        roles.MMA: counts.get(kinds.MMA, 0) * MMA_DEPTH / (head_size + TILE_KEYS),
    }.get(body.role, elements / elements_per_tile if has_rows else 1.0)
    return RoleLoop(
        role=body.role,
        start=body.start,
        end=body.end,
        surrounds=body.surrounds,
        tiles=tiles,
        instructions=len(body.lines),
        always_instructions=len(body.always),
        stalls=_stalls(body.lines),
        always_stalls=_stalls(body.always),
        kinds=counts,
        elements=elements,
        emulated=emulated,
        rescales=exp2 + emulated - elements if has_rows else 0,
        p_arrivals=_p_arrivals(body.lines) if has_rows else (),
        phases=_phases(body.lines),
        always_p_arrivals=_p_arrivals(body.always) if has_rows else (),
        always_phases=_phases(body.always),
        ldtm_columns=columns["LDTM"],
        sttm_columns=columns["STTM"],
        out_of_line=body.out_of_line,
    )


def _stalls(lines: Iterable[Line]) -> int:
    return sum(line.control.stall for line in lines)


def _emulated(lines: Iterable[Line]) -> int:
    """Exponentials whose polynomial starts with an addition that rounds down; a packed one serves two."""
    width = {"FADD": 1, "FFMA": 1, "FADD2": 2, "FFMA2": 2}
    return sum(width.get(line.name, 0) for line in lines if "RM" in line.opcode.split("."))


def _columns(line: Line) -> int:
    """Columns of a TMEM load or store of shape 32x32b."""
    found = re.search(r"\.x(\d+)", line.opcode)
    return int(found[1]) if found else 1


def _p_arrivals(lines: Iterable[Line]) -> tuple[int, ...]:
    clock, stored = 0, False
    found = []
    for line in lines:
        stored = stored or line.name == "STTM"
        if stored and line.opcode.startswith("SYNCS.ARRIVE"):
            found.append(clock)
        clock += line.control.stall
    return tuple(found)


def _phases(lines: Iterable[Line]) -> tuple[int, int, int]:
    clock = 0
    starts = []
    for line in lines:
        if kinds.kind_of(line.instruction) == kinds.EXP2:
            starts.append(clock)
        clock += line.control.stall
    if not starts:
        return clock, 0, 0
    return starts[0], starts[-1] - starts[0], clock - starts[-1]
