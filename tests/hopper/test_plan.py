"""HopperPlan: registers, shared memory, launch, and the order of the tiles."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.test_task_order import walk, walker_kernel
from tirx_attn import AttentionConfig, HopperSchedule
from tirx_attn.hopper.plan import HopperPlan, make_hopper_plan
from tirx_attn.schedule.tiles import ceil_div

FULL = AttentionConfig(1, 4096, 4096, 32, 8, 128)


def test_registers_fill_the_sm():
    plan = make_hopper_plan(FULL)
    assert plan.warps.registers == (24, 240, 240)
    assert plan.warps.threads == 384
    three = make_hopper_plan(AttentionConfig(1, 4096, 4096, 32, 8, 64))
    assert three.warps.registers == (32, 160, 160, 160)
    assert 128 * sum(three.warps.registers) == 65536


def test_shared_memory():
    """Two Q tiles, three or four K/V tiles and one O tile of 32 KiB; of 24, 16 and 24 KiB for heads of 64."""
    plan = make_hopper_plan(FULL)
    assert [region.size for region in plan.smem.regions] == [65536, 98304, 32768, 1024]
    causal = make_hopper_plan(AttentionConfig(1, 4096, 4096, 32, 8, 128, True))
    assert [region.size for region in causal.smem.regions] == [65536, 131072, 32768, 1024]
    assert causal.smem.size == 230400
    three = make_hopper_plan(AttentionConfig(1, 4096, 4096, 32, 8, 64))
    assert [region.size for region in three.smem.regions] == [49152, 49152, 24576, 1024]
    for made in (plan, causal, three):
        regions = made.smem.regions
        assert all(a.end == b.start and a.start % 1024 == 0 for a, b in pairwise(regions))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_stages": 5}, "kv_stages=5, q_stages=2: need 263168 bytes of shared memory, allowed are 232448 on H200"),
        ({"consumer_registers": 248}, r"consumer_registers=248, .*\(24, 248, 248\) need 66560 registers"),
        ({"consumer_registers": 160}, "consumer_registers=160: allowed values are 168 or more"),
        ({"producer_registers": 176}, "producer_registers=176: allowed values are 168 or fewer"),
        ({"consumers": 3}, r"\(24, 240, 240, 240\) need 95232 registers, allowed are 65536"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_hopper_plan(FULL, HopperSchedule(**changes))


def test_too_many_tasks_are_refused():
    with pytest.raises(ValueError, match=r"B=2147484, Hkv=1000, Sq=1: 2147484000 tasks, allowed are fewer than"):
        make_hopper_plan(AttentionConfig(2147484, 1, 1, 1000, 1000, 128))


def test_figures_of_a_launch():
    plan = make_hopper_plan(FULL)
    # 8 K/V heads times 4096 tokens in tiles of 128 / 4 tokens
    assert (plan.tasks, plan.grid, plan.tasks_per_cta) == (1024, 132, 8)
    causal = make_hopper_plan(AttentionConfig(1, 4096, 4096, 32, 8, 128, True))
    assert (causal.tasks, causal.grid, causal.tiles_per_stop, causal.tasks_per_cta) == (1024, 132, 2, 8)
    small = make_hopper_plan(AttentionConfig(1, 300, 384, 2, 1, 128, True))
    assert (small.tasks, small.stops(small.tiles.m_blocks), small.grid) == (5, 3, 3)
    opened = make_hopper_plan(AttentionConfig(None, None, None, 2, 1, 128))
    assert (opened.tasks, opened.grid, opened.tasks_per_cta) == (None, 132, None)


def plan_kernel(plan: HopperPlan):
    """A walk over the stops of the kernel's roles; ORDER gets the stop in place of the tile."""
    from tirx_attn.hopper.context import HopperContext
    from tirx_attn.roles.parameters import Parameters

    def stops(batches, m_blocks, l2_heads):
        context = object.__new__(HopperContext)
        context.plan, context.config = plan, plan.config
        context.counts = Parameters(plan).counts()
        return context.stops("role")

    return walker_kernel(stops, total(plan), plan.grid)


def total(plan: HopperPlan) -> int:
    return plan.config.B * plan.config.Hkv * plan.stops(plan.tiles.m_blocks)


def tiles_of_stop(plan: HopperPlan, stop: int) -> list[int]:
    """What `HopperContext.tile` and `has_tile` say, in Python."""
    m_blocks = plan.tiles.m_blocks
    if plan.tiles_per_stop == 1:
        return [stop]
    return [m_blocks - 1 - stop] + ([stop] if 2 * stop + 1 < m_blocks else [])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sq", [1, 128, 129, 600])
def test_every_tile_is_taken_once(causal, sq):
    plan = make_hopper_plan(AttentionConfig(2, sq, 256, 4, 2, 128, causal), HopperSchedule(persistent_ctas=5))
    taken = Counter()
    order = walk(plan_kernel(plan), total(plan), plan.grid)
    for index, (cta, turn, batch, head, stop) in enumerate(order):
        assert (cta, turn) == (index % plan.grid, index // plan.grid)
        taken.update((batch, head, tile) for tile in tiles_of_stop(plan, stop))
    tiles = plan.tiles.m_blocks
    assert taken == Counter((b, h, m) for b in range(2) for h in range(2) for m in range(tiles))


@given(sq=st.integers(1, 3000), skv=st.integers(1, 3000), ratio=st.sampled_from([1, 2, 3, 5, 7, 64, 128]))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_a_long_and_a_short_tile_balance(sq, skv, ratio):
    """Where no row is without keys, two stops of a head differ by two key blocks per tile at most."""
    plan = make_hopper_plan(AttentionConfig(1, sq, max(sq, skv), ratio, 1, 128, True))
    m_blocks = int(plan.tiles.m_blocks)
    pairs = [tiles_of_stop(plan, stop) for stop in range(m_blocks // 2)]
    work = [sum(int(plan.tiles.key_blocks(tile)) for tile in pair) for pair in pairs]
    assert not work or max(work) - min(work) <= 2


@given(sq=st.integers(1, 2000), skv=st.integers(1, 2000), ratio=st.integers(1, 128), d=st.sampled_from([64, 128]))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_blocks_against_brute_force(sq, skv, ratio, d):
    """Each tile walks the blocks that some row sees, and masks those that some row does not see whole."""
    plan = make_hopper_plan(AttentionConfig(1, sq, skv, ratio, 1, d, True))
    tiles = plan.tiles
    assert tiles.rows == plan.schedule.rows
    assert tiles.m_blocks == ceil_div(sq, tiles.rows // ratio)
    for m_block in range(int(tiles.m_blocks)):
        first = m_block * tiles.tokens_per_tile
        tokens = range(first, min(first + tiles.tokens_per_tile, sq))
        seen = [max(0, min(skv, token + 1 + skv - sq)) for token in tokens]
        assert tiles.key_blocks(m_block) == ceil_div(max(seen), 128)
        assert tiles.unmasked_blocks(m_block, 0) == min(min(seen) // 128, ceil_div(max(seen), 128))
