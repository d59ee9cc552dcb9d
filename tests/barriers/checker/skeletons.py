"""Small programs for the machine, written by hand: what the translator would make of a PrimFunc."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tirx_attn.barriers.checker.machine import Machine
from tirx_attn.barriers.checker.tir import Region, Site
from tirx_attn.barriers.checker.translate import Skeleton
from tirx_attn.barriers.checker.wgmma import Operand

Steps = Iterator[None]

WARPS = 16

TILE = Region("tile", (128, 64), ((128, 64), (64, 1)), 0, 2, (128, 64))
"""128 rows of 64 fp16 values at the start of shared memory."""


class Warp:
    """What one warp does. Methods that can block are generators, for `yield from`."""

    def __init__(self, machine: Machine, number: int, sites: list[Site]):
        self.m, self.number, self._sites = machine, number, sites

    def site(self, text: str) -> int:
        self._sites.append(Site(text, f"warp{self.number}.py:{len(self._sites)}"))
        return len(self._sites) - 1

    def wait(self, edge: str, parity: int, slot: int = 0) -> Steps:
        site = self.site(f"wait on {edge}")
        while not self.m.wait(self.number, edge, slot, parity, site):
            yield

    def arrive(self, edge: str, slot: int = 0, lanes: int = 32) -> Steps:
        if self.m.arrive(self.number, edge, slot, lanes, self.site(f"arrive on {edge}")):
            yield

    def commit(self, edge: str, slot: int = 0) -> Steps:
        if self.m.commit(self.number, edge, slot, 1, self.site(f"commit to {edge}")):
            yield

    def load_tile(self, edge: str, expected: int = TILE.bytes) -> Steps:
        """TMA into TILE, and the expect-tx arrive."""
        self.m.tma_load(self.number, 0, (0, 0), edge, 0, TILE.bytes, self.site("TMA load to tile"))
        if self.m.expect(self.number, edge, 0, 1, expected, self.site(f"expect-tx arrive on {edge}")):
            yield

    def bar(self, number: int, threads: int, waits: bool) -> Steps:
        site = self.site("bar.sync" if waits else "bar.arrive")
        if self.m.bar_arrive(self.number, number, threads, 32, site, waits) and not waits:
            yield
        while waits and not self.m.bar_passed(self.number, number, site):
            yield


def run(
    counts: dict[str, int],
    programs: dict[int, Callable[[Warp], Steps]],
    *,
    limit: int = 10_000,
    start: bool = True,
    operands: tuple[Operand, ...] = (),
) -> Machine:
    """Play programs, by warp, on mbarriers of one slot with these counts.

    Warp 0 initialises the mbarriers and allocates tensor memory; then all warps meet. `start=False` leaves the
    meeting out.
    """
    sites: list[Site] = []

    def program(m: Any, warp: int, cta: int) -> Steps:
        me = Warp(m, warp, sites)
        if warp == 0:
            for edge, count in counts.items():
                m.init(warp, edge, 0, count)
            m.alloc(warp, 512, me.site("tcgen05.alloc"))
        if start:
            yield from me.bar(0, 32 * WARPS, True)
        if warp in programs:
            yield from programs[warp](me)

    skeleton = Skeleton(program, sites, (TILE,), dict.fromkeys(counts, 1), 1, WARPS, "", operands)  # type: ignore[arg-type]
    machine = Machine(
        skeleton, lambda w: f"warp {w}", lambda *_: True, lambda edge: edge, lambda number: f"named {number}"
    )  # fmt: skip
    machine.play(0, limit)
    return machine


def kinds(machine: Machine) -> set[str]:
    """Kinds of the faults that were found."""
    return {finding.kind for finding in machine.findings}
