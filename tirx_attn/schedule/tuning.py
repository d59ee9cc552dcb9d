"""Tuning table: which Schedule a problem gets when the caller names none. docs/tuning.md explains each row id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.schedule.schedule import Schedule
from tirx_attn.targets import Target


@dataclass(frozen=True)
class TuningRow:
    """One regime and its Schedule.

    Attributes:
        id: row of docs/tuning.md that says why.
        regime: the problems it is for, in words.
        applies: predicate on problem and target; the first row that applies is taken.
        schedule: the knobs; on Blackwell with the K/V ring of head size 128.
    """

    id: str
    regime: str
    applies: Callable[[AttentionConfig, Target], bool]
    schedule: Any


MUFU_BOUND_RATE = 16
"""exp2 results per clock and SM at which MUFU.EX2 is as slow as the MMA, so that emulation pays."""

KV_STAGES = {128: 3, 64: 6}
"""Slots of the K/V ring by head size: the same bytes of shared memory, in every regime."""

_NO_EMULATION = (0, 0, 0, 0)
_CAUSAL: dict[str, Any] = {"pv_split": (64, 64), "epilogue_owner": "softmax"}

TUNING_TABLE = (
    TuningRow(
        "T1",
        "non-causal, MUFU-bound target",
        lambda c, t: not c.is_causal and t.exp2_per_clock <= MUFU_BOUND_RATE,
        Schedule(emulated_pairs=(2, 2, 2, 2)),
    ),
    TuningRow(
        "T2",
        "causal, MUFU-bound target",
        lambda c, t: c.is_causal and t.exp2_per_clock <= MUFU_BOUND_RATE,
        Schedule(emulated_pairs=(3, 3, 3, 3), **_CAUSAL),
    ),
    TuningRow(
        "T3",
        "non-causal, fast MUFU",
        lambda c, t: not c.is_causal,
        Schedule(emulated_pairs=_NO_EMULATION),
    ),
    TuningRow(
        "T4",
        "causal, fast MUFU",
        lambda c, t: True,
        Schedule(emulated_pairs=_NO_EMULATION, **_CAUSAL),
    ),
)


def tuning_row(config: AttentionConfig, target: Target) -> TuningRow:
    """The first row of the table that applies, with the ring of the problem's head size."""
    row = next(row for row in TUNING_TABLE if row.applies(config, target))
    stages = KV_STAGES[config.D]
    return row if row.schedule.kv_stages == stages else replace(row, schedule=replace(row.schedule, kv_stages=stages))


def tuned_schedule(config: AttentionConfig, target: Target) -> Schedule:
    """Schedule of `tuning_row`."""
    return tuning_row(config, target).schedule
