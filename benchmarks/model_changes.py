"""Published changes of FlashAttention-4 kernels, and what the model says of them: sign and size."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.model_data import CAUSAL, FA4, FULL, TIRX, moved, plan_of, with_mma
from benchmarks.model_lab import Lab
from tirx_attn.analysis.timeline.constants import Constants
from tirx_attn.analysis.timeline.figures import blackwell
from tirx_attn.analysis.timeline.model import steady
from tirx_attn.analysis.timeline.tasks import Tasks
from tirx_attn.config import AttentionConfig
from tirx_attn.schedule import Schedule, make_plan
from tirx_attn.targets import B300, H200

FAST_MUFU = blackwell(
    "sm_103a, no emulation, the maximum before the exponentials",
    scores=338, parts=(591, 747), loop=753, mufu=129, mufu_span=(177, 736),
    instructions=421, masked_extra=434, masked_mufu=129, correction=45, mma=130, load=102, epilogue=700,
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A published change.

    Attributes:
        what: the change and the shape.
        source: who published it.
        low, high: published change of the time, in %; of `unit` otherwise.
        model: the model's.
        unit: "%", or what else low and high are.
        proxy: what was given to the model where it does not know the change itself.
    """

    what: str
    source: str
    low: float
    high: float
    model: float
    unit: str = "%"
    proxy: str = ""

    @property
    def is_right(self) -> bool:
        """A change: the sign, and the size within a factor of two of the published range. A level: within 10 %."""
        if self.unit != "%":
            return abs(self.model / self.low - 1) <= 0.1
        small, large = sorted((abs(self.low), abs(self.high)))
        return self.model * self.low > 0 and small / 2 <= abs(self.model) <= 2 * large


def changes(lab: Lab, constants: Constants) -> list[Change]:
    """All changes that the model was asked for, right or wrong."""
    return list(_changes(lab, constants))


def _changes(lab: Lab, constants: Constants) -> Iterator[Change]:
    def percent(new: float, old: float) -> float:
        return 100 * (new / old - 1)

    def knob(s: int, kv: int, causal: bool, new: Schedule, old: Schedule, figures: str) -> float:
        plans = [plan_of(s, kv, causal, schedule) for schedule in (new, old)]
        return percent(*(lab.time_us(plan, TIRX[figures], constants) for plan in plans))

    ring = replace(CAUSAL, kv_stages=2)
    deeper = "K/V ring of 2 instead of 3, causal"
    yield Change(f"{deeper}, S = 2048", "TIRx", 4.2, 4.2, knob(2048, 32, True, ring, CAUSAL, "causal"),
                 proxy="published with a deeper O stage")  # fmt: skip
    yield Change(f"{deeper}, S = 4096", "TIRx", 2.5, 2.5, knob(4096, 32, True, ring, CAUSAL, "causal"),
                 proxy="published with a deeper O stage")  # fmt: skip
    yield Change(f"{deeper}, S = 1024", "TIRx", -4.7, -4.7, knob(1024, 32, True, ring, CAUSAL, "causal"),
                 proxy="published with a deeper O stage")  # fmt: skip
    early = moved(TIRX["full"], "first part of P after 64 columns", -230.0, 0.0)
    old, new = plan_of(1024, 32, False, FULL), plan_of(1024, 32, False, replace(FULL, pv_split=(64, 64)))
    yield Change("P handed over 64 + 64 instead of 96 + 32, no mask, S = 1024", "TIRx", 2.0, 3.0,
                 percent(lab.time_us(new, early, constants), lab.time_us(old, TIRX["full"], constants)),
                 proxy="first part 230 stall cycles earlier")  # fmt: skip
    for regime, causal, base in (("full", False, FULL), ("causal", True, CAUSAL)):
        plan = plan_of(8192, 32, causal, base)
        better = moved(TIRX[regime], "better emulation", -60.0, -80.0)
        yield Change(f"better emulation of exp2, {regime}, S = 8192", "FA4 #2642", -3.4, -5.5,
                     percent(lab.time_us(plan, better, constants), lab.time_us(plan, TIRX[regime], constants)),
                     proxy="P 60 and 80 stall cycles earlier")  # fmt: skip
    apart = replace(CAUSAL, epilogue_owner="correction")
    for s in (2048, 4096):
        yield Change(f"epilogue on the softmax groups, causal, S = {s}", "TIRx", -1.9, -2.6,
                     knob(s, 32, True, CAUSAL, apart, "causal"))  # fmt: skip
    yield Change("cycles a key block, MUFU twice as fast, no emulation, no mask", "FA4 #2605, GB300", 2511, 2511,
                 _fast_mufu(lab, constants), "cycles", "sm_103a code, the maximum first as in FA4")  # fmt: skip
    yield Change("softmax waits for S, share of the time, causal, S = 1024", "TIRx", 26, 26,
                 _idle(lab, constants), "level")  # fmt: skip
    yield Change("longest tasks first instead of order of arrival, H200, S = 8192, 32k tokens", "FA4 paper", -4.0, -8.0,
                 _order(lab, constants))  # fmt: skip
    collective = replace(CAUSAL, statistics="collective")
    yield Change("statistics barrier a warpgroup instead of a warp, grouped causal, S = 4096", "TIRx", -12.0, -12.0,
                 knob(4096, 4, True, collective, CAUSAL, "grouped causal"))  # fmt: skip
    for regime, causal, kv, base, low, high in (
        ("full", False, 32, FULL, 0.5, 1.5), ("grouped causal", True, 4, CAUSAL, 4.0, 6.5)
    ):  # fmt: skip
        ours = plan_of(4096, kv, causal, base)
        theirs = plan_of(4096, kv, causal, replace(base, pv_split=(96, 32)))
        yield Change(f"FA4 instead of TIRx, {regime}, S = 4096", "table", low, high,
                     percent(lab.time_us(theirs, FA4[regime], constants), lab.time_us(ours, TIRX[regime], constants)),
                     proxy="FA4's machine code")  # fmt: skip
    plan = plan_of(8192, 32, False, FULL)
    yield Change("split descriptors in the MMA warp, no mask, S = 8192", "TIRx", -3.8, -3.8,
                 percent(lab.time_us(plan, TIRX["full"], constants),
                         lab.time_us(plan, with_mma(TIRX["full"], 263.0), constants)),
                 proxy="a fifth fewer stall cycles")  # fmt: skip


