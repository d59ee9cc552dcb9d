"""Inputs that force the online softmax to rescale, or not to, and the arithmetic that proves they do.

Definition used here (Online softmax with conditional rescale): key blocks of 128 are walked from the last to
the first. In base-2 exponents, a row keeps its reference while a block's maximum exceeds it by at most 8;
beyond that the block's maximum becomes the reference and everything accumulated is rescaled. The first block
with a visible key sets the reference and rescales nothing.

`expected_rescales` computes this in fp64 from the inputs alone; no schedule and no kernel is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes  # noqa: F401  (makes "bfloat16" a dtype name)
import numpy as np

from tirx_attn.analysis.rescale import block_maxima, rescales
from tirx_attn.config import AttentionConfig
from tirx_attn.verify.probe import Probe
from tirx_attn.verify.reference import Array, visible_keys

KEYS_PER_BLOCK = 128
THRESHOLD = 8.0
"""Base-2 exponents by which a block's maximum may exceed the reference without a rescale."""

_Q_LEVEL = 8.0
"""q[..., 0] of a row on which the levels act."""

_NOISE = 0.4
"""Standard deviation of all other elements of q and k: about a quarter of an exponent in the logits."""

_STEP = 10.0
"""Rise per block that forces a rescale whatever the noise."""


def walk_steps(skv: int) -> int:
    """Number of key blocks; step 0 is the last block of keys."""
    return -(-skv // KEYS_PER_BLOCK)


def visible_steps(config: AttentionConfig) -> Array:
    """Bool [Sq, steps]: the row sees a key of the block at that step of the walk."""
    _, sq, skv = config.lengths
    counts = visible_keys(sq, skv, config.is_causal)
    first_key = KEYS_PER_BLOCK * (walk_steps(skv) - 1 - np.arange(walk_steps(skv)))
    return counts[:, None] > first_key[None, :]


def rescale_opportunities(config: AttentionConfig) -> Array:
    """Bool [Sq, steps]: where a rescale is possible at all, the visible steps but for a row's first."""
    seen = visible_steps(config)
    return seen & (np.cumsum(seen, axis=1) > 1)


def expected_rescales(q: Array, k: Array, config: AttentionConfig) -> Array:
    """Which rows rescale at which step of the walk.

    Args:
        q: [B, Sq, Hq, D]. k: [B, Skv, Hkv, D].
        config: gives the mask and the scale.

    Returns:
        Bool [B, Hq, Sq, steps].
    """
    batches, sq, skv = config.lengths
    result = np.zeros((batches, config.Hq, sq, walk_steps(skv)), bool)
    for b in range(batches):
        for h in range(config.Hq):
            keys = k[b, :, h // config.ratio]
            maxima = block_maxima(q[b, :, h], keys, causal=config.is_causal, scale=config.softmax_scale)
            result[b, h] = rescales(maxima, THRESHOLD)
    return result


def rescale_every(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """Logits rise by more than the threshold at each step: every row rescales at every opportunity.

    V grows against the weights, so that a block's part still counts after one rescale: a rescale that is left
    out, doubled or applied to the wrong row changes O by more than the tolerance.
    """
    steps = walk_steps(config.lengths[2])
    left = steps - 1 - np.arange(steps)
    return _staircase("rescale_every", config, seed, _STEP * np.arange(steps), np.exp2(np.minimum(_STEP * left, 12)))


def rescale_never(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """Logits rise along the walk, by less than the threshold in all: no rescale, weights grow beyond 1."""
    steps = walk_steps(config.lengths[2])
    return _staircase("rescale_never", config, seed, np.linspace(0.0, 6.0, steps), np.ones(steps))


def rescale_alternate(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """Logits rise by 6 exponents a step: one rise is kept, the next passes the threshold, and so on."""
    steps = walk_steps(config.lengths[2])
    return _staircase("rescale_alternate", config, seed, 6.0 * np.arange(steps), np.ones(steps))


def rescale_by_head(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """(batch, K/V head) pairs by turns as in `rescale_every` and as in `rescale_never`: both in one launch."""
    every, never = rescale_every(config, seed=seed), rescale_never(config, seed=seed)
    turn = np.arange(config.lengths[0] * config.Hkv).reshape(config.lengths[0], 1, config.Hkv, 1) % 2 == 0
    k, v = (np.where(turn, a, b) for a, b in ((every.k, never.k), (every.v, never.v)))
    return Probe("rescale_by_head", every.q, k, v, config.is_causal, None, False)  # q is the same in both


def rescale_some_rows(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """As `rescale_every`, but for one query in 32 only: a warp rescales for the sake of few of its rows."""
    base = rescale_every(config, seed=seed)
    q = base.q.copy()
    q[:, np.arange(config.lengths[1]) % 32 != 5, :, 0] = 0
    return Probe("rescale_some_rows", q, base.k, base.v, config.is_causal, None, False)


def staircase_falling(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """Logits fall along the walk (rise with the key's index): the first block wins and nothing rescales."""
    steps = walk_steps(config.lengths[2])
    return _staircase("staircase_falling", config, seed, -_STEP * np.arange(steps), np.ones(steps))


def jump_last(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """All logits 0 but the last key's, +40; V = 5 there, else 0: O = 5 where that key is visible, else 0."""
    return _jump("jump_last", config, config.lengths[2] - 1)


def jump_first(config: AttentionConfig, *, seed: int = 0) -> Probe:
    """The mirror image: key 0 at +40, reached at the end of the walk. O = 5 on every row that sees a key."""
    return _jump("jump_first", config, 0)


RESCALE_PROBES: dict[str, Callable[[AttentionConfig], Probe]] = {
    make.__name__: make
    for make in (
        rescale_every,
        rescale_never,
        rescale_alternate,
        rescale_by_head,
        rescale_some_rows,
        staircase_falling,
        jump_last,
        jump_first,
    )
}
"""Name -> function, for every probe of this module."""


def _staircase(name: str, config: AttentionConfig, seed: int, exponents: Array, v_scale: Array) -> Probe:
    """Noise, plus the given base-2 exponents and factors on V per step of the walk."""
    rng = np.random.default_rng(seed)
    batches, sq, skv = config.lengths
    shape_kv = (batches, skv, config.Hkv, config.D)
    q = _NOISE * rng.standard_normal((batches, sq, config.Hq, config.D))
    k = _NOISE * rng.standard_normal(shape_kv)
    step = walk_steps(skv) - 1 - np.arange(skv) // KEYS_PER_BLOCK
    unit = _Q_LEVEL * config.softmax_scale * math.log2(math.e)
    q[..., 0] = _Q_LEVEL
    k[..., 0] = (exponents[step] / unit)[None, :, None]
    v = rng.standard_normal(shape_kv) * v_scale[step][None, :, None, None]
    q, k, v = q.astype(config.dtype), k.astype(config.dtype), v.astype(config.dtype)
    return Probe(name, q, k, v, config.is_causal, None, False)


def _jump(name: str, config: AttentionConfig, key: int) -> Probe:
    batches, sq, skv = config.lengths
    q = np.ones((batches, sq, config.Hq, config.D), config.dtype)
    k = np.zeros((batches, skv, config.Hkv, config.D), config.dtype)
    v = np.zeros_like(k)
    k[:, key] = 40 / (config.D * config.softmax_scale)
    v[:, key] = 5
    sees = visible_keys(sq, skv, config.is_causal) > key
    expected = np.broadcast_to(5.0 * sees[None, :, None, None], q.shape)
    return Probe(name, q, k, v, config.is_causal, expected, True)
