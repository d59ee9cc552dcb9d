"""How evenly a launch's tasks fill the SMs: whole waves, and the order in which causal tasks are handed out.

Work is counted in key blocks that a task walks, for each of its query tiles alike; a task costs nothing beside. One
CTA runs on an SM at a time. No order is asked of a kernel: the plan's order is written down here once more, and the
tests hold it against the scheduler that the kernel uses.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tirx_attn.hopper.plan import HopperPlan
from tirx_attn.schedule.base import BasePlan


@dataclass(frozen=True)
class Waves:
    """Equal tasks on SMs.

    Attributes:
        tasks, sms: how many.
    """

    tasks: int
    sms: int

    @property
    def waves(self) -> int:
        """Tasks that the busiest SM takes."""
        return -(-self.tasks // self.sms)

    @property
    def efficiency(self) -> float:
        """Share of the SMs' time that is work."""
        return self.tasks / (self.waves * self.sms)


@dataclass(frozen=True)
class Balance:
    """Ends of one launch, in key blocks, by the order in which its tasks are handed out.

    Attributes:
        sms: SMs that take tasks.
        work: of all tasks.
        least: no order ends before: the mean of the SMs, or the longest task.
        arrival: the SM that is free takes the next task; head after head, queries from the first to the last.
        longest_first: the same, all tasks sorted by falling work (LPT).
        strided: sorted as well, but SM i takes the tasks i, i + sms, i + 2·sms, ...
        launched: what the plan's kernel does.
    """

    sms: int
    work: int
    least: float
    arrival: int
    longest_first: int
    strided: int
    launched: int

    @property
    def efficiency(self) -> float:
        """Share of the SMs' time that is work, in the plan's order."""
        return self.work / (self.sms * self.launched)

    def to_dict(self) -> dict[str, Any]:
        """The ends and the efficiency as JSON-able data."""
        return {**asdict(self), "efficiency": self.efficiency}


def list_schedule(work: Iterable[int], sms: int) -> int:
    """End of the last task when the SM that is free first takes the next task of the list."""
    free = [0] * sms
    for units in work:
        heapq.heapreplace(free, free[0] + units)
    return max(free)


def static_stride(work: Sequence[int], sms: int) -> int:
    """End of the last task when SM i takes every task i + n·sms of the list."""
    return max(sum(work[first::sms]) for first in range(sms))


def head_work(plan: BasePlan) -> list[int]:
    """Key blocks of the tasks of one (batch, K/V head), from the first queries to the last."""
    return [int(plan.tiles.key_blocks(m)) for m in range(plan.tiles.m_blocks)]


def task_count(plan: BasePlan) -> tuple[int, int]:
    """(batch, K/V head) pairs, and tasks of each."""
    batches, _, _ = plan.config.lengths
    return batches * plan.config.Hkv, int(plan.tiles.m_blocks)


def cta_tasks(plan: BasePlan) -> list[list[tuple[int, int]]]:
    """(pair, m_block) of the tasks of each CTA, in its order; CTAs in the order in which they are dispatched.

    Persistent CTAs stride over what they stop at, pair after pair. Other CTAs take one task each: groups of pairs go
    one after the other (`l2_heads`); within a group the longest tasks come first.
    """
    pairs, m_blocks = task_count(plan)
    if plan.is_persistent:
        tiles = plan.tiles_per_stop if isinstance(plan, HopperPlan) else 1
        stops = [[(pair, m) for m in stop] for pair in range(pairs) for stop in stops_of(m_blocks, tiles)]
        ctas = plan.grid or plan.target.sms
        return [[task for stop in stops[cta::ctas] for task in stop] for cta in range(ctas)]
    size = int(plan.l2_heads(plan.config.B, plan.config.lengths[2]))
    groups = [range(first, min(first + size, pairs)) for first in range(0, pairs, size)]
    return [[(pair, m)] for group in groups for m in reversed(range(m_blocks)) for pair in group]


def stops_of(m_blocks: int, tiles: int) -> list[tuple[int, ...]]:
    """What a persistent CTA takes at once of a pair's tasks: one, or the longest and the shortest that are left."""
    if tiles == 1:
        return [(m,) for m in range(m_blocks)]
    last = m_blocks - 1
    return [(last - i, i) if i < last - i else (i,) for i in range((m_blocks + 1) // 2)]


def launched_end(plan: BasePlan) -> int:
    """End of the launch of a plan's kernel, in key blocks."""
    one = head_work(plan)
    return list_schedule((sum(one[m] for _, m in cta) for cta in cta_tasks(plan)), plan.target.sms)


def balance(plan: BasePlan) -> Balance:
    """Ends of a plan's launch under each order.

    Raises:
        ValueError: a length is known at run time only.
    """
    pairs, m_blocks = task_count(plan)
    one = head_work(plan)
    sms = min(plan.target.sms, pairs * m_blocks)
    arrival = one * pairs
    longest_first = sorted(arrival, reverse=True)
    total = sum(arrival)
    return Balance(
        sms=plan.target.sms,
        work=total,
        least=max(total / plan.target.sms, longest_first[0]),
        arrival=list_schedule(arrival, sms),
        longest_first=list_schedule(longest_first, sms),
        strided=static_stride(longest_first, sms),
        launched=launched_end(plan),
    )
