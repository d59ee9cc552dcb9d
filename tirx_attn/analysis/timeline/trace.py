"""What each warp of a CTA waits for, signals, loads and multiplies, in program order: read off one structural play.

The control flow of a kernel does not depend on time, so a trace can be replayed with any durations (replay.py). Warps
of a warpgroup that walk the same path are one actor: their arrivals are added up, and its share of an SM partition is
that of its first warp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tirx_attn.barriers.check import EVENT_LIMIT
from tirx_attn.barriers.checker.declared import Declared
from tirx_attn.barriers.checker.machine import Machine
from tirx_attn.barriers.checker.signals import Fatal
from tirx_attn.barriers.checker.tir import TMEM_CELL_COLUMNS
from tirx_attn.barriers.checker.translate import Skeleton, extract
from tirx_attn.barriers.checker.wgmma import ATOM_ROW_BYTES, ATOM_ROWS, DEPTH, ROWS

MMA_ROWS = 128
"""Rows of a tcgen05 product."""

WAIT, ARRIVE, EXPECT, COMMIT, SYNC, SIGNAL = "wait", "arrive", "expect", "commit", "sync", "signal"
LOAD, STORE, DRAIN = "load", "store", "drain"
PRODUCT, GROUP, GROUP_WAIT = "product", "group", "group wait"
READ, READ_WAIT, WRITE, WRITE_WAIT = "tmem read", "tmem read wait", "tmem write", "tmem write wait"


@dataclass(frozen=True)
class Step:
    """One thing that a warp does.

    Attributes:
        kind: WAIT (mbarrier), ARRIVE, EXPECT (arrival and bytes to come), COMMIT (arrival once the warp's products are
            done), SYNC and SIGNAL (hardware named barrier, with and without waiting), LOAD and STORE (TMA), DRAIN (wait
            for stores), PRODUCT, GROUP, GROUP_WAIT, READ and WRITE (tensor memory) and the waits for them.
        edge: printed name of the edge; of a PRODUCT, the registers or the memory that it writes.
        slot: stage of the edge; number of a named barrier.
        phase: of WAIT, the phase that must be complete; of SYNC, the use of the barrier.
        amount: arrivals; threads; bytes; flops; of GROUP_WAIT, the groups that may be left.
        bytes: of EXPECT, what TMA must bring.
    """

    kind: str
    edge: str = ""
    slot: int = 0
    phase: int = 0
    amount: int = 0
    bytes: int = 0

    @property
    def mark(self) -> str:
        """What machine-code figures call the step."""
        return f"{self.kind} {self.edge}".rstrip()


@dataclass(frozen=True)
class Actor:
    """Warps that walk one path together: a warpgroup, or a warp by itself.

    Attributes:
        role: its role, with the number of its warpgroup where the role has several.
        warps: how many they are.
        steps: what they do.
    """

    role: str
    warps: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Trace:
    """The actors of one CTA.

    Attributes:
        actors: who does what.
        arrivals: (edge, slot) -> arrivals that complete a phase.
        threads: named barrier -> threads that complete a use.
    """

    actors: tuple[Actor, ...]
    arrivals: Mapping[tuple[str, int], int]
    threads: Mapping[int, int]


def record(func: Any, sizes: Mapping[str, int] | None = None, cta: int = 0) -> Trace:
    """Trace of one CTA of a PrimFunc, in which no branch on data is taken.

    Args:
        func: a PrimFunc as generated.
        sizes: values of the sizes that it leaves to run time.
        cta: number of the CTA.

    Raises:
        Unsupported: a statement has no translation.
        ValueError: `sizes` do not fit, or the kernel hangs: the structural check then says where.
    """
    recorder = _Recorder(extract(func, sizes), Declared(func))
    try:
        ended = recorder.play(cta, EVENT_LIMIT)
    except Fatal:
        ended = False
    if not ended:
        raise ValueError(f"cta={cta}: the kernel hangs, `tirx-attn check` says where; allowed are kernels that end")
    roles = [recorder.role_of(warp) for warp in range(recorder.warps)]
    actors = []
    for role in dict.fromkeys(roles):
        members = [recorder.steps[warp] for warp in range(recorder.warps) if roles[warp] == role]
        if any(members):
            actors.append(Actor(role, len(members), _together(members)))
    slots = {(recorder.edge_name(edge), slot): state.count for (edge, slot), state in recorder.slots.items()}
    return Trace(tuple(actors), slots, {number: bar.threads for number, bar in recorder.named.items()})


def _together(members: list[list[Step]]) -> tuple[Step, ...]:
    """The steps of the first warp; where all do the same to the same thing, what they do is added up."""
    lengths = {len(steps) for steps in members}
    if len(lengths) != 1:
        raise ValueError(f"warps of one role do {sorted(lengths)} steps: allowed is that they walk one path")
    merged = []
    for first, *others in zip(*members, strict=True):
        shared = [step for step in others if (step.kind, step.edge, step.slot) == (first.kind, first.edge, first.slot)]
        adds = first.kind not in (WAIT, GROUP_WAIT)
        merged.append(replace(first, amount=first.amount + sum(step.amount for step in shared)) if adds else first)
    return tuple(merged)


class _Recorder(Machine):
    """A play that writes down what it does."""

    def __init__(self, skeleton: Skeleton, declared: Declared):
        super().__init__(skeleton, declared.role_of, lambda warp, site, turn: False, declared.edge_name,
                         declared.barrier_name)  # fmt: skip
        self.steps: list[list[Step]] = [[] for _ in range(self.warps)]

    def _note(self, warp: int, kind: str, edge: str = "", slot: int = 0, **more: int) -> None:
        steps = self.steps[warp]
        last = steps[-1] if steps else None
        if last and kind in (LOAD, STORE, READ, WRITE) and (last.kind, last.edge, last.slot) == (kind, edge, slot):
            steps[-1] = replace(last, amount=last.amount + more["amount"])
        else:
            steps.append(Step(kind, edge, slot, **more))

    def wait(self, warp: int, edge: str, slot: int, parity: int, site: int) -> bool:
        before = self.slots[edge, slot].waited.get(warp)
        passed = super().wait(warp, edge, slot, parity, site)
        if passed:
            phase = self.slots[edge, slot].waited[warp][0]
            if before is None or before[0] != phase:  # a repeated wait passes at once
                self._note(warp, WAIT, self.edge_name(edge), slot, phase=phase)
        return passed

    def arrive(self, warp: int, edge: str, slot: int, count: int, site: int) -> bool:
        self._note(warp, ARRIVE, self.edge_name(edge), slot, amount=count)
        return super().arrive(warp, edge, slot, count, site)

    def expect(self, warp: int, edge: str, slot: int, lanes: int, size: int, site: int) -> bool:
        self._note(warp, EXPECT, self.edge_name(edge), slot, amount=lanes, bytes=size * lanes)
        return super().expect(warp, edge, slot, lanes, size, site)

    def commit(self, warp: int, edge: str, slot: int, count: int, site: int) -> bool:
        self._note(warp, COMMIT, self.edge_name(edge), slot, amount=count)
        return super().commit(warp, edge, slot, count, site)

    def bar_arrive(self, warp: int, number: int, threads: int, lanes: int, site: int, waits: bool) -> bool:
        use = self.named[number].generation if number in self.named else 0
        name = self.barrier_name(number).partition("[")[0]
        self._note(warp, SYNC if waits else SIGNAL, name, number, phase=use, amount=lanes)
        return super().bar_arrive(warp, number, threads, lanes, site, waits)

    def tma_load(
        self, warp: int, region: int, starts: tuple[int, ...], edge: str, slot: int, size: int, site: int
    ) -> None:
        self._note(warp, LOAD, self.edge_name(edge), slot, amount=size)
        super().tma_load(warp, region, starts, edge, slot, size, site)

    def tma_store(self, warp: int, region: int, starts: tuple[int, ...], site: int) -> None:
        self._note(warp, STORE, amount=self.skeleton.regions[region].bytes)
        super().tma_store(warp, region, starts, site)

    def wait_stores(self, warp: int, left: int = 0) -> None:
        self._note(warp, DRAIN)
        super().wait_stores(warp, left)

    def mma(self, warp: int, first: int, count: int, reads: tuple[Any, ...], site: int) -> None:
        a = reads[0]
        # Two 16-bit elements of A are one 32-bit column of tensor memory.
        depth = 2 * TMEM_CELL_COLUMNS * a[2] if a[0] == "tmem" else self.skeleton.regions[a[1]].extents[-1]
        flops = 2 * MMA_ROWS * count * TMEM_CELL_COLUMNS * depth
        self._note(warp, PRODUCT, self.sites[site].text.split()[1], amount=flops)
        super().mma(warp, first, count, reads, site)

    def wgmma(self, warp: int, registers: tuple[str, ...], reads: tuple[tuple[int, int], ...], site: int) -> None:
        b = self.skeleton.operands[reads[-1][1]]
        # By rows an atom holds 8 columns of the product; by columns two atoms, 8 rows of K each, hold a panel of 64.
        columns = ATOM_ROWS * len(b.atoms) if b.inside else ATOM_ROW_BYTES // 2 * len(b.atoms) // 2
        self._note(warp, PRODUCT, registers[0], amount=2 * ROWS * columns * DEPTH // 4)
        super().wgmma(warp, registers, reads, site)

    def commit_group(self, warp: int) -> None:
        self._note(warp, GROUP)
        super().commit_group(warp)

    def wait_group(self, warp: int, left: int) -> None:
        self._note(warp, GROUP_WAIT, str(left), amount=left)
        super().wait_group(warp, left)

    def ld(self, warp: int, first: int, count: int, registers: str, site: int) -> None:
        self._note(warp, READ, amount=count * TMEM_CELL_COLUMNS)
        super().ld(warp, first, count, registers, site)

    def wait_ld(self, warp: int) -> None:
        self._note(warp, READ_WAIT)
        super().wait_ld(warp)

    def st(self, warp: int, first: int, count: int, site: int) -> None:
        self._note(warp, WRITE, amount=count * TMEM_CELL_COLUMNS)
        super().st(warp, first, count, site)

    def wait_st(self, warp: int) -> None:
        self._note(warp, WRITE_WAIT)
        super().wait_st(warp)
