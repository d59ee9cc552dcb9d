"""Closed forms of the probes against the fp64 reference, and what the probes can see."""

from __future__ import annotations

import numpy as np
import pytest

from tirx_attn.config import AttentionConfig
from tirx_attn.verify import PROBES, RESCALE_PROBES
from tirx_attn.verify.probes import edge, head, idx, one, pick
from tirx_attn.verify.reference import attention_reference, same_dtype_attention

CONFIGS = [
    AttentionConfig(1, 256, 128, 1, 1, 128),
    AttentionConfig(2, 64, 384, 4, 2, 128),
    AttentionConfig(1, 256, 128, 1, 1, 128, True),
    AttentionConfig(1, 128, 384, 1, 1, 128, True),
    AttentionConfig(2, 130, 200, 8, 2, 128, True),
]
ALL = PROBES | RESCALE_PROBES


def label(config: AttentionConfig) -> str:
    shape = (config.B, config.Sq, config.Skv, config.Hq, config.Hkv)
    return "x".join(map(str, shape)) + ("-causal" if config.is_causal else "")


@pytest.mark.parametrize("config", CONFIGS, ids=label)
@pytest.mark.parametrize("name", ALL)
def test_closed_form_is_the_reference(name, config):
    probe = ALL[name](config)
    assert probe.name == name
    assert probe.q.dtype == probe.k.dtype == probe.v.dtype == np.float16
    assert all(np.isfinite(array).all() for array in probe.arrays.values())
    reference, _ = attention_reference(probe.q, probe.k, probe.v, causal=config.is_causal)
    if probe.expected is None:
        assert not probe.exact
    else:
        assert probe.expected.shape == probe.q.shape
        np.testing.assert_allclose(reference, probe.expected, rtol=1e-11, atol=1e-11)
    if probe.exact:
        assert np.array_equal(reference.astype(np.float16), probe.expected.astype(np.float16))


@pytest.mark.parametrize(
    "config",
    [pytest.param(config, marks=pytest.mark.slow if config.B > 1 else (), id=label(config)) for config in CONFIGS],
)
@pytest.mark.parametrize("name", [name for name in ALL if name not in ("pick", "edge")])
def test_plain_implementation_passes_inexact_probes(name, config):
    probe = ALL[name](config)
    if not probe.exact:
        plain = same_dtype_attention(probe.q, probe.k, probe.v, causal=config.is_causal)
        assert probe.judge(plain).ok


def test_exact_answers_are_fp16_values():
    for config in CONFIGS:
        for name in ("one", "idx", "head", "dim", "pick", "jump_last", "jump_first"):
            expected = ALL[name](config).expected
            assert np.array_equal(expected.astype(np.float16).astype(np.float64), expected), name


def test_rows_of_a1_a2_a4():
    a1 = idx(AttentionConfig(1, 256, 128, 1, 1, 128, True)).expected[0, :, 0, 0]
    assert np.all(a1[:128] == 0)
    assert np.array_equal(a1[128:], 1 + np.arange(128) / 2)
    a2 = idx(AttentionConfig(1, 128, 384, 1, 1, 128, True)).expected[0, :, 0, 0]
    assert np.array_equal(a2, 1 + (np.arange(128) + 256) / 2)
    a4 = idx(AttentionConfig(1, 2, 5, 1, 1, 128, True)).expected[0, :, 0, 0]
    assert a4.tolist() == [2.5, 3.0]


def test_head_numbers():
    probe = head(AttentionConfig(2, 4, 128, 8, 2, 128))
    assert probe.expected[1, 0, :, 0].tolist() == [17] * 4 + [18] * 4


def test_idx_sees_one_key_more_and_one_key_less():
    config = AttentionConfig(1, 128, 256, 1, 1, 128, True)
    probe = idx(config)
    for shift in (-0.5, 0.5):
        wrong = probe.expected.astype(np.float16)
        wrong[0, 77] += np.float16(shift)
        verdict = probe.judge(wrong)
        assert (verdict.error, verdict.ok) == (0.5, False)


def test_one_sees_an_unwritten_row_and_a_counted_tail():
    config = AttentionConfig(1, 8, 128, 1, 1, 128)
    o = one(config).expected.astype(np.float16)
    assert one(config).judge(o).ok
    o[0, 3] = 128 / 129
    assert not one(config).judge(o).ok
    o[0, 3] = np.nan
    assert not one(config).judge(o).ok


def test_edge_sees_the_boundary_beyond_idx():
    config = AttentionConfig(1, 4, 2048, 1, 1, 128, True)
    probe = edge(config, key=2046)
    assert probe.expected[0, :, 0, 0].tolist() == [0, 0, 1 / 2047, 1 / 2048]
    with pytest.raises(ValueError, match=r"Skv=2048: allowed for idx in float16 are at most 1024"):
        idx(config)
    with pytest.raises(ValueError, match=r"key=2048: allowed are 0\.\.2047"):
        edge(config, key=2048)


def test_pick_wins_by_thirty():
    config = AttentionConfig(1, 64, 256, 2, 1, 128, True)
    probe = pick(config)
    scores = np.einsum("bihd,bjgd->bhij", probe.q.astype(float), probe.k.astype(float)) * config.softmax_scale
    ranked = np.sort(scores, axis=-1)
    assert (ranked[..., -1] - ranked[..., -2]).min() >= 30
    assert len(np.unique(scores.argmax(-1))) > 32


def test_values_beyond_fp16_are_refused():
    with pytest.raises(ValueError, match=r"B=200: allowed for head is"):
        head(AttentionConfig(200, 1, 128, 1, 1, 128))


def test_same_seed_same_bits():
    config = CONFIGS[1]
    for make in ALL.values():
        first, second = make(config), make(config)
        assert all(np.array_equal(first.arrays[name], second.arrays[name]) for name in "QKV")
