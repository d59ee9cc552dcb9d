"""Tasks and their order against small cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tirx_attn import AttentionConfig, Schedule
from tirx_attn.analysis.timeline.tasks import Task, Tasks
from tirx_attn.family import plan_for


def tasks(*sizes: int, causal: bool = False, arch: str = "sm_100a", schedule: object = None) -> Tasks:
    return Tasks(plan_for(AttentionConfig(*sizes, causal), schedule, arch))  # type: ignore[arg-type]


def blocks(order: list[list[Task]]) -> list[list[int]]:
    return [[task.blocks for task in cta] for cta in order]


def test_without_a_mask_ctas_stride_over_equal_tasks():
    found = tasks(1, 1024, 512, 50, 50, 128)
    order = blocks(found.order())
    # 50 heads x 4 tasks of 4 key blocks on 148 CTAs
    assert len(order) == 148
    assert [len(cta) for cta in order] == [2] * 52 + [1] * 96
    assert {length for cta in order for length in cta} == {4}


def test_with_a_mask_the_longest_of_the_heads_in_l2_come_first():
    found = tasks(1, 768, 768, 3, 3, 128, causal=True, schedule=Schedule(l2_budget=2 * 768 * 512))
    # two heads fit: theirs from the longest on, then the third head's
    assert blocks(found.order()) == [[n] for n in (6, 6, 4, 4, 2, 2, 6, 4, 2)]


def test_hopper_pairs_a_long_and_a_short_tile():
    found = tasks(1, 640, 640, 2, 2, 128, causal=True, arch="sm_90a")
    assert blocks(found.order()) == [[5, 1], [4, 2], [3]] * 2


@pytest.mark.parametrize(
    ("sizes", "keys"),
    [
        ((1, 512, 512, 1, 1, 128), [256, 512]),
        ((1, 512, 1024, 1, 1, 128), [768, 1024]),
        ((1, 512, 256, 1, 1, 128), [0, 256]),
        ((1, 300, 300, 8, 1, 128), [*(32 * m for m in range(1, 10)), 300]),
    ],
)
def test_keys_of_causal_tasks(sizes, keys):
    assert [task.keys for task in tasks(*sizes, causal=True).by_m_block] == keys


def test_careful_blocks():
    plain, grouped = tasks(1, 512, 512, 1, 1, 128, causal=True), tasks(1, 512, 512, 8, 1, 128, causal=True)
    # the first query tile of a task does not see the last block at all, and half of the one before
    assert [plain.careful(plain.by_m_block[1], stage) for stage in (0, 1)] == [2, 1]
    assert [grouped.careful(grouped.by_m_block[-1], stage) for stage in (0, 1)] == [1, 1]
    full = tasks(1, 512, 500, 1, 1, 128)
    assert full.careful(full.by_m_block[0], 0) == 1


def test_samples_are_few_and_reach_far_enough():
    causal = tasks(1, 16384, 16384, 1, 1, 128, causal=True)
    lengths = [task.blocks for task in causal.samples()]
    assert lengths == [2, 3, 4, 6, 8, 12, 16, 24]
    assert [task.blocks for task in tasks(1, 256, 16384, 1, 1, 128).samples()] == [12, 24]
    assert [task.blocks for task in tasks(1, 256, 1000, 1, 1, 128).samples()] == [8]
    assert tasks(1, 256, 1000, 1, 1, 128).samples()[0].keys == 1000
    assert tasks(1, 512, 128, 1, 1, 128, causal=True).samples()


@pytest.mark.parametrize("arch", ["sm_100a", "sm_90a"])
@pytest.mark.parametrize("heads", [1, 16, 32])
def test_short_launches_take_a_task_as_often_as_they_say(arch, heads):
    found = tasks(1, 4096, 4096, heads, heads, 128, arch=arch)
    task = found.samples()[0]
    for count in (1, 2):
        sizes = found.sizes(task, count)
        plan = found.open_plan()
        launched = replace(plan.config, **sizes)
        assert Tasks(plan_for(launched, plan.schedule, arch)).order()[0] == [task] * found.repeats(count)
    assert found.repeats(1) == 1
    assert found.repeats(2) == 2
