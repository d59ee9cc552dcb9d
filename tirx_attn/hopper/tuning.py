"""Tuning table of the sm_90a kernel. docs/tuning.md explains each row id."""

from __future__ import annotations

from tirx_attn.config import AttentionConfig
from tirx_attn.hopper.schedule import HopperSchedule
from tirx_attn.schedule.tuning import TuningRow
from tirx_attn.targets import Target

HOPPER_TUNING_TABLE = (
    TuningRow(
        "H4",
        "head size 128, non-causal, grouped heads",
        lambda c, t: c.D == 128 and not c.is_causal and c.ratio > 1,
        HopperSchedule(kv_stages=3),
    ),
    TuningRow(
        "H5",
        "head size 128, causal, no groups",
        lambda c, t: c.D == 128 and c.is_causal and c.ratio == 1,
        HopperSchedule(ping_pong=False),
    ),
    TuningRow("H1", "head size 128, otherwise", lambda c, t: c.D == 128, HopperSchedule()),
    TuningRow(
        "H2",
        "head size 64, non-causal",
        lambda c, t: not c.is_causal,
        HopperSchedule(consumers=3, kv_stages=3, consumer_registers=160, producer_registers=32),
    ),
    TuningRow(
        "H6",
        "head size 64, causal, no groups",
        lambda c, t: c.ratio == 1,
        HopperSchedule(kv_stages=3, ping_pong=False),
    ),
    TuningRow("H3", "head size 64, causal, grouped heads", lambda c, t: True, HopperSchedule(kv_stages=3)),
)


def hopper_tuning_row(config: AttentionConfig, target: Target) -> TuningRow:
    """The first row of the table that applies."""
    return next(row for row in HOPPER_TUNING_TABLE if row.applies(config, target))
