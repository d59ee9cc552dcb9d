"""Playing a skeleton: all warps of a CTA run forward together until they end or wait for ever.

A barrier phase carries the join of the clocks of those who arrived; who waits learns it. Parity waits can alias, so
every completed phase is checked: whoever waited for the phase before must be ordered before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tirx_attn.barriers.checker.memory import SIZE, TCGEN, TMA, TMA_SLOTS, WARPS, Memory
from tirx_attn.barriers.checker.translate import Skeleton


class Fatal(Exception):
    """The play cannot go on."""


@dataclass
class Slot:
    """One mbarrier word. `phase` is the number of completed phases."""

    count: int = 0
    pending: int = 0
    bytes: int = 0
    born: tuple[int, int] = (0, 0)
    phase: int = 0
    clock: Any = None
    published: Any = None
    arrived: dict[int, int] = field(default_factory=dict)
    waited: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """warp -> (phase it waited for, its clock then, site)"""


@dataclass
class Named:
    """One hardware named barrier."""

    threads: int = 0
    here: int = 0
    generation: int = 0
    clock: Any = None
    published: Any = None
    members: dict[int, int] = field(default_factory=dict)
    passed: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)


class Machine(Memory):
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
        super().__init__(skeleton, role_of)
        self.branch, self.edge_name, self.barrier_name = branch, edge_name, barrier_name
        self.threads = 32 * WARPS
        self.slots = {(name, i): Slot() for name, slots in skeleton.barriers.items() for i in range(slots)}
        self.named: dict[int, Named] = {}
        self.registers: dict[int, list[int]] = {}
        self.expected: dict[str, set[int]] = {}
        self.arrivals: dict[tuple[str, str], set[int]] = {}
        self.waits: dict[tuple[str, str], set[int]] = {}
        self.log: list[tuple[int, str, str]] = []
        """(step, role, edge attribute) of every arrival on an mbarrier."""
        self.inits_fenced = False
        self.ended = False
        self.blocked: dict[int, tuple[Any, ...]] = {}
        self.chosen = [0] * WARPS
        self.ready: deque[int] = deque()

    # -- driver -----------------------------------------------------------------------------------------------------

    def play(self, cta: int, limit: int) -> bool:
        """Run all warps to their end. False where they cannot get there; `blocked` then says who waits for what."""
        programs: list[Iterator[None]] = [self.skeleton.program(self, warp, cta) for warp in range(WARPS)]
        self.ready = deque(range(WARPS))
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
        self.ended = done == WARPS
        return self.ended

    def _wake(self, target: Any) -> bool:
        """Let go on who waits for `target`. True where someone does: the caller then lets them go first."""
        woken = [warp for warp, wanted in self.blocked.items() if wanted[0] == target and warp not in self.ready]
        self.ready.extend(woken)
        return bool(woken)

    # -- mbarriers --------------------------------------------------------------------------------------------------

    def init(self, warp: int, edge: str, slot: int, count: int) -> None:
        self.slots[edge, slot] = Slot(count, count, clock=np.zeros(SIZE, np.int64), born=(warp, self.tick(warp)))

    def fence_init(self, warp: int) -> None:
        self.inits_fenced |= warp == 0 and not self.named

    def _need_init(self, warp: int, edge: str, slot: int, site: int) -> None:
        state = self.slots[edge, slot]
        if self.seen[warp][state.born[0]] < max(1, state.born[1]):
            role, name = self.role_of(warp), self.edge_name(edge)
            self.report(
                "allocation", name, role,
                f"{name}[{slot}]: {role} uses it before its mbarrier.init is known to be done: {self.sites[site]}",
                site,
            )  # fmt: skip
            raise Fatal(name)

    def wait(self, warp: int, edge: str, slot: int, parity: int, site: int) -> bool:
        self._need_init(warp, edge, slot, site)
        state = self.slots[edge, slot]
        before = state.waited.get(warp)
        last = before[0] if before else (-2 if parity else -1)
        # A wait for the parity of the last one repeats it; else it asks for the next phase.
        wanted = last if before and (last & 1) == (parity & 1) else last + 1
        if state.phase - 1 > wanted:
            role = self.role_of(warp)
            name = self.edge_name(edge)
            self.report(
                "aliased phase", name, role,
                f"{name}[{slot}]: {role} waits for phase {wanted} when phase {state.phase - 1} is complete already: "
                f"{self.sites[site]} can miss it or pass a phase early",
                site,
            )  # fmt: skip
        elif state.phase - 1 < wanted:
            self.blocked[warp] = ((edge, slot), wanted, site)
            return False
        stamp = self.tick(warp)
        if state.published is not None:
            self._learn(warp, state.published)
        state.waited[warp] = (wanted, stamp, site)
        self.waits.setdefault((edge, self.role_of(warp)), set()).add(site)
        return True

    def _learn(self, warp: int, clock: Any) -> None:
        np.maximum(self.seen[warp], clock, out=self.seen[warp])

    def arrive(self, warp: int, edge: str, slot: int, count: int, site: int) -> bool:
        self.tick(warp)
        return self._arrive(warp, edge, slot, count, self.seen[warp], site)

    def expect(self, warp: int, edge: str, slot: int, lanes: int, size: int, site: int) -> bool:
        self.tick(warp)
        self.slots[edge, slot].bytes += size * lanes
        self.expected.setdefault(edge, set()).add(size * lanes)
        return self._arrive(warp, edge, slot, lanes, self.seen[warp], site)

    def commit(self, warp: int, edge: str, slot: int, count: int, site: int) -> bool:
        self.tick(warp)
        clock = np.maximum(self.pipes[warp], self.seen[warp])
        clock[TCGEN:] = self.pipes[warp][TCGEN:]
        return self._arrive(warp, edge, slot, count, clock, site)

    def _arrive(self, warp: int, edge: str, slot: int, count: int, clock: Any, site: int) -> bool:
        self._need_init(warp, edge, slot, site)
        state, role = self.slots[edge, slot], self.role_of(warp)
        name = self.edge_name(edge)
        self.arrivals.setdefault((edge, role), set()).add(site)
        self.log.append((self.events, role, edge))
        state.arrived[warp] = state.arrived.get(warp, 0) + count
        state.pending -= count
        if state.pending < 0:
            by_role: dict[str, int] = {}
            for other, number in state.arrived.items():
                by_role[self.role_of(other)] = by_role.get(self.role_of(other), 0) + number
            parts = ", ".join(f"{who} {number}" for who, number in by_role.items())
            self.report(
                "over-arrival", name, role,
                f"{name}[{slot}] phase {state.phase}: {role} arrives when all {state.count} arrivals are there "
                f"({parts}): {self.sites[site]}",
                site,
            )  # fmt: skip
            raise Fatal(name)
        np.maximum(state.clock, clock, out=state.clock)
        return self._complete(edge, slot, site)

    def _complete(self, edge: str, slot: int, site: int) -> bool:
        state = self.slots[edge, slot]
        if state.pending or state.bytes:
            return False
        name = self.edge_name(edge)
        for warp, (phase, stamp, waited_at) in state.waited.items():
            if phase == state.phase - 1 and state.clock[warp] < stamp:
                role = self.role_of(warp)
                self.report(
                    "aliased phase", name, role,
                    f"{name}[{slot}]: phase {state.phase} can complete before {role} has waited for phase {phase}: "
                    f"{self.sites[waited_at]} is not ordered before {self.sites[site]}",
                    (site, waited_at),
                )  # fmt: skip
        state.published = state.clock
        state.clock = np.zeros(SIZE, np.int64)
        state.pending, state.phase = state.count, state.phase + 1
        state.arrived = {}
        return self._wake((edge, slot))

    # -- named barriers ---------------------------------------------------------------------------------------------

    def bar_arrive(self, warp: int, number: int, threads: int, lanes: int, site: int, waits: bool) -> bool:
        stamp = self.tick(warp)
        bar = self.named.setdefault(number, Named(clock=np.zeros(SIZE, np.int64)))
        name, role = self.barrier_name(number), self.role_of(warp)
        if waits:
            self.waits.setdefault((f"#{number}", role), set()).add(site)
        else:
            self.arrivals.setdefault((f"#{number}", role), set()).add(site)
            self.log.append((self.events, role, self.barrier_name(number).split("[")[0].replace(".", "_")))
        if bar.here and bar.threads != threads:
            self.report(
                "table", name, role,
                f"{name}: {role} counts {threads} threads, others {bar.threads}: {self.sites[site]}",
                site,
            )  # fmt: skip
        # A use is over once someone passed it; who arrives for the next one must know of that.
        known = any(self.seen[warp][other] >= at for other, at in bar.passed.items())
        if warp in bar.members or (bar.generation and not known):
            self.report(
                "aliased phase", name, role,
                f"{name} use {bar.generation}: {role} arrives again before it can know that the use before is over: "
                f"{self.sites[site]}",
                site,
            )  # fmt: skip
            if warp in bar.members:
                raise Fatal(name)
        bar.threads = threads
        bar.here += lanes
        bar.members[warp] = stamp
        np.maximum(bar.clock, self.seen[warp], out=bar.clock)
        if waits:
            bar.waiting[warp] = bar.generation
        if bar.here > threads:
            self.report(
                "over-arrival", name, role,
                f"{name} use {bar.generation}: {bar.here} threads for a count of {threads}: {role}, {self.sites[site]}",
                site,
            )  # fmt: skip
            raise Fatal(name)
        if bar.here < threads:
            return False
        bar.published, bar.clock = bar.clock, np.zeros(SIZE, np.int64)
        bar.passed, bar.members = {}, {}
        bar.here, bar.generation = 0, bar.generation + 1
        return self._wake(("#", number))

    def bar_passed(self, warp: int, number: int, site: int) -> bool:
        bar = self.named[number]
        if bar.waiting[warp] == bar.generation:
            self.blocked[warp] = (("#", number), bar.generation, site)
            return False
        self._learn(warp, bar.published)
        bar.passed[warp] = self.tick(warp)
        return True

    def tma_load(
        self, warp: int, region: int, starts: tuple[int, ...], edge: str, slot: int, size: int, site: int
    ) -> None:
        self.tick(warp)
        unit = TMA + self.tma_units.setdefault((edge, slot), len(self.tma_units)) % TMA_SLOTS
        self.issued[unit] += 1
        cells = self.skeleton.regions[region].cells(starts)
        self._access(cells, unit, int(self.issued[unit]), self.seen[warp], True, True, site)
        state = self.slots[edge, slot]
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
        return self.branch(warp, site, self.chosen[warp])
