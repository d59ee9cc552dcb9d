"""Order of the tasks: TVM's own schedulers as the roles use them, `Context.tasks`, run thread by thread."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.tir import Thread
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.schedule import Plan, make_plan
from tirx_attn.schedule.parts import Launch

FULL = AttentionConfig(2, 600, 256, 4, 2, 128)
CAUSAL = replace(FULL, is_causal=True)

EXAMPLE = make_plan(AttentionConfig(1, 512, 512, 4, 2, 128, True))
"""Two K/V heads of four tasks each that walk 1, 2, 3 and 4 key blocks."""


def walker_kernel(make_tasks, tasks: int, ctas: int, has_counts: bool = False):
    """ORDER[linear task index] = CTA, turn, batch, K/V head, m_block, written by one warp per CTA.

    `make_tasks` gets three int32 variables: batches, m_blocks, heads in L2. They are parameters if `has_counts`.
    """
    from tvm.script import tirx as T
    from tvm.tirx import PrimFunc

    @T.prim_func
    def walker(order: T.handle, batches: T.int32, m_blocks: T.int32, l2_heads: T.int32):
        ORDER = T.match_buffer(order, (tasks, 5), "int32")
        T.device_entry()
        cta = T.cta_id([ctas])
        T.thread_id([32])
        turn = T.local_scalar("int32")
        task = make_tasks(batches, m_blocks, l2_heads)
        turn = 0
        task.init(cta)
        while task.valid():
            ORDER[task.linear_idx, 0] = cta
            ORDER[task.linear_idx, 1] = turn
            ORDER[task.linear_idx, 2] = task.batch_idx
            ORDER[task.linear_idx, 3] = task.head_idx
            ORDER[task.linear_idx, 4] = task.m_block_idx
            turn = turn + 1
            task.next_tile()

    return walker if has_counts else PrimFunc(walker.params[:1], walker.body, walker.ret_type, walker.attrs)


def walk(kernel, tasks: int, ctas: int, *counts: int) -> list[list[int]]:
    """The rows of ORDER; -1 where no CTA went."""
    order = np.full((tasks, 5), -1)
    for cta in range(ctas):
        thread = Thread(cta, {"ORDER": order})
        thread.scalars.update(zip(kernel.params[1:], counts, strict=True))
        thread.run(kernel.body)
    return order.tolist()


def plan_kernel(plan: Plan, launched: Plan | None = None):
    """The walker over the tasks that every role of the kernel of `plan` walks.

    Where the plan leaves sizes open, `launched` is the plan of the sizes of the launch, whose counts are parameters.
    """
    from tirx_attn.roles.context import Context
    from tirx_attn.roles.parameters import Counts, Parameters

    def tasks(batches, m_blocks, l2_heads):
        context = object.__new__(Context)
        context.plan, context.config = plan, plan.config
        if launched is None:
            context.counts = Parameters(plan).counts()
        else:
            context.counts = Counts(batches, None, None, m_blocks, None, l2_heads)
        return context.tasks("role")

    total = (launched or plan).tasks
    return walker_kernel(tasks, total, total if plan.grid is None else plan.grid, has_counts=launched is not None)


def walk_plan(plan: Plan) -> list[list[int]]:
    return walk(plan_kernel(plan), plan.tasks, plan.grid)


def walk_open(plan: Plan, launched: Plan) -> list[list[int]]:
    """The walk of a kernel that reads its sizes at run time, launched on those of another plan."""
    counts = (launched.config.B, launched.tiles.m_blocks, launched.l2_heads())
    return walk(plan_kernel(plan, launched), launched.tasks, plan.grid or launched.tasks, *counts)


def all_tasks(plan: Plan) -> list[tuple[int, int, int]]:
    config = plan.config
    return [(b, h, m) for b in range(config.B) for h in range(config.Hkv) for m in range(plan.tiles.m_blocks)]


@pytest.mark.parametrize("ctas", [1, 2, 5, 20])
def test_full_tasks_are_dealt_to_the_ctas_in_turn(ctas):
    plan = make_plan(FULL, Schedule(persistent_ctas=ctas))
    order = walk_plan(plan)
    assert plan.tasks == 2 * 2 * 5
    assert [task for _, _, *task in order] == [list(task) for task in all_tasks(plan)]
    assert [(cta, turn) for cta, turn, *_ in order] == [(i % ctas, i // ctas) for i in range(plan.tasks)]


@pytest.mark.parametrize(("fit", "l2_heads"), [(1, 1), (2, 2), (3, 2), (4, 4)])
def test_causal_tasks_run_longest_first_within_an_l2_group(fit, l2_heads):
    head_bytes = 2 * CAUSAL.Skv * CAUSAL.D * 2
    plan = make_plan(CAUSAL, Schedule(l2_budget=fit * head_bytes))
    assert plan.l2_heads() == l2_heads
    order = walk_plan(plan)
    assert sorted(tuple(task) for _, _, *task in order) == all_tasks(plan)
    assert [(cta, turn) for cta, turn, *_ in order] == [(i, 0) for i in range(plan.tasks)]  # one task a CTA
    heads = [2 * batch + head for _, _, batch, head, _ in order]
    work = [plan.tiles.key_blocks(m_block) for *_, m_block in order]
    for start in range(0, 4, l2_heads):
        group = [i for i, head in enumerate(heads) if start <= head < start + l2_heads]
        assert group == list(range(group[0], group[-1] + 1)), "groups follow each other"
        assert [work[i] for i in group] == sorted((work[i] for i in group), reverse=True)


@pytest.mark.parametrize(
    ("arguments", "l2_budget"),
    [((3, 300, 300, 5, 5, 128, True), 2**20), ((1, 1, 1, 1, 1, 128, True), 1), ((2, 16, 16, 128, 1, 128, True), 2**14)],
)
def test_every_causal_task_occurs_once(arguments, l2_budget):
    plan = make_plan(AttentionConfig(*arguments), Schedule(l2_budget=l2_budget))
    assert sorted(tuple(task) for _, _, *task in walk_plan(plan)) == all_tasks(plan)


SIZES = [
    pytest.param(sizes, marks=pytest.mark.slow if depth else (), id=str(sizes))
    for sizes, depth in {
        (1, 1, 1): False,
        (1, 600, 256): True,
        (2, 600, 256): True,
        (3, 256, 4096): True,
        (5, 300, 700): False,
    }.items()
]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("ctas", [1, 7, 64])
def test_full_tasks_of_a_run_time_batch_are_dealt_in_turn(sizes, ctas):
    schedule = Schedule(persistent_ctas=ctas)
    launched = make_plan(AttentionConfig(*sizes, 9, 3, 64), schedule)
    order = walk_open(make_plan(AttentionConfig(None, None, None, 9, 3, 64), schedule), launched)
    assert order == walk_plan(launched)
    assert [tuple(task) for _, _, *task in order] == all_tasks(launched)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("surplus", [None, 0, 3])
def test_causal_tasks_of_a_run_time_batch_run_in_the_same_order(sizes, surplus):
    """One CTA a task, or a fixed grid whose surplus CTAs find none."""
    schedule = Schedule(l2_budget=2**20)
    launched = make_plan(AttentionConfig(*sizes, 9, 3, 64, True), schedule)
    launch = Launch(grid=None if surplus is None else launched.tasks + surplus)
    plan = make_plan(AttentionConfig(None, None, None, 9, 3, 64, True), schedule, launch=launch)
    order = walk_open(plan, launched)
    assert order == walk_plan(launched)
    assert sorted(tuple(task) for _, _, *task in order) == all_tasks(launched)


def works(order) -> list[int]:
    """Key blocks of the example's tasks, in the order of the walk."""
    return [EXAMPLE.tiles.key_blocks(m_block) for *_, m_block in order]


