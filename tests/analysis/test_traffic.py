"""Traffic by the formulas of the FlashAttention paper, the roofline's bound, and both of whole plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tirx_attn import AttentionConfig
from tirx_attn.analysis.roofline import roofline
from tirx_attn.analysis.traffic import standard_words, tiled_words_bound, traffic, walk_words
from tirx_attn.hopper.plan import make_hopper_plan
from tirx_attn.schedule import make_plan
from tirx_attn.targets import B200, B300, H200

FULL = AttentionConfig(1, 8192, 8192, 32, 32, 128)
OPEN = AttentionConfig(None, None, None, 6, 2, 64)


@pytest.mark.parametrize("n", [128, 1000, 8192])
def test_standard_words(n):
    d = 64
    assert standard_words(n, n, d) == 4 * n * d + 4 * n * n


def test_a_plan_moves_what_the_formulas_say():
    n, d, heads = 8192, 128, 32
    moved = traffic(make_plan(FULL))
    assert moved.flops == 4 * heads * n * n * d
    assert moved.standard_bytes == 2 * heads * (4 * n * d + 4 * n * n)
    assert moved.tiled_bytes == 2 * heads * walk_words(n, d, 256 * d) == 2 * heads * (2 * n * d + 2 * n * d * n // 256)
    assert moved.single_bytes == 2 * heads * 4 * n * d
    assert moved.intensities["single"] == n / 2
    assert moved.intensities["standard"] == pytest.approx(d / 2, rel=0.02)  # whatever the length


def test_the_walk_has_the_order_of_the_bound():
    """Twice N²d²/M, for M words of queries, besides Q and O."""
    n, d, m = 16384, 128, 256 * 128
    assert walk_words(n, d, m) - 2 * n * d == 2 * tiled_words_bound(n, d, m)


def test_a_causal_walk_reads_the_visible_blocks_only():
    """Two tasks of 256 queries on 512 keys: 2 and 4 blocks of 128."""
    config = AttentionConfig(1, 512, 512, 1, 1, 128, True)
    assert traffic(make_plan(config)).tiled_bytes == 2 * (2 * 512 * 128 + 2 * (256 + 512) * 128)
    full = replace(config, is_causal=False)
    assert traffic(make_plan(full)).tiled_bytes == 2 * (2 * 512 * 128 + 2 * (512 + 512) * 128)
    assert traffic(make_plan(config)).standard_bytes == traffic(make_plan(full)).standard_bytes


def test_grouped_heads_share_keys_and_values():
    grouped = traffic(make_plan(replace(FULL, Hkv=8)))
    assert grouped.single_bytes == 2 * (2 * 32 + 2 * 8) * 8192 * 128


def test_peaks_and_balances():
    """2.25 PFLOP/s and 8 TB/s for B200; an H200 has 4.8 TB/s, and 1.07 PFLOP/s at its boost clock."""
    assert B200.mma_tflops == B300.mma_tflops == pytest.approx(2250, rel=0.005)
    assert B200.balance == pytest.approx(281, rel=0.005)
    assert H200.mma_tflops == pytest.approx(1070.5, rel=0.001)
    assert H200.balance == pytest.approx(223, rel=0.001)


def test_a_long_problem_is_bound_by_the_tensor_cores():
    found = roofline(make_plan(FULL))
    assert found.binds == ("mma",)
    assert found.bound_tflops == pytest.approx(B200.mma_tflops)
    assert found.launched_tflops == pytest.approx(B200.mma_tflops * 1024 / (148 * 7))


def test_head_size_64_is_bound_by_the_exponentials():
    """An eighth of them emulated: 896 clocks, where the products take 512."""
    found = roofline(make_plan(replace(FULL, D=64)))
    assert found.binds == ("exp",)
    assert found.bound_tflops == pytest.approx(B200.mma_tflops * 512 / 896)
    assert roofline(make_hopper_plan(replace(FULL, D=64))).binds == ("mma", "exp")


def test_one_query_is_bound_by_memory():
    found = roofline(make_plan(AttentionConfig(16, 1, 4096, 32, 8, 128)))
    assert found.binds == ("hbm",)
    assert found.bound_tflops == pytest.approx(found.traffic.intensities["single"] * 8)


def test_lengths_must_be_known():
    with pytest.raises(ValueError, match="B, Sq, Skv=None"):
        roofline(make_plan(OPEN))
