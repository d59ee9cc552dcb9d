"""HopperSchedule: its defaults, what it refuses with which words, and the tuning table."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from tirx_attn import AttentionConfig, HopperSchedule, Schedule
from tirx_attn.hopper.plan import make_hopper_plan
from tirx_attn.hopper.tuning import HOPPER_TUNING_TABLE, hopper_tuning_row
from tirx_attn.targets import H200


def test_defaults():
    schedule = HopperSchedule()
    assert (schedule.consumers, schedule.rows, schedule.kv_stages, schedule.q_stages) == (2, 128, 4, 2)
    assert (schedule.consumer_registers, schedule.producer_registers) == (240, 24)
    assert HopperSchedule(consumers=3).rows == 192


def test_it_is_frozen():
    with pytest.raises(FrozenInstanceError):
        HopperSchedule().kv_stages = 5


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"consumers": 1}, ValueError, "consumers=1: allowed values are 2 and 3"),
        ({"kv_stages": 2}, ValueError, "kv_stages=2: allowed values are integers from 3"),
        ({"kv_stages": 4.0}, TypeError, r"kv_stages=4.0 \(float\): allowed values are integers"),
        ({"kv_stages": True}, TypeError, r"kv_stages=True \(bool\)"),
        ({"q_stages": 3}, ValueError, "q_stages=3: allowed values are 1 and 2"),
        ({"ping_pong": 1}, TypeError, "ping_pong=1: allowed values are True and False"),
        ({"consumer_registers": 239}, ValueError, "consumer_registers=239: allowed values are multiples of 8"),
        ({"producer_registers": 16}, ValueError, "producer_registers=16: allowed values are multiples of 8 from 24"),
        ({"persistent_ctas": 0}, ValueError, "persistent_ctas=0: allowed values are None and positive integers"),
        ({"persistent_ctas": "all"}, TypeError, "persistent_ctas='all'"),
    ],
)
def test_refused(changes, error, message):
    with pytest.raises(error, match=message):
        HopperSchedule(**changes)


def test_every_tuning_row_is_reached_and_is_the_default_of_a_plan():
    reached = set()
    for d in (64, 128):
        for causal in (False, True):
            for heads in (1, 2):
                config = AttentionConfig(1, 256, 256, heads, 1, d, causal)
                row = hopper_tuning_row(config, H200)
                assert make_hopper_plan(config).schedule is row.schedule
                reached.add((row.id, heads))
    assert {name for name, _ in reached} == {row.id for row in HOPPER_TUNING_TABLE} == {f"H{i}" for i in range(1, 7)}
    grouped = {name: {heads > 1 for each, heads in reached if each == name} for name, _ in reached}
    assert grouped == {
        "H1": {True, False}, "H2": {True, False}, "H3": {True}, "H4": {True}, "H5": {False}, "H6": {False},
    }  # fmt: skip


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("heads", [(1, 1), (16, 16), (2, 1), (32, 8)])
def test_consumers_take_turns_but_for_a_causal_mask_without_groups(d, heads):
    for causal in (False, True):
        schedule = make_hopper_plan(AttentionConfig(1, 256, 256, *heads, d, causal)).schedule
        assert schedule.ping_pong == (not causal or heads[0] > heads[1])


def test_a_schedule_for_blackwell_is_refused():
    with pytest.raises(TypeError, match=r"schedule=Schedule\(.*allowed values are None and tirx_attn.HopperSchedule"):
        make_hopper_plan(AttentionConfig(1, 256, 256, 1, 1, 128), Schedule())
