"""Which loops of a kernel are the roles' inner loops, and what an iteration of each runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tirx_attn.analysis import kinds
from tirx_attn.analysis.flow import Graph, Loop, graph, natural_loops, on_the_way
from tirx_attn.analysis.listing import Line

SOFTMAX, CONSUMER, MASKED, CORRECTION, MMA, LOAD, OTHER = (
    "softmax", "consumer", "masked", "correction", "mma", "load", "other",
)  # fmt: skip
ROLES = (SOFTMAX, CONSUMER, MASKED, CORRECTION, MMA, LOAD)
"""Roles in the order of the tables; what else loops is `OTHER`."""

ROW_EXP2 = 16
"""MUFU.EX2 from which on a loop is taken to compute rows of P."""

BLOCK_EXP2 = 64
"""MUFU.EX2 from which on code around the steady loop is taken to compute a block of P."""

RETRY_INSTRUCTIONS = 16
"""Loops as short as that which try a wait, sleep or ask for registers are left out."""


@dataclass(frozen=True)
class Body:
    """Instructions of one iteration, in address order.

    Attributes:
        role: one of `ROLES`, or `OTHER`.
        start, end: addresses of its first instruction and of its last jump back.
        lines: what lies between them and belongs to the loop.
        always: those of `lines` that every iteration runs.
        out_of_line: instructions of the loop that the assembler put elsewhere: retries of waits.
        surrounds: start and end of the steady loop, for a body that is the loop nest around it without inner loops.
    """

    role: str
    start: int
    end: int
    lines: tuple[Line, ...]
    always: tuple[Line, ...]
    out_of_line: int
    surrounds: tuple[int, int] | None = None


def role_bodies(lines: Sequence[Line]) -> list[Body]:
    """The innermost loops of a kernel by address; retry loops and traps do not count.

    Of the loops with a block's exponentials the one with the fewest instructions for an element is "softmax", or
    "consumer" where it issues WGMMAs; the others are "masked". Where there are no others, "masked" is the code around
    that steady loop: of the smallest loop nest that holds the exponentials of another block, all that an iteration
    which comes to the steady loop may run, without the nest's inner loops. A block that is computed outside of all
    loops has no entry.
    """
    flow = graph(lines)
    last_exit = max((line.address for line in lines if line.name == "EXIT"), default=0)
    every = natural_loops(flow)
    real = [(loop, body) for loop in every if not _is_retry(body := _body(flow, loop, last_exit))]
    inner = [(loop, body) for loop, body in real if not any(_holds(loop, other) for other, _ in real)]
    found = [replace(body, role=_role(body.lines)) for _, body in inner]
    rows = [index for index, body in enumerate(found) if body.role in (SOFTMAX, CONSUMER)]
    if rows:
        steady = min(rows, key=lambda index: len(found[index].lines) / max(1, elements(found[index].lines)))
        for index in rows:
            if index != steady:
                found[index] = replace(found[index], role=MASKED)
        if len(rows) == 1:
            found += _around(flow, every, inner, inner[steady][0], last_exit)
    return sorted(found, key=lambda body: (body.start, body.end))


def exponentials(lines: Iterable[Line]) -> int:
    """MUFU.EX2 of one thread."""
    return sum(kinds.kind_of(line.instruction) == kinds.EXP2 for line in lines)


def elements(lines: Iterable[Line]) -> int:
    """Elements of P of one thread: they are rounded in pairs."""
    return 2 * sum(line.name == "F2FP" for line in lines)


def _body(flow: Graph, loop: Loop, last_exit: int, only: frozenset[int] | None = None) -> Body:
    start = flow.start(loop.header)
    ends = [flow.end(latch) for latch in loop.latches]
    # Behind the last EXIT stands what was moved out of line; a jump back from there does not end the body.
    end = max([address for address in ends if address <= last_exit] or ends)
    blocks = sorted(loop.blocks if only is None else only)
    inline = [block for block in blocks if start <= flow.start(block) <= end]
    return Body(
        role=OTHER,
        start=start,
        end=end,
        lines=tuple(line for block in inline for line in flow.blocks[block]),
        always=tuple(line for block in inline if block in loop.always for line in flow.blocks[block]),
        out_of_line=sum(len(flow.blocks[block]) for block in set(blocks).difference(inline)),
    )


def _around(flow: Graph, every: list[Loop], inner: list[tuple[Loop, Body]], steady: Loop, last_exit: int) -> list[Body]:
    """The code around the steady loop that computes a block, if there is any."""
    apart = frozenset[int]().union(*(loop.blocks for loop, _ in inner))
    core = _body(flow, steady, last_exit)
    nests = [loop for loop in every if _holds(loop, steady)]
    for nest in sorted(nests, key=lambda loop: len(loop.blocks)):
        rest = _body(flow, nest, last_exit, only=on_the_way(flow, nest, steady) - apart)
        if exponentials(rest.lines) >= BLOCK_EXP2:
            return [replace(rest, role=MASKED, surrounds=(core.start, core.end))]
    return []


def _holds(loop: Loop, other: Loop) -> bool:
    return other is not loop and other.header in loop.blocks


def _is_retry(body: Body) -> bool:
    if len(body.lines) == 1 and body.lines[0].name == "BRA":
        return True
    retries = ("SYNCS.PHASECHK", "NANOSLEEP", "USETMAXREG")
    return len(body.lines) <= RETRY_INSTRUCTIONS and any(line.opcode.startswith(retries) for line in body.lines)


def _role(lines: Sequence[Line]) -> str:
    counts = kinds.count(line.instruction for line in lines)
    if counts.get(kinds.EXP2, 0) >= ROW_EXP2:
        return CONSUMER if "HGMMA" in counts else SOFTMAX
    if kinds.MMA in counts:
        return MMA
    if "UTMALDG" in counts:
        return LOAD
    return CORRECTION if "LDTM" in counts and "STTM" in counts else OTHER
