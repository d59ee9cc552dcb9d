"""The model: time of a launch, and why, from a plan, its PrimFunc, its machine code and the constants."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tirx_attn.analysis.timeline.constants import Constants, constants_for
from tirx_attn.analysis.timeline.durations import Durations, Played, durations, play
from tirx_attn.analysis.timeline.figures import CodeFigures
from tirx_attn.analysis.timeline.moments import TENSOR, UNITS, Timeline
from tirx_attn.analysis.timeline.tasks import Tasks
from tirx_attn.analysis.timeline.trace import PRODUCT
from tirx_attn.family import AnyPlan
from tirx_attn.schedule.parts import ELEMENT_BYTES

CTA_SYNC = "CTA sync"
"""Where warps without a role wait for the end."""

FULL = 0.9
"""A unit that is busy for that share of the time, or of the deciding chain, is the critical resource."""


@dataclass(frozen=True)
class StallRow:
    """Waits of one role on one edge, in the steady state.

    Attributes:
        role, edge: who waits for what.
        cycles: per key block.
        share: of the time.
    """

    role: str
    edge: str
    cycles: float
    share: float


@dataclass(frozen=True)
class Prediction:
    """What the model says of one launch.

    Attributes:
        time_us: duration.
        tflops: of the visible (query, key) pairs, 10**12 operations per second.
        cycles: clock cycles of the SM that ends last, without the launch.
        clock_ghz: clock that the time was computed with.
        task_cycles: cycles of the longest task by itself.
        block_cycles: cycles of a key block of one task in the steady state, for all its query tiles.
        use: unit -> share of the steady state in which it is busy.
        path: what passes along the chain of steps that decides the time -> share of the steady state.
        critical: the resource that decides.
        first_stall: role and edge of the first wait, in a steady block, of a role that issues products.
        stalls: waits of all roles, longest first.
        figures: where the machine-code figures come from.
        constants: which constants.
    """

    time_us: float
    tflops: float
    cycles: float
    clock_ghz: float
    task_cycles: float
    block_cycles: float
    use: dict[str, float]
    path: dict[str, float]
    critical: str
    first_stall: str
    stalls: tuple[StallRow, ...]
    figures: str
    constants: str

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-able data."""
        return asdict(self)


def predict(
    plan: AnyPlan,
    figures: CodeFigures,
    *,
    func: Any = None,
    played: Sequence[Played] | None = None,
    constants: Constants | None = None,
) -> Prediction:
    """Predict one launch.

    Args:
        plan: with known lengths.
        figures: of the kernel's machine code.
        func: the PrimFunc of `Tasks(plan).open_plan()`, which is played.
        played: its plays, where they are at hand; `func` is not needed then.
        constants: None takes those of the target.

    Raises:
        ValueError: a length of the plan is known at run time only, or no query sees a key.
    """
    if plan.config.run_time_names:
        raise ValueError(f"{plan.config.run_time_names[0]} is known at run time only: allowed are fixed lengths")
    tasks, constants = Tasks(plan), constants or constants_for(plan.target)
    traces = play(tasks, func) if played is None else played
    if not traces:
        raise ValueError(f"Sq={plan.config.Sq}, Skv={plan.config.Skv}: no query sees a key, nothing is multiplied")
    lengths = durations(traces, figures, constants.machine(plan.target))
    cycles = launch_cycles(tasks, lengths, constants.cta_start)
    time_us, clock = launch_time(plan, cycles, constants)
    longest = traces[-1]
    actors = longest.traces[min(longest.traces)].actors
    issuers = {actor.role for actor in actors if any(step.kind == PRODUCT for step in actor.steps)}
    timeline, blocks = lengths.longest, longest.task.blocks
    start, end, inside = steady(timeline, blocks)
    path = {name: cycles / (end - start) for name, cycles in timeline.path(start, end).items()}
    path = dict(sorted(path.items(), key=lambda item: -item[1]))
    use = {unit: timeline.use(unit, start, end) for unit in UNITS}
    return Prediction(
        time_us=time_us,
        tflops=plan.config.flops / time_us / 1e6,
        cycles=cycles,
        clock_ghz=clock,
        task_cycles=lengths.cycles([max(tasks.by_m_block, key=lambda task: task.keys)]),
        block_cycles=(end - start) / inside,
        use=use,
        path=path,
        critical=critical(use, path),
        first_stall=first_stall(timeline, issuers, start, constants.edge),
        stalls=stall_table(timeline, start, end, inside),
        figures=figures.source,
        constants=constants.name,
    )


