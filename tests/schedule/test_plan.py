"""Plan: memory maps, registers and launch, as numbers and as properties of every shared case."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.cases import CASES
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.schedule import Plan, make_plan
from tirx_attn.targets import B200

FULL = AttentionConfig(1, 8192, 8192, 32, 32, 128)
CAUSAL = replace(FULL, is_causal=True)
OPEN = AttentionConfig(None, None, None, 6, 2, 64)
TILE = 32 * 1024
"""Bytes of 128 rows of 128 fp16 elements."""

HALF = 16 * 1024
"""The same of 64 elements."""

PLANS = [
    *[pytest.param(make_plan(case.config, case.schedule), id=case.name) for case in CASES],
    pytest.param(make_plan(OPEN), id="open"),
    pytest.param(make_plan(replace(OPEN, is_causal=True, dtype="bf16", scale="runtime", return_lse=True)), id="all"),
]


def spans(regions) -> list[tuple[str, int, int]]:
    return [(region.name, region.start, region.end) for region in regions]


def overlap(a, b) -> bool:
    return a.start < b.end and b.start < a.end


@pytest.mark.parametrize("config", [FULL, CAUSAL], ids=["full", "causal"])
def test_tensor_memory_map(config):
    tmem = make_plan(config).tmem
    assert spans(tmem.s) == [("s0", 0, 128), ("s1", 128, 256)]
    assert spans(tmem.p) == [("p0", 64, 128), ("p1", 192, 256)]
    assert spans(tmem.o) == [("o0", 256, 384), ("o1", 384, 512)]
    assert tmem.columns == 512
    assert tmem.regions == (*tmem.s, *tmem.p, *tmem.o)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_tensor_memory_map_of_head_size_64(causal):
    tmem = make_plan(replace(OPEN, is_causal=causal)).tmem
    assert spans(tmem.s) == [("s0", 0, 128), ("s1", 128, 256)]
    assert spans(tmem.p) == [("p0", 384, 448), ("p1", 448, 512)]
    assert spans(tmem.o) == [("o0", 256, 320), ("o1", 320, 384)]
    assert tmem.columns == 512


@pytest.mark.parametrize("plan", PLANS)
def test_tensor_memory_regions_overlap_only_where_declared(plan):
    tmem = plan.tmem
    owned = [*tmem.s, *tmem.o]
    for p, s in zip(tmem.p, tmem.s, strict=True):
        assert p.size * 2 == s.size
        if plan.config.D == 128:
            assert p.end == s.end  # the upper half of its own S
        else:
            owned.append(p)
    assert not any(overlap(a, b) for a in owned for b in owned if a is not b)
    assert all(0 <= region.start < region.end <= plan.target.tmem_columns for region in tmem.regions)


def test_shared_memory_map_of_three_slots():
    smem = make_plan(FULL).smem
    assert spans(smem.regions) == [
        ("q", 0, 2 * TILE),
        ("kv", 2 * TILE, 5 * TILE),
        ("o", 5 * TILE, 7 * TILE),
        ("acc_scale", 7 * TILE, 7 * TILE + 1024),
        ("row_sum", 7 * TILE + 1024, 7 * TILE + 2048),
        ("control", 7 * TILE + 2048, 7 * TILE + 3072),
    ]
    assert smem.size == 232448  # all that a CTA may have


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_shared_memory_map_of_head_size_64(causal):
    """With a causal mask softmax keeps row_sum in its registers, for the epilogue is its own."""
    smem = make_plan(replace(OPEN, is_causal=causal)).smem
    sums = 10 * HALF + 1024 + (0 if causal else 1024)
    assert spans(smem.regions) == [
        ("q", 0, 2 * HALF),
        ("kv", 2 * HALF, 8 * HALF),
        ("o", 8 * HALF, 10 * HALF),
        ("acc_scale", 10 * HALF, 10 * HALF + 1024),
        ("row_sum", 10 * HALF + 1024, sums),
        ("control", sums, sums + 1024),
    ]
    assert smem.size == (165888 if causal else 166912)


@pytest.mark.parametrize("plan", PLANS)
def test_shared_memory_regions_are_disjoint_and_aligned(plan):
    regions = plan.smem.regions
    for before, after in pairwise(regions):
        assert before.end == after.start
    for tiles in (plan.smem.q, plan.smem.kv, plan.smem.o):
        assert tiles.start % 1024 == 0  # the 128-byte swizzle repeats every 1024 bytes
        assert tiles.size % plan.tile_bytes == 0
    assert plan.tile_bytes == 128 * plan.config.D * 2
    assert plan.smem.kv.size == plan.schedule.kv_stages * plan.tile_bytes
    statistic = 0 if plan.schedule.statistics == "tmem" else 2 * 128 * 4
    assert plan.smem.o.size == plan.schedule.o_stages * plan.tile_bytes
    assert plan.smem.acc_scale.size == statistic
    assert plan.smem.row_sum.size == (statistic if plan.schedule.epilogue_owner == "correction" else 0)
    assert plan.smem.size <= 227 * 1024


@pytest.mark.parametrize(
    ("ratio", "d", "rows"),
    [(1, 128, 128), (3, 128, 126), (3, 64, 126), (12, 128, 120), (65, 64, 65), (127, 128, 127), (128, 64, 128)],
)
def test_a_q_load_brings_the_used_rows(ratio, d, rows):
    plan = make_plan(AttentionConfig(None, None, None, 2 * ratio, 2, d))
    assert plan.q_tile_bytes == rows * d * 2


@pytest.mark.parametrize("plan", PLANS)
def test_registers_fill_the_register_file(plan):
    assert plan.warps.registers == (192, 192, 80, 48)
    assert 128 * sum(plan.warps.registers) == 65536
    assert plan.warps.threads == 512


def test_roles_of_the_warps():
    warps = make_plan(FULL).warps
    places = {role.name: (role.warpgroups, role.warp, role.threads) for role in warps.roles}
    assert places == {
        "softmax": ((0, 1), None, 128),
        "correction": ((2,), None, 128),
        "mma": ((3,), 0, 32),
        "load": ((3,), 1, 32),
        "store": ((3,), 2, 32),
    }
    assert warps["load"] is warps.load
    with pytest.raises(KeyError):
        warps["dispatch"]


@pytest.mark.parametrize("split", [(200, 64, 48), (184, 88, 56), (192, 80, 48), (208, 56, 24), (168, 88, 88)])
def test_registers_follow_the_schedule(split):
    softmax, correction, issue = split
    schedule = Schedule(softmax_registers=softmax, correction_registers=correction, issue_registers=issue)
    assert make_plan(FULL, schedule).warps.registers == (softmax, softmax, correction, issue)


@pytest.mark.parametrize(
    ("changes", "used"),
    [({"softmax_registers": 200}, 67584), ({"correction_registers": 88}, 66560), ({"issue_registers": 56}, 66560)],
)
def test_one_register_step_too_many_is_refused(changes, used):
    ((name, value),) = changes.items()
    with pytest.raises(ValueError, match=rf"{name}={value}.* need {used} registers, allowed are 65536"):
        make_plan(FULL, Schedule(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"softmax_registers": 120}, r"softmax_registers=120: allowed values are 128 or more"),
        ({"softmax_registers": 128, "correction_registers": 136}, r"correction_registers=136: .* 128 or fewer"),
        ({"softmax_registers": 128, "issue_registers": 136}, r"issue_registers=136: .* 128 or fewer"),
    ],
)
def test_a_budget_moves_one_way_from_the_launch(changes, message):
    """65536 registers / 512 threads: a CTA starts with 128; the softmax asks for more, the others give some back."""
    with pytest.raises(ValueError, match=message):
        make_plan(FULL, Schedule(**changes))


def test_a_causal_grid_is_not_persistent():
    with pytest.raises(ValueError, match=r"persistent_ctas=2: allowed with a causal mask is None"):
        make_plan(CAUSAL, Schedule(persistent_ctas=2))


def test_one_slot_too_many_is_refused():
    with pytest.raises(
        ValueError, match=r"kv_stages=4, o_stages=2: need 265216 bytes of shared memory, allowed are 232448 on B200"
    ):
        make_plan(FULL, Schedule(kv_stages=4))


def test_the_deepest_rings_that_fit():
    for d, stages, o_stages in ((64, 10, 2), (64, 11, 1), (128, 3, 2), (128, 4, 1)):
        config = replace(FULL, D=d)
        assert make_plan(config, Schedule(kv_stages=stages, o_stages=o_stages)).smem.size == 232448
        message = rf"kv_stages={stages + 1}, o_stages={o_stages}: need .* bytes of shared memory"
        with pytest.raises(ValueError, match=message):
            make_plan(config, Schedule(kv_stages=stages + 1, o_stages=o_stages))


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("owner", ["correction", "softmax"])
def test_statistics_in_tensor_memory_lie_in_the_lower_half_of_their_s(owner, d):
    plan = make_plan(replace(FULL, D=d), Schedule(statistics="tmem", epilogue_owner=owner))
    assert (plan.smem.acc_scale.size, plan.smem.row_sum.size) == (0, 0)
    places = (plan.tmem.acc_scale, plan.tmem.row_sum) if owner == "correction" else (plan.tmem.acc_scale,)
    assert len(plan.tmem.row_sum) == (2 if owner == "correction" else 0)
    for stage, s in enumerate(plan.tmem.s):
        found = [(regions[stage].start, regions[stage].end) for regions in places]
        assert all(s.start <= start < end <= s.start + 64 for start, end in found)
        # No 16 columns hold both: what is compared for races is as wide as that.
        assert len({start // 16 for start, _ in found}) == len(found)
        assert all(end <= region.start or region.end <= start for start, end in found for region in plan.tmem.p)
    assert make_plan(FULL).tmem.acc_scale == ()


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_task_numbers_stay_below_2_to_the_30(causal):
    assert make_plan(AttentionConfig(2**15 - 1, 256, 128, 2**15, 2**15, 128, causal)).tasks == 2**30 - 2**15
    with pytest.raises(
        ValueError, match=r"B=32768, Hkv=32768, Sq=256: 1073741824 tasks, allowed are fewer than 1073741824"
    ):
        make_plan(AttentionConfig(2**15, 256, 128, 2**15, 2**15, 128, causal))


def test_a_schedule_of_another_type_is_refused():
    with pytest.raises(TypeError, match=r"schedule=\{\}: allowed values are None and tirx_attn.Schedule"):
        make_plan(FULL, {})


# A task is 256 packed rows, 256 / ratio query tokens of one K/V head.
@pytest.mark.parametrize(
    ("arguments", "m_blocks", "tasks", "full_grid"),
    [
        ((1, 256, 128, 1, 1, 128), 1, 1, 1),
        ((1, 257, 128, 1, 1, 128), 2, 2, 2),
        ((1, 256, 128, 2, 1, 128), 2, 2, 2),
        ((1, 16, 128, 128, 1, 128), 8, 8, 8),
        ((2, 1, 128, 8, 4, 128), 1, 8, 8),
        ((1, 8192, 8192, 32, 32, 128), 32, 1024, 148),
        ((1, 4096, 4096, 32, 4, 128), 128, 512, 148),
        ((2, 85, 1, 3, 1, 64), 2, 4, 4),  # 42 tokens of 3 heads in each tile
        ((1, 2, 1, 65, 1, 64), 1, 1, 1),  # one token in each
    ],
)
def test_tasks_and_grid(arguments, m_blocks, tasks, full_grid):
    full, causal = make_plan(AttentionConfig(*arguments)), make_plan(AttentionConfig(*arguments, True))
    for plan in (full, causal):
        assert (plan.tiles.m_blocks, plan.tasks) == (m_blocks, tasks)
    assert full.is_persistent
    assert full.grid == full_grid
    assert not causal.is_persistent
    assert causal.grid == tasks


@pytest.mark.parametrize(("asked", "grid"), [(1, 1), (2, 2), (5, 5), (6, 6), (7, 6), (148, 6), (None, 6)])
def test_a_persistent_grid_has_no_idle_cta(asked, grid):
    assert make_plan(AttentionConfig(1, 512, 256, 3, 3, 128), Schedule(persistent_ctas=asked)).grid == grid


def test_the_epilogue_role_is_the_owner():
    assert make_plan(FULL, Schedule(epilogue_owner="correction")).epilogue.name == "correction"
    assert make_plan(FULL, Schedule(epilogue_owner="softmax")).epilogue.name == "softmax"


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_survives_json(plan):
    data = json.loads(json.dumps(plan.to_dict()))
    assert AttentionConfig(**data["config"]) == plan.config
    tuples = {name: tuple(value) for name, value in data["schedule"].items() if isinstance(value, list)}
    assert Schedule(**{**data["schedule"], **tuples}) == plan.schedule
    assert data["launch"]["grid"] == plan.grid
    assert data["launch"]["tasks"] == plan.tasks
    assert data["smem"]["bytes"] == plan.smem.size
    names = ["s0", "s1", "p0", "p1", "o0", "o1"]
    if plan.schedule.statistics == "tmem":
        names += ["acc_scale0", "acc_scale1"]
        names += ["row_sum0", "row_sum1"] if plan.schedule.epilogue_owner == "correction" else []
    assert [region["name"] for region in data["tmem"]["regions"]] == names


def test_equal_arguments_make_equal_plans():
    assert make_plan(FULL) == make_plan(FULL) == Plan(FULL, make_plan(FULL).schedule, B200)
    assert hash(make_plan(FULL)) == hash(make_plan(FULL))
    assert make_plan(FULL) != make_plan(CAUSAL)
