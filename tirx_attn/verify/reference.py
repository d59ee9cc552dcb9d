"""Attention in NumPy, as the definition says it: the oracle that no kernel had a part in.

Two implementations. `attention_reference` computes in fp64 from the rounded inputs and is the right value.
`same_dtype_attention` is what a plain implementation in the input's own precision gives; its error against
the reference is the yardstick of `error_rule`. Neither knows of key blocks, online softmax or base-2
exponents.

Shapes everywhere: q, o [B, Sq, Hq, D]; k, v [B, Skv, Hkv, D]; lse [B, Hq, Sq]. Query head h reads K/V head
h // (Hq / Hkv). The causal mask is bottom-right aligned: query i sees key j when j <= i + Skv - Sq.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_SCORES_PER_PIECE = 1 << 21
"""Scores held at once; bounds the memory of a piece of rows, and changes nothing else."""

LSE_TOLERANCE = 1e-4
"""Part of the error of LSE that is allowed whatever its size."""


@dataclass(frozen=True)
class ErrorVerdict:
    """A measured error beside the error that is allowed.

    Attributes:
        error: largest absolute difference; inf where the output holds a NaN.
        bound: largest difference that passes.
        ok: error <= bound.
    """

    error: float
    bound: float

    @property
    def ok(self) -> bool:
        """Whether the error is allowed."""
        return self.error <= self.bound


def visible_keys(sq: int, skv: int, causal: bool) -> Array:
    """Number of keys that each query sees, int64 [Sq]; the visible ones are keys 0 .. count-1."""
    if not causal:
        return np.full(sq, skv, np.int64)
    return np.clip(np.arange(sq, dtype=np.int64) + (skv - sq) + 1, 0, skv)


def attention_reference(
    q: Array, k: Array, v: Array, *, causal: bool = False, scale: float | None = None
) -> tuple[Array, Array]:
    """Softmax attention in fp64.

    Args:
        q: [B, Sq, Hq, D], any float dtype; converted to fp64 without further rounding.
        k, v: [B, Skv, Hkv, D].
        causal: bottom-right aligned causal mask.
        scale: factor on the logits; 1/sqrt(D) unless given.

    Returns:
        o [B, Sq, Hq, D] and lse [B, Hq, Sq], both fp64. lse is the natural logarithm of the sum of the
        exponentials of the scaled logits. A row that sees no key has o = 0 and lse = -inf.

    Raises:
        ValueError: shapes that do not belong together; the message names the argument.
    """
    return _attention(q, k, v, causal, scale, np.dtype(np.float64), None)


def same_dtype_attention(q: Array, k: Array, v: Array, *, causal: bool = False, scale: float | None = None) -> Array:
    """The same attention by a plain implementation in the precision of the inputs.

    Scores and softmax in fp32, P rounded to q's dtype, P·V accumulated in fp32, O rounded to q's dtype.

    Returns:
        o [B, Sq, Hq, D] in q's dtype.
    """
    return _attention(q, k, v, causal, scale, np.dtype(np.float32), q.dtype)[0].astype(q.dtype)


def error_rule(o: Array, reference: Array, plain: Array) -> ErrorVerdict:
    """The tolerance of this project, the rule that the FlashAttention tests use.

    The largest error of `o` against the fp64 reference may be twice the error of the plain same-dtype
    implementation, plus one rounding step of that dtype at the largest magnitude of the reference.

    Args:
        o: output under test, [B, Sq, Hq, D]. A NaN anywhere fails.
        reference: fp64 output of `attention_reference`.
        plain: output of `same_dtype_attention`, in the dtype whose rounding step counts.
    """
    if o.shape != reference.shape or plain.shape != reference.shape:
        raise ValueError(f"o{o.shape}, plain{plain.shape}: allowed is the shape of reference, {reference.shape}")
    step = rounding_step(float(np.max(np.abs(reference), initial=0.0)), plain.dtype)
    return ErrorVerdict(largest_error(o, reference), 2.0 * largest_error(plain, reference) + step)


def judge(o: Array, q: Array, k: Array, v: Array, *, causal: bool = False, scale: float | None = None) -> ErrorVerdict:
    """`error_rule` for one call: computes reference and plain implementation from the inputs."""
    reference, _ = attention_reference(q, k, v, causal=causal, scale=scale)
    return error_rule(o, reference, same_dtype_attention(q, k, v, causal=causal, scale=scale))


def largest_error(o: Array, expected: Array) -> float:
    """Largest |o - expected| in fp64; inf where either holds a NaN that the other does not mean to hold."""
    with np.errstate(invalid="ignore"):
        error = np.abs(o.astype(np.float64) - expected.astype(np.float64))
    return math.inf if np.isnan(error).any() else float(np.max(error, initial=0.0))


def rounding_step(magnitude: float, dtype: Any) -> float:
    """Distance between neighbouring numbers of `dtype` at `magnitude`."""
    info = ml_dtypes.finfo(dtype)
    magnitude = max(abs(magnitude), float(info.smallest_normal))
    return float(2.0 ** math.floor(math.log2(magnitude)) * float(info.eps))


def _attention(
    q: Array, k: Array, v: Array, causal: bool, scale: float | None, compute: np.dtype[Any], p_dtype: Any
) -> tuple[Array, Array]:
    """Both implementations: head by head, rows in pieces. P is rounded to p_dtype if one is given."""
    ratio = _check_shapes(q, k, v)
    batches, sq, hq, d = q.shape
    skv = k.shape[1]
    factor = compute.type(1.0 / math.sqrt(d) if scale is None else scale)
    o = np.zeros(q.shape, compute)
    lse = np.full((batches, hq, sq), -np.inf, compute)
    counts = visible_keys(sq, skv, causal)
    piece = max(1, _SCORES_PER_PIECE // max(1, skv))
    for b in range(batches):
        for g in range(k.shape[2]):
            keys, values = k[b, :, g].astype(compute), v[b, :, g].astype(compute)
            for h in range(g * ratio, (g + 1) * ratio):
                for start in range(0, sq, piece):
                    rows = slice(start, min(sq, start + piece))
                    seen = int(counts[rows].max(initial=0))  # later keys are invisible to all of these rows
                    if seen == 0:
                        continue
                    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                        scores = (q[b, rows, h].astype(compute) @ keys[:seen].T) * factor
                        scores[np.arange(seen)[None, :] >= counts[rows, None]] = -np.inf
                        top = scores.max(axis=1, keepdims=True)
                        top[top == -np.inf] = 0
                        weights = np.exp(scores - top)
                        total = weights.sum(axis=1, keepdims=True)
                        p = weights / np.where(total == 0, 1, total)
                        if p_dtype is not None:
                            p = p.astype(p_dtype).astype(compute)
                        o[b, rows, h] = p @ values[:seen]
                        lse[b, h, rows] = (top + np.log(total))[:, 0]
    return o, lse


def _check_shapes(q: Array, k: Array, v: Array) -> int:
    """The number of query heads per K/V head, or an error that names the argument that does not fit."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim != 4:
            raise ValueError(f"{name} has shape {array.shape}: allowed are four dimensions [B, S, H, D]")
    if v.shape != k.shape:
        raise ValueError(f"v has shape {v.shape}: allowed is the shape of k, {k.shape}")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(f"k has shape {k.shape}: allowed are B={q.shape[0]} and D={q.shape[3]}, as in q")
    if k.shape[2] == 0 or q.shape[2] % k.shape[2]:
        raise ValueError(f"q has {q.shape[2]} heads: allowed are multiples of the {k.shape[2]} heads of k")
    return int(q.shape[2] // k.shape[2])


def judge_by_head(o: Array, q: Array, k: Array, v: Array, *, causal: bool) -> list[ErrorVerdict]:
    """`judge` of each (batch, K/V head) by itself, where their data are of different size. Shapes as there."""
    ratio = q.shape[2] // k.shape[2]
    pairs = [(batch, head) for batch in range(o.shape[0]) for head in range(k.shape[2])]
    return [
        judge(
            *(x[batch : batch + 1, :, ratio * head : ratio * (head + 1)] for x in (o, q)),
            *(x[batch : batch + 1, :, head : head + 1] for x in (k, v)),
            causal=causal,
        )
        for batch, head in pairs
    ]


def lse_rule(lse: Array, reference: Array, d: int) -> ErrorVerdict:
    """Verdict on LSE [B, Hq, Sq]: the largest error, as a part of what that element may be off by.

    That is `LSE_TOLERANCE`, and half an fp32 ulp for each of the d sums of a score. −inf must stand where the reference
    has it, and nowhere else.
    """
    some = reference != -np.inf
    if lse.dtype != np.float32 or not np.array_equal(lse == -np.inf, ~some):
        return ErrorVerdict(np.inf, 1.0)
    if not some.any():
        return ErrorVerdict(0.0, 1.0)
    parts = np.abs(lse[some] - reference[some]) / (LSE_TOLERANCE + d * 2.0**-24 * np.abs(reference[some]))
    return ErrorVerdict(float(np.max(np.where(np.isnan(parts), np.inf, parts))), 1.0)
