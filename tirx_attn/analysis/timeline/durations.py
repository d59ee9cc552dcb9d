"""How many cycles a CTA takes for its tasks: replays of tasks of a few lengths, and lines between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tirx_attn.analysis.timeline.figures import CodeFigures
from tirx_attn.analysis.timeline.machine import Machine
from tirx_attn.analysis.timeline.moments import Timeline
from tirx_attn.analysis.timeline.replay import replay
from tirx_attn.analysis.timeline.tasks import Task, Tasks
from tirx_attn.analysis.timeline.trace import PRODUCT, Trace, record

REPEATS = 2
"""A task is played once and this often in a row; the difference is what one more costs a CTA that goes on."""


@dataclass(frozen=True)
class Played:
    """Traces of one task.

    Attributes:
        task: the task.
        careful: key blocks that go through the careful code, by query stage.
        traces: how often in a row -> trace.
    """

    task: Task
    careful: tuple[int, ...]
    traces: Mapping[int, Trace]


def play(tasks: Tasks, func: Any) -> tuple[Played, ...]:
    """Traces of a plan's sample tasks.

    Args:
        tasks: of the plan.
        func: the PrimFunc of `tasks.open_plan()`.
    """
    counts = (1, REPEATS) if tasks.plan.is_persistent else (1,)
    made = []
    for task in tasks.samples():
        careful = tuple(tasks.careful(task, stage) for stage in range(tasks.plan.tiles.tiles_per_task))
        traces = {tasks.repeats(count): record(func, tasks.sizes(task, count)) for count in counts}
        made.append(Played(task, careful, traces))
    return tuple(made)


@dataclass(frozen=True)
class Durations:
    """Cycles by number of key blocks.

    Attributes:
        lengths: key blocks that were played.
        first: cycles of a CTA with one such task.
        following: cycles that a further one adds to a CTA that goes on; like `first` where CTAs take one task each.
        longest: timeline of the longest one.
        block_flops: flops of a key block, for all query tiles of a task.
    """

    lengths: tuple[int, ...]
    first: tuple[float, ...]
    following: tuple[float, ...]
    longest: Timeline
    block_flops: float

    def cycles(self, tasks: Sequence[Task]) -> float:
        """Cycles of a CTA with these tasks."""
        lengths = [task.blocks for task in tasks if task.keys]
        if not lengths:
            return 0.0
        return self._at(self.first, lengths[0]) + sum(self._at(self.following, length) for length in lengths[1:])

    def _at(self, values: tuple[float, ...], length: int) -> float:
        if len(values) == 1:
            return values[0] * length / self.lengths[0]
        right = min(max(1, bisect_left(self.lengths, length)), len(values) - 1)
        # A last piece of one block is too short to go on from.
        left = right - 1
        if length > self.lengths[-1]:
            left = max((i for i in range(right) if self.lengths[right] >= 2 * self.lengths[i]), default=left)
        x0, x1, y0, y1 = self.lengths[left], self.lengths[right], values[left], values[right]
        return y0 + (y1 - y0) * (length - x0) / (x1 - x0)


def durations(played: Sequence[Played], figures: CodeFigures, machine: Machine) -> Durations:
    """Replay all samples."""
    first, following = [], []
    timeline, flops = Timeline(), 0.0
    for sample in played:
        blocks = sample.task.blocks
        once, repeats = min(sample.traces), max(sample.traces)
        single = sample.traces[once]
        flops = sum(step.amount for actor in single.actors for step in actor.steps if step.kind == PRODUCT) / (
            blocks * once
        )
        timeline = _replay(sample, once, flops, figures, machine)
        more = _replay(sample, repeats, flops, figures, machine).end if repeats > once else 0.0
        following.append((more - timeline.end) / (repeats - once) if repeats > once else timeline.end / once)
        first.append(timeline.end - (once - 1) * following[-1])
    return Durations(tuple(sample.task.blocks for sample in played), tuple(first), tuple(following), timeline, flops)


def _replay(sample: Played, count: int, block_flops: float, figures: CodeFigures, machine: Machine) -> Timeline:
    trace, programs = sample.traces[count], {}
    tile_flops = block_flops / len(sample.careful)
    for actor in trace.actors:
        number = int(actor.role.partition(" ")[2] or 0)
        careful = sample.careful[min(number, len(sample.careful) - 1)]
        programs[actor.role] = figures.program(actor, [(sample.task.blocks, careful)] * count, tile_flops)
    return replay(programs, trace.arrivals, trace.threads, machine)
