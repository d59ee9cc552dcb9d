"""List scheduling by hand, waves, and the plan's order held against the scheduler that the kernel uses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.schedule.test_task_order import walk_plan
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.analysis.waves import (
    Waves,
    balance,
    cta_tasks,
    list_schedule,
    static_stride,
    stops_of,
)
from tirx_attn.hopper.plan import make_hopper_plan
from tirx_attn.schedule import make_plan

FULL = AttentionConfig(1, 8192, 8192, 32, 32, 128)
CAUSAL = replace(FULL, is_causal=True)
ARRIVAL, SORTED = [1, 2, 3, 4] * 2, [4, 4, 3, 3, 2, 2, 1, 1]


def test_the_courses_example():
    """Work of 1, 2, 3 and 4 twice on 3 SMs."""
    assert list_schedule(ARRIVAL, 3) == 9
    assert list_schedule(SORTED, 3) == 7
    assert static_stride(SORTED, 3) == 8


def test_more_sms_than_tasks():
    assert list_schedule([3, 5], 4) == static_stride([3, 5], 4) == 5


@pytest.mark.parametrize(
    ("tasks", "waves", "efficiency"), [(148, 1, 1.0), (149, 2, 149 / 296), (1024, 7, 1024 / 1036), (1, 1, 1 / 148)]
)
def test_waves(tasks, waves, efficiency):
    made = Waves(tasks, 148)
    assert (made.waves, made.efficiency) == (waves, efficiency)


def test_equal_tasks_come_in_waves():
    made = balance(make_plan(FULL))
    assert made.launched == made.arrival == made.longest_first == Waves(1024, 148).waves * 64
    assert made.efficiency == pytest.approx(Waves(1024, 148).efficiency)


def test_longest_first_beats_arrival_and_stride():
    """Tasks of 2, 4, ... 64 blocks, 32 heads: 33,792 in all, 228.3 for each of 148 SMs."""
    made = balance(make_plan(CAUSAL))
    assert made.work == 32 * sum(range(2, 65, 2))
    assert made.least == pytest.approx(33792 / 148)
    assert made.least < made.longest_first < made.strided < made.arrival
    assert made.longest_first <= made.launched < made.strided


@pytest.mark.parametrize("config", [FULL, CAUSAL, AttentionConfig(1, 1000, 1777, 3, 1, 64, True)])
@pytest.mark.parametrize("make", [make_plan, make_hopper_plan])
def test_no_order_ends_before_the_least(config, make):
    made = balance(make(config))
    assert made.least <= min(made.arrival, made.longest_first, made.strided, made.launched)
    assert 0 < made.efficiency <= 1


@pytest.mark.parametrize(("fit", "l2_heads"), [(1, 1), (2, 2), (4, 3), (6, 6)])
def test_the_order_is_the_schedulers(fit, l2_heads):
    """Six pairs of batch and K/V head; of those that fit, 4 and 2 would leave a smaller group than 3 and 3 do."""
    config = AttentionConfig(2, 600, 256, 6, 3, 128, True)
    plan = make_plan(config, Schedule(l2_budget=fit * 2 * config.Skv * config.D * 2))
    assert plan.l2_heads() == l2_heads
    assert cta_tasks(plan) == [[(3 * batch + head, m)] for _, _, batch, head, m in walk_plan(plan)]


@pytest.mark.parametrize(
    ("m_blocks", "tiles", "stops"),
    [(4, 1, [(0,), (1,), (2,), (3,)]), (4, 2, [(3, 0), (2, 1)]), (3, 2, [(2, 0), (1,)]), (1, 2, [(0,)])],
)
def test_stops_of_a_persistent_kernel(m_blocks, tiles, stops):
    assert stops_of(m_blocks, tiles) == stops


def test_persistent_ctas_stride_over_the_pairs():
    """Three heads of two tasks on four CTAs: the fifth and sixth task go to the first two."""
    plan = make_plan(AttentionConfig(1, 512, 256, 3, 3, 128), Schedule(persistent_ctas=4))
    assert cta_tasks(plan) == [[(0, 0), (2, 0)], [(0, 1), (2, 1)], [(1, 0)], [(1, 1)]]
