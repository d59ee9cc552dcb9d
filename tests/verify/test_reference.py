"""The fp64 reference against closed forms, and against torch as a second, independent oracle."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tirx_attn import AttentionConfig
from tirx_attn.verify import RESCALE_PROBES
from tirx_attn.verify.reference import (
    ErrorVerdict,
    attention_reference,
    error_rule,
    judge,
    judge_by_head,
    largest_error,
    lse_rule,
    rounding_step,
    same_dtype_attention,
    visible_keys,
)


def inputs(b, sq, skv, hq, hkv, d=128, seed=0, dtype=np.float16):
    rng = np.random.default_rng(seed)
    shapes = ((b, sq, hq, d), (b, skv, hkv, d), (b, skv, hkv, d))
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def test_two_keys_by_hand():
    """Logits ln 3 and 0 after scaling: weights 3/4 and 1/4."""
    q = np.array([1.0, 0.0]).reshape(1, 1, 1, 2)
    k = np.array([[math.log(3.0) * math.sqrt(2.0), 5.0], [0.0, -7.0]]).reshape(1, 2, 1, 2)
    v = np.array([[8.0, 0.0], [0.0, 4.0]]).reshape(1, 2, 1, 2)
    o, lse = attention_reference(q, k, v)
    np.testing.assert_allclose(o.ravel(), [6.0, 1.0], rtol=1e-14)
    np.testing.assert_allclose(lse.ravel(), [math.log(4.0)], rtol=1e-14)


def test_scale_is_taken_when_given():
    q, k, v = np.ones((1, 1, 1, 1)), np.array([2.0, 0.0]).reshape(1, 2, 1, 1), np.zeros((1, 2, 1, 1))
    assert attention_reference(q, k, v, scale=3.0)[1].item() == pytest.approx(6 + math.log1p(math.exp(-6)), rel=1e-14)


@pytest.mark.parametrize(("sq", "skv", "expected"), [(2, 5, [4, 5]), (4, 2, [0, 0, 1, 2]), (3, 3, [1, 2, 3])], ids=str)
def test_causal_is_bottom_right(sq, skv, expected):
    """A4: (2, 5) sees 4 and 5 keys; a top-left mask would see 1 and 2."""
    assert visible_keys(sq, skv, True).tolist() == expected
    q, k = np.zeros((1, sq, 1, 4)), np.zeros((1, skv, 1, 4))
    v = np.broadcast_to(np.arange(1.0, skv + 1)[None, :, None, None], k.shape)
    o, lse = attention_reference(q, k, v, causal=True)
    for row, keys in enumerate(expected):
        assert np.all(o[0, row] == ((keys + 1) / 2 if keys else 0))
        assert lse[0, 0, row] == pytest.approx(math.log(keys) if keys else -math.inf)


def test_query_heads_read_their_group():
    v = np.broadcast_to(np.arange(1.0, 4.0)[None, None, :, None], (1, 5, 3, 4))
    o, _ = attention_reference(np.zeros((1, 2, 12, 4)), np.zeros((1, 5, 3, 4)), v)
    assert np.allclose(o[0, 0, :, 0], np.repeat([1, 2, 3], 4), rtol=1e-15)


def test_pieces_of_rows_change_nothing(monkeypatch):
    q, k, v = inputs(1, 200, 300, 2, 1, 16)
    whole = attention_reference(q, k, v, causal=True)
    monkeypatch.setattr("tirx_attn.verify.reference._SCORES_PER_PIECE", 7 * 300)
    pieces = attention_reference(q, k, v, causal=True)
    np.testing.assert_allclose(pieces[0], whole[0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(pieces[1], whole[1], rtol=1e-14)


def test_masked_infinite_key_stays_out():
    """E10: a masked key whose scores are not finite must not touch the rows before it."""
    q, k, v = inputs(1, 128, 128, 1, 1)
    k[0, 127] = np.inf
    poisoned, _ = attention_reference(q, k, v, causal=True)
    clean, _ = attention_reference(q[:, :127], k[:, :127], v[:, :127], causal=True)
    np.testing.assert_allclose(poisoned[:, :127], clean, rtol=0, atol=1e-14)


def test_very_negative_logits():
    """E3: lse = -64 * 64 * sqrt(128) + ln 256."""
    q, k = np.full((1, 1, 1, 128), 64.0), np.full((1, 256, 1, 128), -64.0)
    v = np.broadcast_to(np.arange(1.0, 257)[None, :, None, None], k.shape)
    o, lse = attention_reference(q, k, v)
    assert np.allclose(o, 128.5, rtol=1e-13)
    assert lse.item() == pytest.approx(-46335.405, abs=1e-3)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["fp16", "bf16"])
def test_plain_implementation_is_close_and_in_its_dtype(dtype):
    q, k, v = inputs(1, 64, 256, 4, 2, dtype=dtype)
    plain = same_dtype_attention(q, k, v)
    assert plain.dtype == dtype
    error = largest_error(plain, attention_reference(q, k, v)[0])
    assert 0 < error < 4 * rounding_step(1.0, dtype)


@pytest.mark.parametrize(
    ("magnitude", "dtype", "step"),
    [
        (1.0, np.float16, 2.0**-10),
        (1.999, np.float16, 2.0**-10),
        (2.0, np.float16, 2.0**-9),
        (0.0, np.float16, 2.0**-24),
        (1.5, ml_dtypes.bfloat16, 2.0**-7),
    ],
)
def test_rounding_step(magnitude, dtype, step):
    assert rounding_step(magnitude, dtype) == step


def test_error_rule_passes_the_plain_implementation():
    q, k, v = inputs(1, 128, 128, 2, 1)
    assert judge(same_dtype_attention(q, k, v, causal=True), q, k, v, causal=True).ok


@pytest.mark.parametrize("shift", [-1, 1])
def test_error_rule_catches_a_mask_that_is_off_by_one(shift):
    """The wrong mask is made by moving the queries against the keys, in full precision."""
    q, k, v = inputs(1, 128, 129, 1, 1)
    if shift < 0:
        wrong, _ = attention_reference(q, k[:, :-1], v[:, :-1], causal=True)
        verdict = judge(wrong.astype(np.float16), q, k, v, causal=True)
    else:
        wrong, _ = attention_reference(q, k, v, causal=True)
        verdict = judge(wrong.astype(np.float16), q, k[:, :-1], v[:, :-1], causal=True)
    assert not verdict.ok
    assert verdict.error > 10 * verdict.bound


def test_error_rule_catches_a_wrong_head():
    q, k, v = inputs(1, 64, 64, 4, 2)
    wrong = same_dtype_attention(q, k[:, :, ::-1], v[:, :, ::-1])
    assert not judge(wrong, q, k, v).ok


def test_one_nan_fails():
    q, k, v = inputs(1, 8, 8, 1, 1)
    o = same_dtype_attention(q, k, v)
    o[0, 3, 0, 5] = np.nan
    verdict = judge(o, q, k, v)
    assert verdict.error == math.inf
    assert not verdict.ok


def test_bound_is_twice_the_plain_error_plus_a_step():
    reference = np.array([1.0, 0.25]).reshape(1, 1, 1, 2)
    plain = np.array([1.0009765625, 0.25], np.float16).reshape(1, 1, 1, 2)
    assert error_rule(plain, reference, plain) == ErrorVerdict(2.0**-10, 3 * 2.0**-10)


def test_shapes_that_do_not_belong_together_are_named():
    q, k, v = inputs(1, 4, 4, 4, 2, 8)
    with pytest.raises(ValueError, match=r"v has shape .*allowed is the shape of k"):
        attention_reference(q, k, v[:, :2])
    with pytest.raises(ValueError, match=r"q has 3 heads: allowed are multiples of the 2"):
        attention_reference(q[:, :, :3], k, v)
    with pytest.raises(ValueError, match=r"k has shape .*D=8"):
        attention_reference(q, k[..., :4], v[..., :4])
    with pytest.raises(ValueError, match=r"q has shape \(4, 4, 8\)"):
        attention_reference(q[0], k, v)


@pytest.mark.torch
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("sq", "skv", "hq", "hkv"), [(96, 96, 4, 4), (64, 200, 8, 2), (9, 77, 3, 1)], ids=str)
def test_torch_agrees(sq, skv, hq, hkv, causal):
    """torch's own causal flag is top-left aligned, so the bottom-right mask is passed as a mask."""
    torch = pytest.importorskip("torch")
    q, k, v = inputs(2, sq, skv, hq, hkv)
    mask = torch.ones(sq, skv, dtype=torch.bool).tril(skv - sq) if causal else None
    tensors = (torch.from_numpy(x.astype(np.float64)).transpose(1, 2) for x in (q, k, v))
    theirs = torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=mask, enable_gqa=True)
    ours, _ = attention_reference(q, k, v, causal=causal)
    np.testing.assert_allclose(ours, theirs.transpose(1, 2).numpy(), rtol=0, atol=1e-12)