def launch_cycles(tasks: Tasks, lengths: Durations, cta_start: float) -> float:
    """Cycles until the last SM ends. CTAs go to the SM that is free first, in the order of their numbers."""
    known: dict[tuple[int, ...], float] = {}
    free = [0.0] * tasks.plan.target.sms
    for cta in tasks.order():
        key = tuple(task.blocks for task in cta)
        if key not in known:
            known[key] = cta_start + lengths.cycles(cta)
        heapq.heapreplace(free, free[0] + known[key])
    return max(free)


def launch_time(plan: AnyPlan, cycles: float, constants: Constants) -> tuple[float, float]:
    """Time in µs and clock in GHz; the clock depends on the time."""
    batches, _, keys = plan.config.lengths
    cold_bytes = 2 * batches * keys * plan.config.Hkv * plan.config.D * ELEMENT_BYTES if constants.cold else 0
    fixed = constants.launch_us + cold_bytes / plan.target.hbm_tb_per_second / 1e6
    clock = plan.target.clock_ghz
    for _ in range(8):
        clock = constants.clock_ghz(plan.target, fixed + cycles / clock / 1e3)
    return fixed + cycles / clock / 1e3, clock


def steady(timeline: Timeline, blocks: int) -> tuple[float, float, int]:
    """(start, end, key blocks) of the steady part of a task: without its first and last quarter where it is long."""
    products = timeline.busy[TENSOR]
    skip = blocks // 4 if blocks >= 8 else 0
    per_block = len(products) / blocks
    first = products[round(skip * per_block) - 1][1] if skip else products[0][0]
    last = products[round((blocks - skip) * per_block) - 1][1]
    return first, last, blocks - 2 * skip


def critical(use: dict[str, float], path: dict[str, float]) -> str:
    """A unit that is full, or else what makes up most of the chain that decides."""
    busiest = max(use, key=lambda unit: use[unit])
    if use[busiest] >= FULL:
        return busiest
    groups = by_role(path)
    return max(groups, key=lambda group: groups[group])


def by_role(path: dict[str, float]) -> dict[str, float]:
    """A path in which the warpgroups of a role count as one."""
    groups: dict[str, float] = {}
    for name, share in path.items():
        role, _, what = name.partition(": ")
        group = f"{role.partition(' ')[0]} {what}" if what else name
        groups[group] = groups.get(group, 0.0) + share
    return groups


def first_stall(timeline: Timeline, issuers: set[str], start: float, edge: float) -> str:
    """Role and edge of the first wait that is longer than an edge takes by itself, of those that issue products."""
    waits = [s for s in timeline.stalls if s.role in issuers and s.start >= start and s.end - s.start > edge]
    first = min(waits, key=lambda stall: stall.start, default=None)
    return f"{first.role} on {first.edge}" if first else "none"


def stall_table(timeline: Timeline, start: float, end: float, blocks: int) -> tuple[StallRow, ...]:
    """Waits within a window, by role and edge."""
    found: dict[tuple[str, str], float] = {}
    for stall in timeline.stalls:
        inside = min(stall.end, end) - max(stall.start, start)
        if inside > 0 and stall.edge != CTA_SYNC:
            found[stall.role, stall.edge] = found.get((stall.role, stall.edge), 0.0) + inside
    rows = [StallRow(role, edge, cycles / blocks, cycles / (end - start)) for (role, edge), cycles in found.items()]
    return tuple(sorted(rows, key=lambda row: -row.cycles))
