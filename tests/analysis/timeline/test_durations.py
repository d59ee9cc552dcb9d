"""Lines between the tasks that are played."""

from __future__ import annotations

import pytest

from tirx_attn.analysis.timeline.durations import Durations
from tirx_attn.analysis.timeline.moments import Timeline
from tirx_attn.analysis.timeline.tasks import Task

FOUND = Durations((2, 4, 8, 16), (3000.0, 5000.0, 9000.0, 17000.0), (2400.0, 4400.0, 8400.0, 16400.0), Timeline(), 1.0)


def task(blocks: int) -> Task:
    return Task(blocks * 128, 256)


@pytest.mark.parametrize("blocks", [1, 2, 3, 6, 13, 16, 30])
def test_a_line_is_found_again(blocks):
    assert FOUND.cycles([task(blocks)]) == pytest.approx(1000 + 1000 * blocks)


def test_further_tasks_cost_less():
    assert FOUND.cycles([task(4), task(2), task(5)]) == pytest.approx(5000 + 2400 + 5400)


def test_a_task_without_keys_costs_nothing():
    assert FOUND.cycles([]) == 0.0
    assert FOUND.cycles([Task(0, 256), task(4)]) == 5000.0


def test_one_sample_goes_through_the_origin():
    single = Durations((4,), (5000.0,), (4400.0,), Timeline(), 1.0)
    assert single.cycles([task(4)]) == 5000.0
    assert single.cycles([task(4), task(4)]) == 9400.0
