"""Clocks of a tile: the figures of the FlashAttention-4 paper, and what follows for other GPUs and head sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tirx_attn import AttentionConfig, Schedule
from tirx_attn.analysis.budget import enough_emulation, exp_to_mma, plan_budget, tile_budget
from tirx_attn.hopper.plan import make_hopper_plan
from tirx_attn.schedule import make_plan
from tirx_attn.targets import B200, B300, H200


@pytest.mark.parametrize(("rows", "clocks"), [(128, (1024, 1024, 768)), (256, (2048, 2048, 1536))])
def test_the_papers_tiles(rows, clocks):
    budget = tile_budget(B200, rows, 128, 128)
    assert (budget.mma, budget.exp, budget.smem) == clocks
    assert budget.binds == ("mma", "exp")
    assert budget.clocks == clocks[0]


@pytest.mark.parametrize(
    ("target", "head_dim", "ratio"),
    [(B200, 128, 1.0), (B200, 64, 2.0), (B200, 256, 0.5), (B300, 128, 0.5), (H200, 128, 0.5), (H200, 64, 1.0)],
    ids=lambda value: getattr(value, "name", value),
)
def test_exponentials_against_products(target, head_dim, ratio):
    budget = tile_budget(target, 128, 128, head_dim)
    assert exp_to_mma(target, head_dim) == ratio == budget.exp / budget.mma


def test_wgmma_reads_keys_and_values_once_for_64_rows():
    """128 rows: Q of 32 KiB, and K and V of 32 KiB each for two instructions, at 128 bytes per clock."""
    assert tile_budget(H200, 128).smem == (32 + 2 * 2 * 32) * 1024 / 128
    assert tile_budget(H200, 128).mma == 2048


def test_emulation_moves_clocks_from_the_mufu_to_the_fma_pipe():
    """An eighth of 128² exponentials leaves the MUFU; each takes six more operations of 128 per clock."""
    plain, some = tile_budget(B200), tile_budget(B200, emulated=1 / 8)
    assert (plain.exp - some.exp, some.fma - plain.fma) == (128, 6 * 128 * 128 / 8 / 128)
    assert plain.fma == 2 * 128 * 128 / 128
    assert some.binds == ("mma",)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_one(share):
    with pytest.raises(ValueError, match=f"emulated={share}"):
        tile_budget(B200, emulated=share)


def test_a_plans_budget_has_its_tile_and_its_share():
    config = AttentionConfig(1, 1024, 1024, 4, 4, 128)
    assert plan_budget(make_plan(config)) == tile_budget(B200, 128, 128, 128, 16 / 128)
    assert plan_budget(make_plan(config, Schedule(emulated_pairs=(0, 0, 0, 16)))).emulated == 1 / 4
    assert plan_budget(make_hopper_plan(replace(config, D=64))) == tile_budget(H200, 192, 128, 64)


def test_enough_emulation():
    """None where the MMA is as slow; at head size 64 on B200 until the FMA pipe is: 3/7."""
    assert enough_emulation(B200, 128) == enough_emulation(B300, 64) == enough_emulation(H200, 64) == 0
    assert enough_emulation(B200, 64) == pytest.approx(3 / 7)
    balanced = tile_budget(B200, head_dim=64, emulated=enough_emulation(B200, 64))
    assert balanced.exp == pytest.approx(balanced.fma)
    assert enough_emulation(B200, 112) == pytest.approx(1 - 112 / 128)
