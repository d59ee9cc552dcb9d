"""The rescale inputs do what their names say; the arithmetic that proves it, on examples worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tirx_attn.config import AttentionConfig
from tirx_attn.verify.reference import attention_reference
from tirx_attn.verify.rescale import (
    RESCALE_PROBES,
    expected_rescales,
    jump_first,
    jump_last,
    rescale_alternate,
    rescale_by_head,
    rescale_every,
    rescale_never,
    rescale_opportunities,
    rescale_some_rows,
    staircase_falling,
    visible_steps,
)

CONFIGS = [
    AttentionConfig(1, 256, 384, 2, 1, 128),
    AttentionConfig(1, 256, 128, 1, 1, 128),
    AttentionConfig(1, 512, 512, 4, 4, 128, True),
    AttentionConfig(2, 256, 512, 8, 1, 128, True),
    AttentionConfig(1, 512, 256, 1, 1, 128, True),
    AttentionConfig(1, 64, 1024, 1, 1, 128),
]


def label(config: AttentionConfig) -> str:
    shape = (config.B, config.Sq, config.Skv, config.Hq, config.Hkv)
    return "x".join(map(str, shape)) + ("-causal" if config.is_causal else "")


def levels(config: AttentionConfig, *per_step: float):
    """q and k whose logits, in base-2 exponents, are one value per step of the walk."""
    unit = config.softmax_scale * math.log2(math.e)
    q = np.zeros((config.B, config.Sq, config.Hq, config.D))
    k = np.zeros((config.B, config.Skv, config.Hkv, config.D))
    q[..., 0] = 1
    for step, level in enumerate(per_step):
        block = len(per_step) - 1 - step
        k[:, block * 128 : (block + 1) * 128, :, 0] = level / unit
    return q, k


@pytest.mark.parametrize(
    ("per_step", "expected"),
    [
        ((0, 9, 18, 27), (0, 1, 1, 1)),
        ((0, 7, 14, 21), (0, 0, 1, 0)),  # 7 is kept, 14 moves the reference, 21 is 7 above it
        ((0, 7.9, 7.9, 7.9), (0, 0, 0, 0)),
        ((0, -50, -40, 1), (0, 0, 0, 0)),  # a fall never moves the reference
        ((-100, -91, 40, 0), (0, 1, 1, 0)),
    ],
    ids=str,
)
def test_by_hand(per_step, expected):
    config = AttentionConfig(1, 2, 512, 1, 1, 128)
    rescales = expected_rescales(*levels(config, *per_step), config)
    assert rescales.shape == (1, 1, 2, 4)
    assert rescales[0, 0].astype(int).tolist() == [list(expected)] * 2


def test_first_visible_block_of_a_row_rescales_nothing():
    """Rows 0..127 see only keys of block 0, the second step; for them it is the first."""
    config = AttentionConfig(1, 256, 256, 1, 1, 128, True)
    rescales = expected_rescales(*levels(config, 0, 20), config)[0, 0]
    assert not rescales[:128].any()
    assert rescales[128:].astype(int).tolist() == [[0, 1]] * 128
    assert visible_steps(config)[[0, 127, 128, 255]].astype(int).tolist() == [[0, 1], [0, 1], [1, 1], [1, 1]]


def test_rows_without_keys_have_no_opportunity():
    config = AttentionConfig(1, 384, 256, 1, 1, 128, True)
    assert not visible_steps(config)[:128].any()
    assert rescale_opportunities(config).sum(axis=0).tolist() == [0, 128]


@pytest.mark.parametrize("config", CONFIGS, ids=label)
def test_rescale_every_misses_no_opportunity(config):
    probe = rescale_every(config)
    rescales = expected_rescales(probe.q, probe.k, config)
    assert np.array_equal(rescales, np.broadcast_to(rescale_opportunities(config), rescales.shape))


@pytest.mark.parametrize("config", CONFIGS, ids=label)
@pytest.mark.parametrize("make", [rescale_never, staircase_falling], ids=lambda make: make.__name__)
def test_none_rescale(make, config):
    probe = make(config)
    assert not expected_rescales(probe.q, probe.k, config).any()


def test_rescale_never_climbs():
    """The kept reference is left behind by more than a factor of 16."""
    config = AttentionConfig(1, 128, 512, 1, 1, 128)
    probe = rescale_never(config)
    scores = probe.q[0, :, 0].astype(float) @ probe.k[0, :, 0].astype(float).T
    scores *= config.softmax_scale * math.log2(math.e)
    rise = scores.max(axis=1) - scores[:, 384:].max(axis=1)
    assert rise.min() > 4
    assert rise.max() < 8


def test_rescale_alternate_skips_every_second_step():
    config = AttentionConfig(1, 128, 640, 1, 1, 128)
    probe = rescale_alternate(config)
    assert expected_rescales(probe.q, probe.k, config)[0, 0].astype(int).tolist() == [[0, 0, 1, 0, 1]] * 128


def test_rescale_some_rows_picks_one_in_thirty_two():
    config = AttentionConfig(1, 256, 384, 2, 1, 128)
    probe = rescale_some_rows(config)
    rescales = expected_rescales(probe.q, probe.k, config)
    chosen = np.arange(256) % 32 == 5
    assert rescales[:, :, chosen, 1:].all()
    assert not rescales[:, :, ~chosen].any()


def test_jumps():
    """E8: the last key is met at the first step, key 0 at the last, and only there is anything to rescale."""
    config = AttentionConfig(1, 128, 1024, 1, 1, 128)
    last, first = jump_last(config), jump_first(config)
    assert not expected_rescales(last.q, last.k, config).any()
    rescales = expected_rescales(first.q, first.k, config)
    assert rescales[..., -1].all()
    assert not rescales[..., :-1].any()
    for probe in (last, first):
        assert np.all(probe.expected == 5)
        logits = probe.q[0, 0, 0].astype(float) @ probe.k[0, :, 0].astype(float).T * config.softmax_scale
        assert logits.max() == pytest.approx(40, abs=0.02)


@pytest.mark.parametrize("factor", [1.0, 2.0**20], ids=["left out", "doubled"])
def test_a_wrong_rescale_shows(factor):
    """rescale_every's tolerance sees a last rescale that was not applied, or applied twice.

    The parts of the answer per block are recomputed from the definition; the other blocks' weights change.
    """
    config = AttentionConfig(1, 64, 384, 1, 1, 128)
    probe = rescale_every(config)
    q, k, v = (probe.arrays[name][0, :, 0].astype(float) for name in "QKV")
    weights = np.exp(q @ k.T * config.softmax_scale - 40)
    right = weights @ v / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(right, attention_reference(probe.q, probe.k, probe.v)[0][0, :, 0], atol=1e-9)
    weights[:, 128:] *= 2.0**10 if factor == 1.0 else 2.0**-10
    wrong = weights @ v / weights.sum(1, keepdims=True)
    assert probe.judge(right[None, :, None].astype(np.float16)).ok
    verdict = probe.judge(wrong[None, :, None].astype(np.float16))
    assert verdict.error > 10 * verdict.bound


def test_all_named():
    assert set(RESCALE_PROBES) >= {"rescale_every", "rescale_never", "jump_last", "jump_first"}


@pytest.mark.parametrize("config", CONFIGS, ids=label)
def test_by_head_both_outcomes_take_turns(config):
    """Pairs of batch and K/V head, counted through: the even ones rescale at every opportunity, the others never."""
    probe = rescale_by_head(config)
    opportunities = rescale_opportunities(config)
    taken = expected_rescales(probe.q, probe.k, config).reshape(config.B * config.Hkv, -1, *opportunities.shape)
    for pair, rows in enumerate(taken):
        assert np.array_equal(rows, np.broadcast_to(opportunities if pair % 2 == 0 else False, rows.shape)), pair
