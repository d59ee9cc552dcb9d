"""Counts of rescales on inputs made to have them, and by hand; the threshold's margin; emulated shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tirx_attn import AttentionConfig, Schedule
from tirx_attn.analysis.emulation import emulation
from tirx_attn.analysis.margin import largest_threshold, margin
from tirx_attn.analysis.rescale import RescaleCounts, block_maxima, count_rescales, opportunities, rescales
from tirx_attn.hopper.plan import make_hopper_plan
from tirx_attn.schedule import make_plan
from tirx_attn.verify import RESCALE_PROBES, rescale_opportunities

CONFIG = AttentionConfig(1, 256, 640, 1, 1, 64)
LONG = AttentionConfig(1, 8192, 8192, 32, 32, 128)


@pytest.mark.parametrize(("name", "share"), [("rescale_every", 1.0), ("rescale_never", 0.0)])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_inputs_that_rescale_in_every_block_and_in_none(name, share, causal):
    config = replace(CONFIG, is_causal=causal)
    probe = RESCALE_PROBES[name](config)
    maxima = block_maxima(probe.q[0, :, 0], probe.k[0, :, 0], causal=causal)
    possible = rescale_opportunities(config)
    assert (opportunities(maxima) == possible).all()
    assert (rescales(maxima, 8.0) == share * possible).all()


def test_a_row_by_hand():
    """Maxima of the walk 1, 4, 3, 12.5, 13: with threshold 8 the reference is 1 until 12.5."""
    maxima = np.tile([1.0, 4.0, 3.0, 12.5, 13.0], (32, 1))
    moved = {t: np.flatnonzero(rescales(maxima, t)[0]).tolist() for t in (0, 2, 4, 8, 12)}
    assert moved == {0: [1, 3, 4], 2: [1, 3], 4: [3], 8: [3], 12: []}
    assert count_rescales(maxima, 0) == RescaleCounts(0, 32 * 4, 32 * 3, 4, 3)


def test_a_warp_rescales_for_one_row():
    maxima = np.zeros((64, 3))
    maxima[40, 2] = 9.0
    found = count_rescales(maxima, 8)
    assert (found.row_rescales, found.warp_rescales) == (1, 1)
    assert (found.rows_skipped, found.warps_skipped) == (1 - 1 / 128, 1 - 1 / 4)


def test_keys_that_are_not_seen_give_no_opportunity():
    maxima = block_maxima(np.ones((32, 64)), np.ones((300, 64)), causal=True)
    assert maxima.shape == (32, 3)
    assert (maxima > -np.inf).all()  # keys 0 to 268 at least: the last block has keys 256 to 299
    short = block_maxima(np.ones((160, 64)), np.ones((160, 64)), causal=True)
    assert (short[:128, 0] == -np.inf).all()
    assert opportunities(short).sum() == 32


def test_counts_of_different_thresholds_do_not_add():
    with pytest.raises(ValueError, match="threshold=2"):
        RescaleCounts(8, 1, 0, 1, 0) + RescaleCounts(2, 1, 0, 1, 0)


def test_rows_are_whole_warps():
    with pytest.raises(ValueError, match="rows=33"):
        count_rescales(np.zeros((33, 2)), 8)


def test_the_default_threshold_leaves_eight_bits_of_fp16():
    found = margin(8)
    assert (found.largest_p, found.largest_row_sum, found.safe_v) == (256, 8192 * 256, 65504)
    assert found.p_bits == pytest.approx(8, abs=1e-3)
    assert found.row_sum_bits == pytest.approx(128 - 21, abs=1e-3)
    assert found.fits


def test_sixteen_is_where_fp16_ends():
    """65504 is just below 2**16."""
    assert largest_threshold("float16") == pytest.approx(16, abs=1e-3)
    assert margin(15.9).fits
    assert not margin(16).fits
    assert margin(16, "bfloat16").fits
    assert largest_threshold("bfloat16") == pytest.approx(128, abs=0.01)


@pytest.mark.parametrize("arguments", [(-1.0,), (float("nan"),), (8, "float32")])
def test_margins_that_are_refused(arguments):
    with pytest.raises(ValueError, match="allowed"):
        margin(*arguments)


def test_emulated_share_of_a_full_task():
    """64 blocks of which the first takes none: 16 of 128 exponentials in the other 63."""
    assert emulation(make_plan(LONG)).share == pytest.approx(16 / 128 * 63 / 64)
    assert emulation(make_plan(replace(LONG, Skv=128))).share == 0


def test_emulated_share_of_a_causal_task():
    """256 queries and keys: two blocks for either tile, the first one exact; tile 0 is cut by the mask in the other."""
    found = emulation(make_plan(AttentionConfig(1, 256, 256, 1, 1, 128, True)))
    assert (found.blocks, found.steady_blocks, found.emulated_columns) == (4, 1, 24)
    assert found.share == 24 / (4 * 128)


def test_no_emulation():
    assert emulation(make_plan(LONG, Schedule(emulated_pairs=(0, 0, 0, 0)))).share == 0
    assert emulation(make_hopper_plan(LONG)).share == 0
