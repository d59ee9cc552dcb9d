"""Tensors of one shape, and the check that an implementation computes attention before it is timed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tirx_attn.config import AttentionConfig

TOLERANCE = {"float16": 1e-2, "bfloat16": 4e-2}
"""Largest allowed difference from fp32 attention, for normally distributed inputs."""

CHECKED_ROWS = 128
"""Rows compared at each of three places of the sequence."""


class WrongResult(Exception):
    """An implementation's output is not attention."""


@dataclass(frozen=True)
class Problem:
    """Normally distributed Q, K and V of one shape on the GPU, as torch tensors [B, S, H, D]."""

    config: AttentionConfig
    q: Any
    k: Any
    v: Any

    @classmethod
    def random(cls, config: AttentionConfig, device: str = "cuda", seed: int = 0) -> Problem:
        """Fresh inputs in the dtype of `config`, the same for the same seed."""
        import torch

        batches, sq, skv = config.lengths
        generator = torch.Generator(device=device).manual_seed(seed)

        def normal(length: int, heads: int) -> torch.Tensor:
            shape = (batches, length, heads, config.D)
            return torch.randn(shape, device=device, generator=generator).to(getattr(torch, config.dtype))

        return cls(config, normal(sq, config.Hq), normal(skv, config.Hkv), normal(skv, config.Hkv))

    @cached_property
    def samples(self) -> list[tuple[int, int, slice, Any]]:
        """(batch, head, rows, O in fp32) of a few slices: the ends and the middle of the first and the last head."""
        batches, sq, _ = self.config.lengths
        starts = sorted({0, max(0, sq // 2 - 1), max(0, sq - CHECKED_ROWS)})
        places = {(0, 0), (batches - 1, self.config.Hq - 1)}
        return [
            (b, h, slice(s, min(sq, s + CHECKED_ROWS)), self._rows(b, h, s, min(sq, s + CHECKED_ROWS)))
            for b, h in sorted(places)
            for s in starts
        ]

    def _rows(self, batch: int, head: int, start: int, end: int) -> Any:
        import torch

        config = self.config
        _, sq, skv = config.lengths
        kv_head = head // config.ratio
        q = self.q[batch, start:end, head].float()
        logits = _product(q, self.k[batch, :, kv_head].float().T) * config.softmax_scale
        if config.is_causal:
            rows = torch.arange(start, end, device=q.device)[:, None]
            logits.masked_fill_(torch.arange(skv, device=q.device)[None] > rows + (skv - sq), -math.inf)
        weights = torch.nan_to_num(torch.softmax(logits, -1))
        return _product(weights, self.v[batch, :, kv_head].float())

    def difference(self, output: Any) -> float:
        """Largest |difference| between `output` and fp32 attention over the compared slices.

        Raises:
            WrongResult: the shape is wrong, or the difference is above the tolerance or not a number.
        """
        if tuple(output.shape) != tuple(self.q.shape):
            raise WrongResult(f"O has shape {tuple(output.shape)}, expected is {tuple(self.q.shape)}")
        worst = 0.0
        for batch, head, rows, expected in self.samples:
            value = (output[batch, rows, head].float() - expected).abs().max().item()
            worst = max(worst, value) if value == value else math.inf
        allowed = TOLERANCE[self.config.dtype]
        if not worst <= allowed:
            raise WrongResult(f"O differs from fp32 attention by {worst:.3g}, allowed is {allowed}")
        return worst


def _product(a: Any, b: Any) -> Any:
    """a @ b in fp32 arithmetic, whatever the global settings are."""
    import torch

    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
