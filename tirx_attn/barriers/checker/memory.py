"""Accesses of the play to shared and tensor memory, and the clocks that say what is ordered before them.

Every warp and every asynchronous unit (its tcgen05.ld and tcgen05.st, its MMA pipe, each TMA slot, its TMA stores) has
a component of the clock. An access is ordered after another one when the component of the unit that made the earlier
one has reached its number by then. What must be done to publish an access to another proxy is what advances the
component: wait::ld / wait::st and tcgen05.fence::before_thread_sync for TMEM, the async-proxy fence for shared memory
read by TMA; and tcgen05.fence::after_thread_sync lets a warp's tcgen05 operations see what it learned at its waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tirx_attn.barriers.checker.tir import MAX_WARPS, TMEM_CELL_COLUMNS, TMEM_QUARTERS
from tirx_attn.barriers.checker.translate import Skeleton

# Components of a clock. Those from TCGEN on are TMEM accesses, which a fence must carry over.
ASYNC = MAX_WARPS
STORE = 2 * MAX_WARPS
TMA = 3 * MAX_WARPS
TMA_SLOTS = 32
TCGEN = TMA + TMA_SLOTS
LD, ST, MMA = TCGEN, TCGEN + MAX_WARPS, TCGEN + 2 * MAX_WARPS
SIZE = MMA + MAX_WARPS


@dataclass
class Finding:
    """A fault of the protocol.

    Attributes:
        kind: "table", "allocation", "operand", "registers", "over-arrival", "race", "aliased phase", "early arrival",
            "first wait", "in flight", "bytes", "hang" or "deadlock".
        edge: edge at fault ("" where none is).
        role: role at fault.
        message: the counterexample; its first line names edge, role, wait or access, slot and phase.
        step, roles: of a race, when the first access was made, and who made the two.
        fills: of a race with a TMA load, the edge on which the load completes, as an attribute name.
    """

    kind: str
    edge: str
    role: str
    message: str
    step: int = 0
    roles: tuple[str, str] = ("", "")
    fills: str = ""

    def to_dict(self) -> dict[str, str]:
        """Kind, edge, role and message."""
        return {"kind": self.kind, "edge": self.edge, "role": self.role, "message": self.message}


class Memory:
    """What the warps of one CTA have read and written."""

    def __init__(self, skeleton: Skeleton, role_of: Callable[[int], str]):
        self.skeleton, self.role_of, self.sites = skeleton, role_of, skeleton.sites
        self.warps = skeleton.warps
        self.findings: list[Finding] = []
        self.reported: set[tuple[Any, ...]] = set()
        self.events = 0
        self.ticks = [0] * self.warps
        self.seen = [np.zeros(SIZE, np.int64) for _ in range(self.warps)]
        """Per warp: what it knows of every unit, and what it has published of its own."""
        self.tcgen = [np.zeros(SIZE - TCGEN, np.int64) for _ in range(self.warps)]
        """Per warp: the TMEM accesses that its tcgen05 operations come after."""
        self.pipes = [np.zeros(SIZE, np.int64) for _ in range(self.warps)]
        self.issued = np.zeros(SIZE, np.int64)
        self.flying: dict[tuple[int, int], int] = {}
        """(unit, site) -> number of the last access to shared memory that an asynchronous unit made from there."""
        self.bulk: list[list[int]] = [[] for _ in range(self.warps)]
        """Per warp: the last TMA store of each of its bulk groups."""
        self.cells: dict[Any, tuple[tuple[int, int, int, int] | None, dict[int, tuple[int, int, int]]]] = {}
        """cell -> (unit, number, site, step) of the last write; unit -> (number, site, step) of the reads since."""
        self.loading: list[set[str]] = [set() for _ in range(self.warps)]
        self.tma_units: dict[tuple[str, int], int] = {}
        self.allocated = False
        self.born = (0, 0)
        """Warp that allocated tensor memory, and when."""

    def report(self, kind: str, edge: str, role: str, message: str, identity: Any) -> None:
        """Add a finding, once for each kind, edge and place."""
        if (kind, edge, identity) not in self.reported:
            self.reported.add((kind, edge, identity))
            self.findings.append(Finding(kind, edge, role, message))

    def tick(self, warp: int) -> int:
        """Number of a warp's next step."""
        self.events += 1
        number = self.ticks[warp] = self.ticks[warp] + 1
        self.seen[warp][warp] = number
        return number

    def _access(
        self, cells: Any, unit: int, number: int, clock: Any, is_write: bool, is_async: bool, site: int
    ) -> None:
        step = self.events
        touched = self.cells
        for cell in cells:
            found = touched.get(cell)
            last, reads = found or (None, {})
            if last is not None:
                by, at, where, when = last
                if clock[by + ASYNC if is_async and by < MAX_WARPS else by] < at:
                    self._race(cell, by, where, when, unit, site)
            if is_write:
                for by, (at, where, when) in reads.items():
                    if clock[by] < at:
                        self._race(cell, by, where, when, unit, site)
                touched[cell] = ((unit, number, site, step), {})
            else:
                reads[unit] = (number, site, step)
                if found is None:
                    touched[cell] = (None, reads)

    def _race(self, cell: Any, by: int, where: int, when: int, unit: int, site: int) -> None:
        first, second = self.unit_role(by), self.unit_role(unit)
        if ("race", where, site) not in self.reported:
            self.reported.add(("race", where, site))
            a, b = self.sites[where], self.sites[site]
            column = cell[1] // TMEM_QUARTERS * TMEM_CELL_COLUMNS
            place = f"TMEM column {column}" if cell[0] == "t" else f"byte {cell[1]}"
            message = f"{a.text} by {first}, then {b.text} by {second}, not ordered, at {place} ({a.where}; {b.where})"
            self.findings.append(Finding("race", "", second, message, when, (first, second), self.fills(unit)))

    def fills(self, unit: int) -> str:
        """Attribute of the edge on which a TMA load's unit completes; "" of another unit."""
        if not TMA <= unit < TCGEN:
            return ""
        return next(edge for (edge, _), number in self.tma_units.items() if number % TMA_SLOTS == unit - TMA)

    def unit_role(self, unit: int) -> str:
        """Role whose warp made an access."""
        if unit < TMA:
            return self.role_of(unit % MAX_WARPS)
        if unit < TCGEN:
            return "load"
        return self.role_of((unit - TCGEN) % MAX_WARPS)

    def read(self, warp: int, region: int, starts: tuple[int, ...], site: int) -> None:
        cells = self.skeleton.regions[region].cells(starts)
        self._access(cells, warp, self.tick(warp), self.seen[warp], False, False, site)

    def write(self, warp: int, region: int, starts: tuple[int, ...], site: int) -> None:
        cells = self.skeleton.regions[region].cells(starts)
        self._access(cells, warp, self.tick(warp), self.seen[warp], True, False, site)

    def fence_async(self, warp: int) -> None:
        self.seen[warp][ASYNC + warp] = self.seen[warp][warp]

    def tma_store(self, warp: int, region: int, starts: tuple[int, ...], site: int) -> None:
        self.tick(warp)
        unit = STORE + warp
        self.issued[unit] += 1
        cells = self.skeleton.regions[region].cells(starts)
        number = self.flying[unit, site] = int(self.issued[unit])
        self._access(cells, unit, number, self.seen[warp], False, True, site)

    def commit_stores(self, warp: int) -> None:
        self.bulk[warp].append(int(self.issued[STORE + warp]))

    def wait_stores(self, warp: int, left: int = 0) -> None:
        """Complete all bulk groups of the warp but its last `left`."""
        done = self.bulk[warp][: len(self.bulk[warp]) - left] if left < len(self.bulk[warp]) else []
        if done:
            self.seen[warp][STORE + warp] = max(int(self.seen[warp][STORE + warp]), done[-1])

    # -- tensor memory ----------------------------------------------------------------------------------------------

    def _tcgen_clock(self, warp: int) -> Any:
        clock = self.seen[warp].copy()
        clock[TCGEN:] = self.tcgen[warp]
        return clock

    def _need_tmem(self, warp: int, site: int) -> None:
        by, at = self.born
        if not self.allocated or self.seen[warp][by] < at:
            role = self.role_of(warp)
            self.report(
                "allocation", "", role,
                f"tensor memory is not known to be allocated: {self.sites[site]} by {role}",
                site,
            )  # fmt: skip

    def ld(self, warp: int, first: int, count: int, registers: str, site: int) -> None:
        self.tick(warp)
        self._need_tmem(warp, site)
        self.issued[LD + warp] += 1
        self.loading[warp].add(registers)
        cells = [("t", c * TMEM_QUARTERS + warp % 4) for c in range(first, first + count)]
        self._access(cells, LD + warp, int(self.issued[LD + warp]), self._tcgen_clock(warp), False, False, site)

    def st(self, warp: int, first: int, count: int, site: int) -> None:
        self.tick(warp)
        self._need_tmem(warp, site)
        self.issued[ST + warp] += 1
        cells = [("t", c * TMEM_QUARTERS + warp % 4) for c in range(first, first + count)]
        self._access(cells, ST + warp, int(self.issued[ST + warp]), self._tcgen_clock(warp), True, False, site)

    def wait_ld(self, warp: int) -> None:
        self.loading[warp].clear()
        self.tcgen[warp][LD - TCGEN + warp] = self.issued[LD + warp]

    def wait_st(self, warp: int) -> None:
        self.tcgen[warp][ST - TCGEN + warp] = self.issued[ST + warp]

    def fence_before(self, warp: int) -> None:
        own = [LD + warp, ST + warp]
        self.seen[warp][own] = self.tcgen[warp][[unit - TCGEN for unit in own]]

    def fence_after(self, warp: int) -> None:
        np.maximum(self.tcgen[warp], self.seen[warp][TCGEN:], out=self.tcgen[warp])

    def mma(self, warp: int, first: int, count: int, reads: tuple[Any, ...], site: int) -> None:
        self.tick(warp)
        self._need_tmem(warp, site)
        unit, pipe = MMA + warp, self.pipes[warp]
        np.maximum(pipe, self._tcgen_clock(warp), out=pipe)
        self.issued[unit] += 1
        number = pipe[unit] = self.flying[unit, site] = int(self.issued[unit])
        known = pipe.tolist()  # many cells follow, and a list is read faster
        for read in reads:
            if read[0] == "tmem":
                source: Any = [("t", c) for c in range(read[1] * TMEM_QUARTERS, (read[1] + read[2]) * TMEM_QUARTERS)]
            else:
                source = self.skeleton.regions[read[1]].cells(read[2])
            self._access(source, unit, number, known, False, True, site)
        target = [("t", c) for c in range(first * TMEM_QUARTERS, (first + count) * TMEM_QUARTERS)]
        self._access(target, unit, number, known, True, False, site)

    def use(self, warp: int, registers: str, where: str, is_asm: bool = False) -> None:
        if registers in self.loading[warp]:
            role = self.role_of(warp)
            self.report(
                "registers", "", role,
                f"{role} reads registers {registers} of a tcgen05.ld before its tcgen05.wait::ld ({where})",
                where,
            )  # fmt: skip

    def alloc(self, warp: int, columns: int, site: int) -> None:
        self.allocated, self.born = True, (warp, self.tick(warp))

    def dealloc(self, warp: int, columns: int, site: int) -> None:
        number = self.tick(warp)
        self._need_tmem(warp, site)
        cells = [cell for cell in self.cells if cell[0] == "t"]
        self._access(cells, warp, number, self.seen[warp], True, False, site)
        self.allocated = False
