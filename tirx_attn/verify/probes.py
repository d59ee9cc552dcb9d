"""Inputs whose right answer is known in closed form.

Each function takes an `AttentionConfig` and returns a `Probe`. `PROBES` maps their names to the functions, so
that a test or a command can pick them by name. Shapes: q, expected [B, Sq, Hq, D]; k, v [B, Skv, Hkv, D].

Why Q = 0 in most of them: every visible key then has exactly the weight 1/n, so that the answer is exact in
16 bits and one key too many or too few is visible at once. `one_random` and `random` exercise the softmax
itself.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes  # noqa: F401  (makes "bfloat16" a dtype name)
import numpy as np

from tirx_attn.config import AttentionConfig
from tirx_attn.verify.probe import Probe
from tirx_attn.verify.reference import Array, visible_keys

IDX_LIMITS = {"float16": 1024, "bfloat16": 128}
"""Keys up to which 1 + (lo + hi)/2 is exact."""

_INTEGERS = {"float16": 2048, "bfloat16": 256}
"""Integers up to it are exact."""


def one(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """V = 1, Q = 0: O = 1 on rows with a visible key. Shows padded tails, unwritten rows, wrong row sums."""
    q, k, v = _inputs(config, seed)
    q[:], v[:] = 0, 1
    return _exact("one", config, q, k, v, np.ones(q.shape))


def one_random(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """V = 1 with random Q and K: O = 1 up to the rounding of P. The normaliser under real weights."""
    q, k, v = _inputs(config, seed)
    v[:] = 1
    return Probe("one_random", q, k, v, config.is_causal, _masked(config, np.ones(q.shape)), False)


def idx(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """V[j] = j + 1, Q = 0: O = 1 + (lo + hi)/2 over the visible keys lo..hi.

    A mask off by one key moves O by 0.5.

    Raises:
        ValueError: more keys than `IDX_LIMITS` allows, where the dtype cannot hold the answer; use `edge` there.
    """
    _, sq, skv = config.lengths
    limit = IDX_LIMITS[config.dtype]
    if skv > limit:
        raise ValueError(f"Skv={skv}: allowed for idx in {config.dtype} are at most {limit} keys; use edge beyond")
    q, k, v = _inputs(config, seed)
    q[:] = 0
    v[:] = np.arange(1, skv + 1)[None, :, None, None]
    counts = visible_keys(sq, skv, config.is_causal)
    return _exact("idx", config, q, k, v, _by_row(config, 1 + (counts - 1) / 2))


def edge(config: AttentionConfig, *, key: int | None = None, seed: int = 0) -> Probe:
    """V = 1 at one key and 0 elsewhere, Q = 0: O = 1/n where the key is among the n visible ones, else 0.

    Args:
        key: index of that key; the last key unless given, which the last row alone sees under a causal mask.
    """
    _, sq, skv = config.lengths
    key = skv - 1 if key is None else key
    if not 0 <= key < skv:
        raise ValueError(f"key={key}: allowed are 0..{skv - 1}")
    q, k, v = _inputs(config, seed)
    q[:], v[:] = 0, 0
    v[:, key] = 1
    counts = visible_keys(sq, skv, config.is_causal)
    return _exact("edge", config, q, k, v, _by_row(config, (counts > key) / np.maximum(counts, 1)))


def head(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """V of K/V head g in batch b = 1 + g + 16 b, Q = 0: O shows which K/V head each query head read.

    Raises:
        ValueError: values that the dtype cannot hold.
    """
    batches, _, _ = config.lengths
    limit = _INTEGERS[config.dtype]
    if config.Hkv + 16 * (batches - 1) > limit:
        raise ValueError(f"Hkv={config.Hkv}, B={batches}: allowed for head is Hkv + 16 (B - 1) <= {limit}")
    q, k, v = _inputs(config, seed)
    q[:] = 0
    batch = 16 * np.arange(batches)[:, None, None, None]
    v[:] = 1 + np.arange(config.Hkv)[None, None, :, None] + batch
    group = np.arange(config.Hq)[None, None, :, None] // config.ratio
    return _exact("head", config, q, k, v, np.broadcast_to(1 + group + batch, q.shape))


def dim(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """V[..., d] = d, Q = 0: O[..., d] = d. Shows swapped, dropped or repeated columns."""
    q, k, v = _inputs(config, seed)
    q[:] = 0
    v[:] = np.arange(config.D)
    return _exact("dim", config, q, k, v, np.broadcast_to(np.arange(config.D), q.shape))


def columns(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """`idx`, `head`, `dim` and `one` in one run: column d carries the probe number d % 4, in this order."""
    parts = [make(config, seed=seed) for make in (idx, head, dim, one)]
    v, expected = parts[0].v.copy(), np.zeros(parts[0].q.shape)
    for number, part in enumerate(parts):
        assert part.expected is not None
        v[..., number::4], expected[..., number::4] = part.v[..., number::4], part.expected[..., number::4]
    return _exact("columns", config, parts[0].q, parts[0].k, v, expected)


def pick(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """One visible key per row wins by at least 30 in logit: O = V of that key, bit for bit.

    The keys are random sign vectors; a query is the sign vector of its key. The scale of both is set from the
    closest pair, so that the margin holds whatever the seed.
    """
    rng = np.random.default_rng(seed)
    q, k, v = _inputs(config, seed)
    batches, sq, skv = config.lengths
    signs = rng.choice(np.array([-1.0, 1.0]), (batches, skv, config.Hkv, config.D))
    counts = visible_keys(sq, skv, config.is_causal)
    picks = rng.integers(0, np.maximum(counts, 1)[None, :, None], (batches, sq, config.Hq))
    batch = np.arange(batches)[:, None, None]
    group = (np.arange(config.Hq) // config.ratio)[None, None, :]
    closest = max(_closest(signs[b, :, g]) for b in range(batches) for g in range(config.Hkv))
    if closest >= config.D:
        raise ValueError(f"Skv={skv}, seed={seed}: two keys coincide; allowed are fewer keys or another seed")
    amplitude = np.sqrt(33.0 / (config.softmax_scale * (config.D - closest)))
    q[:] = signs[batch, picks, group] * amplitude
    k[:] = signs * amplitude
    return _exact("pick", config, q, k, v, v[batch, picks, group].astype(np.float64))


def very_negative(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """q = 64, k = -64, V[j] = j + 1: each raw logit is -64 * 64 * D, below any finite stand-in for -inf."""
    base = idx(config, seed=seed)
    q, k = np.full_like(base.q, 64), np.full_like(base.k, -64)
    return Probe("very_negative", q, k, base.v, config.is_causal, base.expected, True)


def huge_logits(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """q = k = 40000, V = 1: a maximum rounded apart from its product leaves a large positive exponent."""
    base = one(config, seed=seed)
    q, k = np.full_like(base.q, 40000), np.full_like(base.k, 40000)
    return Probe("huge_logits", q, k, base.v, config.is_causal, base.expected, True)


def large_in_some_rows(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """One query in 32 and the keys of one block are 300 times as large: large logits there, ordinary ones elsewhere."""
    q, k, v = _inputs(config, seed)
    block = slice(128, 256) if config.lengths[2] > 256 else slice(None)
    q[:, 5::32] *= q.dtype.type(300)
    k[:, block] *= k.dtype.type(300)
    return Probe("large_in_some_rows", q, k, v, config.is_causal, None, False)


def tail_below_zero(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """q = 1 and k = -1358 in dimension 0, else 0; V = 1: logits near -120, which a tail scored 0 would outweigh."""
    base = one(config, seed=seed)
    q, k = np.zeros_like(base.q), np.zeros_like(base.k)
    q[..., 0], k[..., 0] = 1, -1358
    return Probe("tail_below_zero", q, k, base.v, config.is_causal, base.expected, True)


def random(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """Q, K, V from N(0, 1), judged by `error_rule`."""
    q, k, v = _inputs(config, seed)
    return Probe("random", q, k, v, config.is_causal, None, False)


_ALL = (
    one, one_random, idx, edge, head, dim, columns, pick, very_negative, huge_logits, large_in_some_rows,
    tail_below_zero, random,
)  # fmt: skip

PROBES: dict[str, Callable[[AttentionConfig], Probe]] = {make.__name__: make for make in _ALL}
"""Name -> function, for every probe of this module."""


def _inputs(config: AttentionConfig, seed: int) -> tuple[Array, Array, Array]:
    """Q, K, V from N(0, 1)."""
    rng = np.random.default_rng(seed)
    batches, sq, skv = config.lengths
    shape_q = (batches, sq, config.Hq, config.D)
    shape_kv = (batches, skv, config.Hkv, config.D)
    q, k, v = (rng.standard_normal(shape).astype(config.dtype) for shape in (shape_q, shape_kv, shape_kv))
    return q, k, v


def _by_row(config: AttentionConfig, values: Array) -> Array:
    """A value per query, spread over [B, Sq, Hq, D]."""
    batches, sq, _ = config.lengths
    return np.broadcast_to(values[None, :, None, None], (batches, sq, config.Hq, config.D))


def _masked(config: AttentionConfig, expected: Array) -> Array:
    """`expected` with 0 on the rows that see no key."""
    _, sq, skv = config.lengths
    counts = visible_keys(sq, skv, config.is_causal)
    return np.where(_by_row(config, counts) > 0, expected, 0.0)


def _exact(name: str, config: AttentionConfig, q: Array, k: Array, v: Array, expected: Array) -> Probe:
    return Probe(name, q, k, v, config.is_causal, _masked(config, expected), True)


def _closest(signs: Array) -> float:
    """Largest inner product of two different rows."""
    products = signs @ signs.T
    np.fill_diagonal(products, -np.inf)
    return float(products.max())
