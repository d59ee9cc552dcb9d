"""Control flow of a kernel: basic blocks, which of them dominate which, natural loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tirx_attn.analysis.listing import Line

ENTRY = 0


@dataclass(frozen=True)
class Graph:
    """Basic blocks in address order, the entry first, and the blocks that may follow each."""

    blocks: tuple[tuple[Line, ...], ...]
    successors: tuple[tuple[int, ...], ...]

    def start(self, block: int) -> int:
        """Address of a block's first instruction."""
        return self.blocks[block][0].address

    def end(self, block: int) -> int:
        """Address of a block's last instruction."""
        return self.blocks[block][-1].address


@dataclass(frozen=True)
class Loop:
    """A natural loop; all that share a header are one.

    Attributes:
        header: the block that every iteration starts with.
        latches: blocks that jump back to it.
        blocks: all of its blocks.
        always: blocks that every iteration runs: those that dominate all latches.
    """

    header: int
    latches: frozenset[int]
    blocks: frozenset[int]
    always: frozenset[int]


def graph(lines: Sequence[Line]) -> Graph:
    """Basic blocks of a kernel. A jump out of the listing leads nowhere."""
    addresses = {line.address for line in lines}
    starts = {lines[0].address}
    for line, following in pairwise(lines):
        if line.targets or not line.falls_through:
            starts.add(following.address)
    for line in lines:
        starts |= addresses.intersection(line.targets)
    blocks: list[list[Line]] = []
    for line in lines:
        if line.address in starts:
            blocks.append([])
        blocks[-1].append(line)
    number = {block[0].address: index for index, block in enumerate(blocks)}
    successors = []
    for index, block in enumerate(blocks):
        last = block[-1]
        next_blocks = {number[target] for target in last.targets if target in number}
        if last.falls_through and index + 1 < len(blocks):
            next_blocks.add(index + 1)
        successors.append(tuple(sorted(next_blocks)))
    return Graph(tuple(map(tuple, blocks)), tuple(successors))


def dominated(successors: Sequence[Iterable[int]]) -> dict[int, frozenset[int]]:
    """For each block that the entry reaches, the blocks it dominates: those that nothing reaches without it."""
    everything = _reach(successors, ENTRY)
    return {block: everything - _reach(successors, ENTRY, without=block) for block in everything}


def natural_loops(flow: Graph) -> list[Loop]:
    """All loops of the blocks that the entry reaches, in the order of their headers."""
    below = dominated(flow.successors)
    predecessors = _predecessors(flow, below)
    found = []
    for header in sorted(below):
        latches = below[header].intersection(predecessors[header])
        if latches:
            # Backwards from the latches: the header is the only way in.
            blocks = frozenset({header}).union(*(_reach(predecessors, latch, without=header) for latch in latches))
            always = frozenset(block for block in blocks if latches <= below[block])
            found.append(Loop(header, latches, blocks, always))
    return found


def on_the_way(flow: Graph, nest: Loop, inner: Loop) -> frozenset[int]:
    """Blocks of `nest` that an iteration of it which enters `inner` may run; `inner` lies in `nest`."""
    before = _reach(_predecessors(flow, nest.blocks), inner.header, without=nest.header)
    after = _reach(flow.successors, inner.header, without=nest.header)
    return (before | after | {nest.header}) & nest.blocks


def _predecessors(flow: Graph, among: Iterable[int]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in flow.blocks]
    for block in among:
        for successor in flow.successors[block]:
            found[successor].append(block)
    return found


def _reach(successors: Sequence[Iterable[int]], start: int, without: int | None = None) -> frozenset[int]:
    """Blocks on the ways out of `start` that do not touch `without`."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        block = waiting.pop()
        if block != without and block not in found:
            found.add(block)
            waiting.extend(successors[block])
    return frozenset(found)
