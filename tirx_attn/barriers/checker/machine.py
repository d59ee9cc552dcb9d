"""Playing a skeleton: all warps of a CTA run forward together until they end or wait for ever."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator

import numpy as np

from tirx_attn.barriers.checker.memory import TMA, TMA_SLOTS
from tirx_attn.barriers.checker.products import Products
from tirx_attn.barriers.checker.signals import Fatal
from tirx_attn.barriers.checker.translate import Skeleton


class Machine(Products):
    """State of one CTA. The skeleton calls its methods.

    Args:
        skeleton: the translated PrimFunc.
        role_of: role of a warp, as printed.
        branch: outcome of a branch on data: (warp, site, how often the warp branched) -> taken.
        edge_name, barrier_name: printed names of an edge attribute and of a named barrier's number.
    """

    def __init__(
        self,
        skeleton: Skeleton,
        role_of: Callable[[int], str],
        branch: Callable[[int, int, int], bool],
        edge_name: Callable[[str], str],
        barrier_name: Callable[[int], str],
    ):
        super().__init__(skeleton, role_of, edge_name, barrier_name)
        self.branch = branch
        self.threads = 32 * self.warps
        self.registers: dict[int, list[int]] = {}
        self.ended = False
        self.chosen = [0] * self.warps
        self.passed: Counter[tuple[int, bool, int]] = Counter()
        """(site of a branch or a loop, whether the warp went in, warp) -> how often."""

    def play(self, cta: int, limit: int) -> bool:
        """Run all warps to their end. False where they cannot get there; `blocked` then says who waits for what."""
        programs: list[Iterator[None]] = [self.skeleton.program(self, warp, cta) for warp in range(self.warps)]
        self.ready = deque(range(self.warps))
        done = 0
        while self.ready:
            warp = self.ready.popleft()
            self.blocked.pop(warp, None)
            try:
                next(programs[warp])
            except StopIteration:
                done += 1
            else:
                if warp not in self.blocked:
                    self.ready.append(warp)
            if self.events > limit:
                raise Fatal(f"no end after {limit} events")
        self.ended = done == self.warps
        return self.ended

    def tma_load(
        self, warp: int, region: int, starts: tuple[int, ...], edge: str, slot: int, size: int, site: int
    ) -> None:
        self.tick(warp)
        unit = TMA + self.tma_units.setdefault((edge, slot), len(self.tma_units)) % TMA_SLOTS
        self.issued[unit] += 1
        number = self.flying[unit, site] = int(self.issued[unit])
        cells = self.skeleton.regions[region].cells(starts)
        self._access(cells, unit, number, self.seen[warp], True, True, site)
        state = self.slots[edge, slot]
        self._need_turn(warp, edge, slot, unit, site)
        state.evidence.append((unit, number, warp, site))
        state.bytes -= size
        np.maximum(state.clock, self.seen[warp], out=state.clock)
        state.clock[unit] = self.issued[unit]
        if state.pending == 0:
            self._complete(edge, slot, site)

    def setmaxnreg(self, warp: int, registers: int) -> None:
        self.tick(warp)
        self.registers.setdefault(warp, []).append(registers)

    def choose(self, warp: int, site: int) -> bool:
        self.chosen[warp] += 1
        return self.went(warp, site, self.branch(warp, site, self.chosen[warp]))

    def went(self, warp: int, site: int, condition: object) -> bool:
        """Note which way a branch goes."""
        taken = bool(condition)
        self.passed[site, taken, warp] += 1
        return taken

    def loop(self, warp: int, site: int, first: int, end: int) -> range:
        """Note whether a loop is entered."""
        self.went(warp, site, first < end)
        return range(first, end)