class TestVerdictsOnParts:
    def test_lse_within_its_rule(self):
        reference = np.array([[0.5, -np.inf, -40000.0]])
        right = reference.astype(np.float32)
        assert lse_rule(right, reference, 64).ok
        assert lse_rule(right + np.float32([9e-5, 0, 0.1]), reference, 64).ok
        for change in ([2e-4, 0, 0], [0, 0, 0.5], [np.nan, 0, 0]):
            assert not lse_rule(right + np.float32(change), reference, 64).ok, change
        assert not lse_rule(reference, reference, 64).ok  # fp64
        assert not lse_rule(np.float32([[0.5, -1e30, -40000.0]]), reference, 64).ok
        assert lse_rule(np.full((1, 2), -np.inf, np.float32), np.full((1, 2), -np.inf), 64).ok

    def test_a_verdict_for_each_head(self):
        config = AttentionConfig(2, 3, 130, 4, 2, 64)
        probe = RESCALE_PROBES["rescale_by_head"](config)
        o = np.zeros(probe.q.shape, np.float16)
        o[1, :, :2] = np.nan  # of batch 1, K/V head 0
        verdicts = judge_by_head(o, probe.q, probe.k, probe.v, causal=False)
        assert [verdict.error == np.inf for verdict in verdicts] == [False, False, True, False]
