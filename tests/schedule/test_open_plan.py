"""Plans of sizes that are known at the launch only: grid, tasks and heads in L2, those beside fixed sizes."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tests.schedule.tir import evaluate, simplify
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.schedule import make_plan
from tirx_attn.schedule.parts import Launch

CAUSAL = AttentionConfig(1, 8192, 8192, 32, 32, 128, True)
OPEN = AttentionConfig(None, None, None, 6, 2, 64)


@pytest.mark.parametrize("name", ["B", "Sq", "Skv"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_tasks_follow_from_batch_and_queries(name, causal):
    """Three tasks where both are known; else only a persistent grid has a size."""
    plan = make_plan(AttentionConfig(**{"B": 1, "Sq": 256, "Skv": 256, "Hq": 3, "Hkv": 3, "D": 128, name: None}))
    plan = replace(plan, config=replace(plan.config, is_causal=causal))
    assert plan.tasks == (3 if name == "Skv" else None)
    assert plan.grid == (3 if name == "Skv" else None if causal else 148)


@pytest.mark.parametrize(("asked", "grid"), [(None, 148), (1, 1), (5, 5), (1000, 1000)])
def test_a_persistent_grid_of_a_run_time_batch(asked, grid):
    assert make_plan(OPEN, Schedule(persistent_ctas=asked)).grid == grid


@pytest.mark.parametrize("grid", [None, 1, 24])
def test_a_launch_fixes_the_grid_of_causal_run_time_plans_only(grid):
    launch = Launch(grid=grid)
    assert make_plan(replace(OPEN, is_causal=True), launch=launch).grid == grid
    assert make_plan(OPEN, launch=launch).grid == 148
    assert make_plan(CAUSAL, launch=launch).grid == 1024


L2_PROBLEMS = pytest.mark.parametrize(
    ("arguments", "budget", "heads"),
    [
        ((1, 8192, 8192, 32, 32, 128, True), 50 * 2**20, 11),  # K and V of a head: 4 MiB; 12 fit: 11 + 11 + 10
        ((1, 8192, 8192, 32, 32, 64, True), 50 * 2**20, 16),  # 25 fit: 16 + 16
        ((1, 8192, 8192, 32, 32, 128, True), 4 * 2**20, 1),
        ((1, 8192, 8192, 32, 32, 128, True), 4 * 2**20 - 1, 1),
        ((1, 8192, 8192, 32, 32, 128, True), 8 * 2**20 - 1, 1),
        ((1, 8192, 8192, 32, 32, 128, True), 8 * 2**20, 2),
        ((1, 8192, 8192, 32, 32, 128, True), 1, 1),
        ((2, 256, 256, 4, 2, 128, True), 50 * 2**20, 4),  # never more than there are
        ((1, 1, 1, 2, 2, 64, True), 2**31 - 1, 2),
        ((1, 2048, 4194304, 8, 1, 128, True), 50 * 2**20, 1),  # I1: K and V of a head have 2**31 bytes
        ((3, 2048, 2**30 - 256, 8, 8, 128, True), 2**31 - 1, 1),
    ],
)


@L2_PROBLEMS
def test_heads_in_the_l2_budget(arguments, budget, heads):
    batches, _, skv, _, hkv, d, _ = arguments
    fit = max(1, min(budget // (2 * skv * d * 2), batches * hkv))
    groups = math.ceil(batches * hkv / fit)
    assert heads == math.ceil(batches * hkv / groups) <= fit
    plan = make_plan(AttentionConfig(*arguments), Schedule(l2_budget=budget))
    assert plan.l2_heads() == heads
    assert plan.to_dict()["launch"]["l2_heads"] == heads


@L2_PROBLEMS
def test_heads_in_the_l2_budget_of_run_time_lengths(arguments, budget, heads):
    from tvm import tirx

    batches, _, skv, *rest = arguments
    plan = make_plan(AttentionConfig(None, None, None, *rest), Schedule(l2_budget=budget))
    assert plan.l2_heads(batches, skv) == heads
    assert plan.to_dict()["launch"]["l2_heads"] is None
    expression = plan.l2_heads(tirx.Var("batches", "int32"), tirx.Var("skv", "int32"))
    for form in (expression, simplify(expression)):
        assert evaluate(form, batches=batches, skv=skv) == heads


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_a_plan_of_run_time_sizes_says_what_is_open(causal):
    data = json.loads(json.dumps(make_plan(replace(OPEN, is_causal=causal)).to_dict()))
    assert {name: data["config"][name] for name in ("B", "Sq", "Skv", "Hq")} == {
        "B": None,
        "Sq": None,
        "Skv": None,
        "Hq": 6,
    }
    assert data["launch"] == {
        "grid": None if causal else 148,
        "threads": 512,
        "tasks": None,
        "m_blocks": None,
        "persistent": not causal,
        "l2_heads": None,
    }
