"""Attention in fp32 on the GPU, a head and a few thousand queries at a time, and the rule for errors."""

from __future__ import annotations

import math
from typing import Any


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None) -> tuple[Any, Any]:
    """O [B, Sq, Hq, D] and LSE [B, Hq, Sq], fp32."""
    import torch

    batches, sq, heads, d = q.shape
    skv, ratio = k.shape[1], heads // k.shape[2]
    factor = 1 / math.sqrt(d) if scale is None else scale
    o = torch.zeros(batches, sq, heads, d, device=q.device)
    lse = torch.zeros(batches, heads, sq, device=q.device)
    for batch in range(batches):
        for head in range(heads):
            scores = factor * (q[batch, :, head].float() @ k[batch, :, head // ratio].float().T)
            if causal:
                last = torch.arange(sq, device=q.device)[:, None] + skv - sq
                scores.masked_fill_(torch.arange(skv, device=q.device)[None] > last, -math.inf)
            lse[batch, head] = torch.logsumexp(scores, -1)
            weights = torch.exp(scores - lse[batch, head][:, None]).nan_to_num(0)
            o[batch, :, head] = weights @ v[batch, :, head // ratio].float()
    return o, lse


def close(o: Any, reference: Any) -> bool:
    """Every element within a rounding step of its own, and one of P's for the largest value of the tensor."""
    import torch

    step = torch.finfo(o.dtype).eps
    return bool(((o.float() - reference).abs() <= step * (reference.abs() + 0.5 * reference.abs().max())).all())
