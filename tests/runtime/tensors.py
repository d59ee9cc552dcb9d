"""Tensors for `flash_attention` where stand-ins take the kernels' place."""

from __future__ import annotations

from typing import Any

import torch


def inputs(
    b: int = 2, sq: int = 5, skv: int = 9, hq: int = 4, hkv: int = 2, d: int = 64,
    dtype: Any = torch.float16, device: str = "cpu",
) -> list[torch.Tensor]:  # fmt: skip
    """q, k, v from N(0, 1)."""
    generator = torch.Generator().manual_seed(sq + skv)
    shapes = (b, sq, hq, d), (b, skv, hkv, d), (b, skv, hkv, d)
    return [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]
