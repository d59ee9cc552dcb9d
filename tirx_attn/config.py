"""The attention problem: lengths, heads, head size, mask. Every constraint of the problem is checked here."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, fields

TILE_ROWS = 128
"""Rows of one query tile: the M of a tcgen05 MMA and the threads of a softmax warpgroup."""

TILE_KEYS = 128
"""Keys of one K/V tile: the N of the QKᵀ MMA."""

HEAD_DIMS = (128,)
"""Head sizes for which a plan exists."""


@dataclass(frozen=True)
class AttentionConfig:
    """One forward attention problem, O = softmax(Q·Kᵀ·softmax_scale)·V, in fp16.

    Tensors are contiguous: Q, O [B, Sq, Hq, D] and K, V [B, Skv, Hkv, D]. Query head h reads K/V head
    h // (Hq / Hkv). The causal mask is bottom-right aligned: query i sees key j when j <= i + Skv - Sq;
    a row that sees no key has O = 0.

    Args:
        B: sequences in the batch.
        Sq: query tokens of each sequence.
        Skv: key tokens of each sequence; a multiple of 128 unless `is_causal`.
        Hq: query heads, a multiple of Hkv.
        Hkv: key/value heads; Hq / Hkv divides 128.
        D: head size in elements, 128.
        is_causal: apply the causal mask.

    Raises:
        TypeError: a size is not an integer (bool included), or `is_causal` is not a bool.
        ValueError: a size is outside its range. Both messages name the argument, its value and what is allowed.
    """

    B: int
    Sq: int
    Skv: int
    Hq: int
    Hkv: int
    D: int
    is_causal: bool = False

    def __post_init__(self) -> None:
        for field in fields(self)[:6]:
            object.__setattr__(self, field.name, _positive_size(field.name, getattr(self, field.name)))
        if not isinstance(self.is_causal, bool):
            raise TypeError(f"is_causal={self.is_causal!r}: allowed values are True and False")
        if self.D not in HEAD_DIMS:
            raise ValueError(f"D={self.D}: allowed head sizes are {', '.join(map(str, HEAD_DIMS))}")
        if self.Hq % self.Hkv:
            raise ValueError(f"Hq={self.Hq}: allowed values are multiples of Hkv={self.Hkv}")
        if TILE_ROWS % self.ratio:
            raise ValueError(
                f"Hq={self.Hq} with Hkv={self.Hkv}: allowed ratios Hq/Hkv are the divisors of {TILE_ROWS} "
                f"(1, 2, 4, 8, 16, 32, 64, 128), got {self.ratio}"
            )
        if not self.is_causal and self.Skv % TILE_KEYS:
            raise ValueError(f"Skv={self.Skv}: allowed values without a causal mask are multiples of {TILE_KEYS}")
        for name, elements in (("Q", self.B * self.Sq * self.Hq), ("K", self.B * self.Skv * self.Hkv)):
            if elements * self.D >= 2**31:
                raise ValueError(
                    f"{name} has {elements * self.D} elements: allowed are fewer than 2**31 (32-bit indices)"
                )

    @property
    def ratio(self) -> int:
        """Query heads that share one K/V head."""
        return self.Hq // self.Hkv

    @property
    def softmax_scale(self) -> float:
        """Factor on the logits, 1/sqrt(D)."""
        return 1.0 / math.sqrt(self.D)

    @property
    def softmax_scale_log2(self) -> float:
        """Factor that turns a raw score into a base-2 exponent, log2(e)/sqrt(D)."""
        return math.log2(math.e) * self.softmax_scale

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products, over the visible (query, key) pairs only."""
        pairs = self.Sq * self.Skv
        if self.is_causal:
            shift = self.Skv - self.Sq
            first = max(0, -shift)  # rows before it see no key
            pairs = sum_of_range(first + shift + 1, self.Skv) if first < self.Sq else 0
        return 4 * self.B * self.Hq * self.D * pairs


def sum_of_range(low: int, high: int) -> int:
    """Sum of the integers low..high, both included."""
    return (low + high) * (high - low + 1) // 2


def _positive_size(name: str, value: object) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: allowed values are positive integers, not bool")
    try:
        size = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}={value!r} ({type(value).__name__}): allowed values are positive integers") from None
    if not 0 < size < 2**31:
        raise ValueError(f"{name}={size}: allowed values are positive integers below 2**31")
    return size
