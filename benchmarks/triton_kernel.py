"""A fused attention forward in Triton, written for this comparison. Importing it needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(k, v, first_row, last_key, acc, peak, total, queries, start, seq_base, column,
          scale, MASKED: tl.constexpr, CAUSAL: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
          D: tl.constexpr):  # fmt: skip
    """One step of online softmax over KEYS keys from `start`; `peak` and the logits are in units of log2."""
    keys = k.load([seq_base + start, column])
    logits = tl.dot(queries, keys.T) * scale
    if MASKED:
        at = start + tl.arange(0, KEYS)
        visible = (at < last_key)[None, :]
        if CAUSAL:
            visible = visible & (at[None, :] <= first_row + tl.arange(0, ROWS)[:, None])
        logits = tl.where(visible, logits, float("-inf"))
    higher = tl.maximum(peak, tl.max(logits, 1))
    # A row that has seen no key yet keeps a finite subtrahend, so that its weights are 0 and not NaN.
    shift = tl.where(higher == float("-inf"), 0.0, higher) if MASKED else higher
    weights = tl.exp2(logits - shift[:, None])
    factor = tl.exp2(peak - shift)
    total = total * factor + tl.sum(weights, 1)
    acc = acc * factor[:, None]
    acc = tl.dot(weights.to(v.dtype), v.load([seq_base + start, column]), acc)
    return acc, higher, total


@triton.jit
def attention(q, k, v, o, sq, skv, scale, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, CAUSAL: tl.constexpr,
              ROWS: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, STAGES: tl.constexpr):  # fmt: skip
    """ROWS rows of O of one head and batch: q, k, v are descriptors over [B * S, heads * D], o points to [B, S, H, D].

    `scale` multiplies the logits into units of log2. The causal mask is aligned to the bottom right.
    """
    tile = tl.program_id(0)
    if CAUSAL:  # long rows first
        tile = tl.num_programs(0) - 1 - tile
    head = tl.program_id(1)
    batch = tl.program_id(2)
    row = tile * ROWS
    queries = q.load([batch * sq + row, head * D])
    column = head // (HEADS // KV_HEADS) * D
    base = batch * skv
    acc = tl.zeros([ROWS, D], tl.float32)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    first_row = row + skv - sq  # the last key that the tile's first row sees under the causal mask
    whole = skv
    end = skv
    if CAUSAL:
        whole = tl.minimum(whole, tl.maximum(first_row + 1, 0))
        end = tl.minimum(end, tl.maximum(first_row + ROWS, 0))
    whole = whole // KEYS * KEYS
    for start in tl.range(0, whole, KEYS, num_stages=STAGES):
        acc, peak, total = _tile(k, v, first_row, skv, acc, peak, total, queries, start, base, column,
                                 scale, False, CAUSAL, ROWS, KEYS, D)  # fmt: skip
    for start in tl.range(whole, end, KEYS, num_stages=1):
        acc, peak, total = _tile(k, v, first_row, skv, acc, peak, total, queries, start, base, column,
                                 scale, True, CAUSAL, ROWS, KEYS, D)  # fmt: skip
    acc = tl.where((total > 0.0)[:, None], acc / total[:, None], 0.0)
    rows = row + tl.arange(0, ROWS)
    places = ((batch * sq + rows).to(tl.int64) * HEADS + head)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(o + places, acc.to(q.dtype), mask=(rows < sq)[:, None])