def _fast_mufu(lab: Lab, constants: Constants) -> float:
    plan = make_plan(AttentionConfig(1, 8192, 8192, 32, 32, 128), FULL, B300)
    found, played = lab.durations(plan, FAST_MUFU, constants), lab.played(plan)
    start, end, blocks = steady(found.longest, played[-1].task.blocks)
    return (end - start) / blocks


def _idle(lab: Lab, constants: Constants) -> float:
    plan = plan_of(1024, 32, True, CAUSAL)
    timeline = lab.durations(plan, TIRX["causal"], constants).longest
    start, end, _ = steady(timeline, lab.played(plan)[-1].task.blocks)
    waits = [s for s in timeline.stalls if s.role == "softmax 0" and s.edge == "s_ready"]
    return 100 * sum(max(0.0, min(s.end, end) - max(s.start, start)) for s in waits) / (end - start)


def _order(lab: Lab, constants: Constants) -> float:
    """On H200's SMs, in key blocks: the order is all that differs."""
    plan = make_plan(AttentionConfig(4, 8192, 8192, 16, 16, 128, True), CAUSAL)
    arrival = [task.blocks for task in Tasks(plan).by_m_block] * Tasks(plan).heads
    ends = []
    for order in (sorted(arrival, reverse=True), arrival):
        free = [0] * H200.sms
        for blocks in order:
            heapq.heapreplace(free, free[0] + blocks)
        ends.append(max(free))
    return 100 * (ends[0] / ends[1] - 1)


def change_table(lab: Lab, constants: Constants) -> list[str]:
    """Markdown table of all changes."""
    lines = [
        "| published change | by | published | model | right | given to the model |",
        "|---|---|---:|---:|---|---|",
    ]
    made = changes(lab, constants)
    for c in made:
        low, high = number(c.low, c.unit), number(c.high, c.unit)
        published = low if c.low == c.high else f"{low} to {high}"
        lines.append(
            f"| {c.what} | {c.source} | {published} | {number(c.model, c.unit)} | {'yes' if c.is_right else 'no'} "
            f"| {c.proxy} |"
        )
    lines.append(f"\n{sum(c.is_right for c in made)} of {len(made)} right.")
    return lines


def number(value: float, unit: str) -> str:
    """A change with its sign, or a level."""
    return f"{value:+.1f} %" if unit == "%" else f"{value:.0f}"
