"""Replay of a trace on one SM: when each step happens, who waited for whom, and which chain of steps decided the time.

A discrete-event simulation (SimPy). One partition of the SM stands for the four: the first warp of each warpgroup runs
on it and shares its MUFU and its issue slot with the others. The tensor pipe and TMA are the SM's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

import simpy

from tirx_attn.analysis.timeline import moments as m
from tirx_attn.analysis.timeline import trace as t
from tirx_attn.analysis.timeline.actors import Actor, Product, Slot
from tirx_attn.analysis.timeline.figures import Work
from tirx_attn.analysis.timeline.machine import Machine
from tirx_attn.analysis.timeline.moments import ISSUE, MUFU, START, TENSOR, TMA, Moment, Span, Stall, Timeline

QUANTUM = 64.0
"""Stall cycles of work that holds a function unit in one piece: shorter pieces share it more evenly."""

QUERIES = "q_load.full"
"""Edge of the tiles that come from memory: K and V are in L2, where other CTAs have brought them."""

Steps = Generator[simpy.Event, Any, None]


def replay(
    programs: Mapping[str, Sequence[tuple[Work, t.Step]]],
    arrivals: Mapping[tuple[str, int], int],
    threads: Mapping[int, int],
    machine: Machine,
) -> Timeline:
    """Play programs through.

    Args:
        programs: role -> steps with the work before each (`CodeFigures.program`).
        arrivals, threads: of the trace: what completes a phase of an edge's slot, and a use of a named barrier.
        machine: rates and latencies.
    """
    return _Player(programs, arrivals, threads, machine).play()


class _Player:
    def __init__(
        self,
        programs: Mapping[str, Sequence[tuple[Work, t.Step]]],
        arrivals: Mapping[tuple[str, int], int],
        threads: Mapping[int, int],
        machine: Machine,
    ):
        self.env = simpy.Environment()
        self.machine, self.found = machine, Timeline()
        self.slots = {key: Slot(count, count) for key, count in arrivals.items()}
        self.named = {number: Slot(count, count) for number, count in threads.items()}
        self.actors = [Actor(role, program) for role, program in programs.items()]
        self.mufu_free = self.issue_free = self.tma_free = self.store_free = 0.0
        self.work_to_do: Any = self.env.event()
        self.turn = 0

    def play(self) -> Timeline:
        running = [self.env.process(self._run(actor)) for actor in self.actors]
        self.env.process(self._tensor())
        self.env.run(until=simpy.AllOf(self.env, running))
        last = max((actor.moment for actor in self.actors), key=lambda moment: moment[0])
        self.found.end, self.found.last = last[0], last
        return self.found

    # -- actors ------------------------------------------------------------------------------------------------------

    def _run(self, actor: Actor) -> Steps:
        for work, step in actor.program:
            if work.stalls:
                yield from self._work(actor, work, step)
            handler = _HANDLERS.get(step.kind)
            if handler is not None:
                yield from handler(self, actor, step) or ()

    def _work(self, actor: Actor, work: Work, step: t.Step) -> Steps:
        start, queued = self.env.now, 0.0
        cycles = work.stalls * self.machine.dilation
        pieces = max(1, round(cycles / QUANTUM)) if work.mufu else 1
        for _ in range(pieces):
            now = self.env.now
            own = end = now + cycles / pieces
            if work.mufu:
                begin, busy = max(now, self.mufu_free), work.mufu / pieces * self.machine.mufu_cycles
                self.mufu_free = begin + busy
                self.found.busy[MUFU].append((begin, begin + busy))
                end = max(end, begin + busy)
            begin, busy = max(now, self.issue_free), work.instructions / pieces
            self.issue_free = begin + busy
            self.found.busy[ISSUE].append((begin, begin + busy))
            end = max(end, begin + busy)
            yield self._until(end)
            actor.moment = (own, actor.moment, f"{actor.role}: instructions")
            if end > own:
                actor.moment = (end, actor.moment, f"{actor.role}: queue for MUFU or issue")
                queued += end - own
        what = m.EXPONENTIALS if work.mufu else m.INSTRUCTIONS
        self.found.spans.append(Span(actor.role, what, start, self.env.now, step.mark, queued=queued))

    def _until(self, time: float) -> Any:
        return self.env.timeout(max(0.0, time - self.env.now))

    def _pause(self, actor: Actor, cycles: float, label: str) -> Steps:
        start = self.env.now
        yield self.env.timeout(cycles)
        actor.moment = (self.env.now, actor.moment, label)
        if cycles:
            self.found.spans.append(Span(actor.role, label, start, self.env.now))

    def _block(self, actor: Actor, slot: Slot, phase: int, edge: str, latency: float) -> Steps:
        """Wait for a phase; who arrived last decides when it ends."""
        if phase < 0:
            return
        start = self.env.now
        while len(slot.complete) <= phase:
            event = self.env.event()
            slot.waiting.append(event)
            yield event
        done = slot.complete[phase]
        if done[0] + latency > self.env.now:
            yield self._until(done[0] + latency)
        if self.env.now > start:
            actor.moment = (self.env.now, done, f"edge {edge}")
            self.found.stalls.append(Stall(actor.role, edge, start, self.env.now, slot.by[phase], done[0]))

    def _wait(self, actor: Actor, step: t.Step) -> Steps:
        return self._block(actor, self.slots[step.edge, step.slot], step.phase, step.edge, self.machine.edge)

    def _sync(self, actor: Actor, step: t.Step) -> Steps:
        slot = self.named[step.slot]
        self._count(slot, step.amount, actor.moment, actor.role)
        yield from self._block(actor, slot, step.phase, step.edge, self.machine.named)

    def _signal(self, actor: Actor, step: t.Step) -> None:
        self._count(self.named[step.slot], step.amount, actor.moment, actor.role)

    def _arrive(self, actor: Actor, step: t.Step) -> None:
        self._count(self.slots[step.edge, step.slot], step.amount, (self.env.now, actor.moment, ""), actor.role)

    def _expect(self, actor: Actor, step: t.Step) -> None:
        slot = self.slots[step.edge, step.slot]
        slot.bytes += step.bytes
        self._count(slot, step.amount, actor.moment, actor.role)

    def _count(self, slot: Slot, arrivals: int, moment: Moment, by: str) -> None:
        slot.pending -= arrivals
        if slot.pending == 0 and slot.bytes == 0:
            slot.pending = slot.count
            slot.complete.append((self.env.now, moment, "") if moment[0] != self.env.now else moment)
            slot.by.append(by)
            waiting, slot.waiting = slot.waiting, []
            for event in waiting:
                event.succeed()

    # -- memory ------------------------------------------------------------------------------------------------------

    def _load(self, actor: Actor, step: t.Step) -> None:
        slot, busy = self.slots[step.edge, step.slot], step.amount / self.machine.tma_bytes
        begin = max(self.env.now, self.tma_free)
        self.tma_free = begin + busy
        self.found.busy[TMA].append((begin, self.tma_free))
        latency = self.machine.query_latency if step.edge == QUERIES else self.machine.tma_latency
        landed = self.tma_free + latency
        self.found.spans.append(Span(TMA, m.LOAD, begin, self.tma_free, step.edge, actor.role, done=landed))
        parent = actor.moment

        def land(_: Any) -> None:
            slot.bytes -= step.amount
            self._count(slot, 0, (self.env.now, parent, "TMA load"), TMA)

        self._until(landed).callbacks.append(land)

    def _store(self, actor: Actor, step: t.Step) -> None:
        begin = max(self.env.now, self.store_free)
        self.store_free = begin + step.amount / self.machine.tma_bytes
        done = self.store_free + self.machine.store_latency
        self.found.spans.append(Span(m.TMA_STORE, m.STORE, begin, self.store_free, role=actor.role, done=done))
        actor.stored = (done, actor.moment, "TMA store")

    def _drain(self, actor: Actor, step: t.Step) -> Steps:
        start = self.env.now
        yield self._until(actor.stored[0])
        actor.moment = actor.stored
        self.found.spans.append(Span(actor.role, m.DRAIN, start, self.env.now))

    def _read_wait(self, actor: Actor, step: t.Step) -> Steps:
        return self._pause(actor, self.machine.tmem_read, m.TMEM_READ)

    def _write_wait(self, actor: Actor, step: t.Step) -> Steps:
        return self._pause(actor, self.machine.tmem_write, m.TMEM_WRITE)

    # -- products ----------------------------------------------------------------------------------------------------

    def _product(self, actor: Actor, step: t.Step) -> Steps:
        product = Product(step.amount / self.machine.flops, (self.env.now, actor.moment, ""), step.edge)
        actor.queue.append(product)
        actor.latest = product
        if not self.work_to_do.triggered:
            self.work_to_do.succeed()
        start = self.env.now
        while self.machine.issue_depth is not None and len(actor.queue) > self.machine.issue_depth:
            actor.started = self.env.event()
            yield actor.started
        if self.env.now > start:
            actor.moment = (self.env.now, self.running, f"{TENSOR} takes the product")
            self.found.stalls.append(Stall(actor.role, TENSOR, start, self.env.now, TENSOR, self.env.now))

    def _tensor(self) -> Steps:
        """The pipe: products of a warp in order, warps by turns."""
        before: Moment = START
        while True:
            ready = [actor for actor in self.actors if actor.queue]
            if not ready:
                self.work_to_do = self.env.event()
                yield self.work_to_do
                continue
            order = [self.actors[(self.turn + i) % len(self.actors)] for i in range(len(self.actors))]
            actor = next(each for each in order if each.queue)
            self.turn = self.actors.index(actor) + self.machine.turns
            product = actor.queue.popleft()
            start = self.env.now
            cause = before if before[0] >= start else product.moment
            self.running: Moment = (start, cause, "")
            if actor.started is not None and not actor.started.triggered:
                actor.started.succeed()
            yield self.env.timeout(product.cycles)
            self.found.busy[TENSOR].append((start, self.env.now))
            before, done = (self.env.now, (start, cause, ""), TENSOR), self.env.now + self.machine.fill
            self.found.spans.append(Span(TENSOR, m.PRODUCT, start, before[0], product.writes, actor.role, done=done))
            self._finish(product, before)

    def _finish(self, product: Product, moment: Moment) -> None:
        done: Moment = (moment[0] + self.machine.fill, moment, f"{TENSOR} latency")

        def tell(_: Any) -> None:
            product.is_done, product.done = True, done
            for then in product.then:
                then(done)

        self.env.timeout(self.machine.fill).callbacks.append(tell)

    def _commit(self, actor: Actor, step: t.Step) -> None:
        slot, latest = self.slots[step.edge, step.slot], actor.latest
        if latest is None or latest.is_done:
            self._count(slot, step.amount, (self.env.now, actor.moment, ""), TENSOR)
        else:
            latest.then.append(partial(self._count, slot, step.amount, by=TENSOR))

    def _group(self, actor: Actor, step: t.Step) -> None:
        actor.groups.append(actor.latest)

    def _group_wait(self, actor: Actor, step: t.Step) -> Steps:
        number = len(actor.groups) - step.amount - 1
        product = actor.groups[number] if number >= 0 else None
        if product is None or product.is_done:
            return
        start, event = self.env.now, self.env.event()

        def go_on(_: Moment) -> None:
            event.succeed()

        product.then.append(go_on)
        yield event
        actor.moment = product.done
        self.found.stalls.append(Stall(actor.role, "own products", start, self.env.now, TENSOR, product.done[0]))


_HANDLERS: dict[str, Callable[..., Any]] = {
    t.WAIT: _Player._wait,
    t.ARRIVE: _Player._arrive,
    t.EXPECT: _Player._expect,
    t.COMMIT: _Player._commit,
    t.SYNC: _Player._sync,
    t.SIGNAL: _Player._signal,
    t.LOAD: _Player._load,
    t.STORE: _Player._store,
    t.DRAIN: _Player._drain,
    t.PRODUCT: _Player._product,
    t.GROUP: _Player._group,
    t.GROUP_WAIT: _Player._group_wait,
    t.READ_WAIT: _Player._read_wait,
    t.WRITE_WAIT: _Player._write_wait,
}
