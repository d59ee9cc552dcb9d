"""Small programs whose time can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tirx_attn.analysis.timeline import trace as t
from tirx_attn.analysis.timeline.figures import Work
from tirx_attn.analysis.timeline.machine import Machine
from tirx_attn.analysis.timeline.replay import Timeline, replay

MACHINE = Machine(flops=8192.0, mufu_cycles=8.0)
"""Rates alone: no latencies."""

Program = Sequence[tuple[Work, t.Step]]


def ring(tiles: int, depth: int, bytes_each: int, work: float) -> dict[str, Program]:
    """One warp loads tiles into a ring, another one works on each."""
    load: list[tuple[Work, t.Step]] = []
    use: list[tuple[Work, t.Step]] = []
    for i in range(tiles):
        slot, turn = i % depth, i // depth
        load += [
            (Work(), t.Step(t.WAIT, "tile.empty", slot, turn - 1)),
            (Work(), t.Step(t.LOAD, "tile.full", slot, amount=bytes_each)),
            (Work(), t.Step(t.EXPECT, "tile.full", slot, amount=1, bytes=bytes_each)),
        ]
        use += [
            (Work(), t.Step(t.WAIT, "tile.full", slot, turn)),
            (Work(work), t.Step(t.ARRIVE, "tile.empty", slot, amount=1)),
        ]
    return {"load": load, "use": use}


def run(
    programs: Mapping[str, Program], machine: Machine = MACHINE, threads: Mapping[int, int] | None = None
) -> Timeline:
    """Replay with one arrival a phase."""
    keys = {(step.edge, step.slot) for program in programs.values() for _, step in program if step.edge}
    return replay(programs, dict.fromkeys(keys, 1), threads or {}, machine)
