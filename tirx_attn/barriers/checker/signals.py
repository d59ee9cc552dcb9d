"""Barriers of the play: mbarriers and hardware named barriers, with the clocks that they carry.

A barrier phase carries the join of the clocks of those who arrived; who waits learns it. Two things must hold in every
order that the barriers allow, not in the played one alone, so they are read off the clocks. Parity waits can alias:
whoever waited for a phase is ordered before the next one completes. Arrivals can fall into the phase before:
whoever arrives for a phase is ordered after the one before is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tirx_attn.barriers.checker.memory import MMA, SIZE, TCGEN, Memory
from tirx_attn.barriers.checker.translate import Skeleton


class Fatal(Exception):
    """The play cannot go on."""


@dataclass
class Slot:
    """One mbarrier word. `phase` is the number of completed phases.

    Attributes:
        count, pending, bytes: arrivals of a phase; arrivals and TMA bytes that the current one still lacks.
        born: warp that initialised it, and when.
        clock, published: join of the clocks that arrived in the current phase; that of the last complete one.
        arrived: warp -> arrivals in the current phase.
        evidence, complete: (unit, number, warp, site) that make up the current phase, and the last complete one.
        waited: warp -> (phase it waited for last, its clock then, site).
    """

    count: int = 0
    pending: int = 0
    bytes: int = 0
    born: tuple[int, int] = (0, 0)
    phase: int = 0
    clock: Any = None
    published: Any = None
    arrived: dict[int, int] = field(default_factory=dict)
    evidence: list[tuple[int, int, int, int]] = field(default_factory=list)
    complete: list[tuple[int, int, int, int]] = field(default_factory=list)
    waited: dict[int, tuple[int, int, int]] = field(default_factory=dict)


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


class Signals(Memory):
    """Barriers of one CTA, who arrived at them and who waits."""

    def __init__(
        self,
        skeleton: Skeleton,
        role_of: Callable[[int], str],
        edge_name: Callable[[str], str],
        barrier_name: Callable[[int], str],
    ):
        super().__init__(skeleton, role_of)
        self.edge_name, self.barrier_name = edge_name, barrier_name
        self.slots = {(name, i): Slot() for name, slots in skeleton.barriers.items() for i in range(slots)}
        self.named: dict[int, Named] = {}
        self.expected: dict[str, set[int]] = {}
        self.arrivals: dict[tuple[str, str], set[int]] = {}
        self.waits: dict[tuple[str, str], set[int]] = {}
        self.first_waits: dict[tuple[str, int, str], tuple[int, int]] = {}
        """(edge, slot, role) -> (phase, site) of the first wait."""
        self.log: list[tuple[int, str, str]] = []
        """(step, role, edge attribute) of every arrival."""
        self.latest: dict[int, int] = {}
        """warp -> site of its latest wait or arrival."""
        self.inits_fenced = False
        self.blocked: dict[int, tuple[Any, ...]] = {}
        self.ready: deque[int] = deque()

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
        self.latest[warp] = site
        state = self.slots[edge, slot]
        before = state.waited.get(warp)
        last = before[0] if before else (-2 if parity else -1)
        # A wait for the parity of the last one repeats it; else it asks for the next phase.
        wanted = last if before and (last & 1) == (parity & 1) else last + 1
        self.first_waits.setdefault((edge, slot, self.role_of(warp)), (wanted, site))
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
        return self._arrive(warp, edge, slot, count, self.seen[warp], (warp, self.tick(warp)), site)

    def expect(self, warp: int, edge: str, slot: int, lanes: int, size: int, site: int) -> bool:
        self.slots[edge, slot].bytes += size * lanes
        self.expected.setdefault(edge, set()).add(size * lanes)
        return self._arrive(warp, edge, slot, lanes, self.seen[warp], (warp, self.tick(warp)), site)

    def commit(self, warp: int, edge: str, slot: int, count: int, site: int) -> bool:
        self.tick(warp)
        clock = np.maximum(self.pipes[warp], self.seen[warp])
        clock[TCGEN:] = self.pipes[warp][TCGEN:]
        # The arrival is made by the MMA pipe: who knows that the pipe has got this far knows of it.
        return self._arrive(warp, edge, slot, count, clock, (MMA + warp, int(clock[MMA + warp])), site)

    def _arrive(
        self, warp: int, edge: str, slot: int, count: int, clock: Any, unit: tuple[int, int], site: int
    ) -> bool:
        self._need_init(warp, edge, slot, site)
        self._need_turn(warp, edge, slot, unit[0], site)
        self.latest[warp] = site
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
        state.evidence.append((*unit, warp, site))
        np.maximum(state.clock, clock, out=state.clock)
        return self._complete(edge, slot, site)

    def _need_turn(self, warp: int, edge: str, slot: int, by: int, site: int) -> None:
        """Report an arrival that can fall into the phase before, because that one may not be complete yet."""
        state = self.slots[edge, slot]
        for unit, number, other, where in state.complete:
            in_order = other == warp and unit == by  # the arrivals of one unit stay in order
            if not in_order and self.seen[warp][unit] < number:
                role, name = self.role_of(warp), self.edge_name(edge)
                self.report(
                    "early arrival", name, role,
                    f"{name}[{slot}] phase {state.phase}: {role} can arrive before the phase before is complete: "
                    f"{self.sites[site]} is not ordered after {self.sites[where]} by {self.role_of(other)}",
                    (site, where),
                )  # fmt: skip

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
        state.arrived, state.complete, state.evidence = {}, state.evidence, []
        return self._wake((edge, slot))

    # -- named barriers ---------------------------------------------------------------------------------------------

    def bar_arrive(self, warp: int, number: int, threads: int, lanes: int, site: int, waits: bool) -> bool:
        stamp = self.tick(warp)
        self.latest[warp] = site
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