def makespan(jobs: list[int], sms: int) -> int:
    """End of the last job when the SM that is free first takes the next job of the list."""
    free = [0] * sms
    for job in jobs:
        heapq.heappush(free, heapq.heappop(free) + job)
    return max(free)


def linear_order():
    from tvm.tirx.lang.tile_scheduler import FlashAttentionLinearScheduler

    return walk(walker_kernel(lambda *_: FlashAttentionLinearScheduler("role", 1, 2, 4, 8), 8, 8), 8, 8)


def test_the_example_has_jobs_of_1_to_4_twice():
    assert (EXAMPLE.tasks, EXAMPLE.l2_heads()) == (8, 2)
    assert works(linear_order()) == [1, 2, 3, 4, 1, 2, 3, 4]
    assert works(walk_plan(EXAMPLE)) == [4, 4, 3, 3, 2, 2, 1, 1]


def test_longest_first_ends_at_7_and_arrival_order_at_9():
    """Textbook list scheduling on 3 SMs; 20 units of work cannot end before 7."""
    assert makespan(works(walk_plan(EXAMPLE)), 3) == 7
    assert makespan(works(linear_order()), 3) == 9


def test_a_fixed_stride_over_longest_first_ends_at_8():
    """Why causal CTAs take one task each: the hardware hands out the next CTA to the SM that is free."""
    jobs = works(walk_plan(EXAMPLE))
    assert max(sum(jobs[sm::3]) for sm in range(3)) == 8


@pytest.mark.simulator
@pytest.mark.slow
@pytest.mark.recorded("tirx_attn/schedule", "tests/schedule/tir.py")
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(make_plan(FULL, Schedule(persistent_ctas=5)), id="full"),
        pytest.param(make_plan(CAUSAL, Schedule(l2_budget=3 * 2**17)), id="causal"),
    ],
)
def test_the_simulator_walks_the_same_way(plan):
    """The interpreter of these tests against the simulator; the causal order ends with an L2 group of one head."""
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")
    from tirx_attn import verify

    order = verify.run(plan_kernel(plan), {}, time_limit=600).outputs["ORDER"]
    assert order.tolist() == walk_plan(plan)
