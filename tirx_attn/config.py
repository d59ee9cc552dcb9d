"""The attention problem: lengths, heads, head size, mask, data. Every constraint of the problem is checked here."""

from __future__ import annotations

import math
import operator
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Literal

TILE_ROWS = 128
"""Rows of one query tile: the M of a tcgen05 MMA and the threads of a softmax warpgroup."""

TILE_KEYS = 128
"""Keys of one K/V tile: the N of the QKᵀ MMA."""

HEAD_DIMS = (64, 128)
"""Head sizes for which a plan exists."""

DTYPES = {"float16": "fp16", "bfloat16": "bf16"}
"""Data types of Q, K, V and O, and their short names."""

MAX_SIZE = 2**30 - 2 * TILE_ROWS
"""Largest size. Device code is 32-bit, and TVM reorders sums: Sq + Skv has to fit, with a task beyond Sq."""

SCALES = (2.0**-126, 2.0**127)
"""Smallest and largest scale: it and its product with log2(e) are normal float32 numbers."""

SIZE_NAMES = ("B", "Sq", "Skv", "Hq", "Hkv", "D")
RUN_TIME_NAMES = ("B", "Sq", "Skv")
"""Sizes that may be left to run time."""

RUNTIME: Literal["runtime"] = "runtime"
"""Value of `scale` that makes it a parameter of the kernel."""


@dataclass(frozen=True)
class AttentionConfig:
    """One attention problem, O = softmax(Q·Kᵀ·scale)·V.

    Tensors are Q, O [B, Sq, Hq, D] and K, V [B, Skv, Hkv, D] in `dtype`, and LSE [B, Hq, Sq] in fp32. Query head h
    reads K/V head h // (Hq / Hkv). The causal mask is bottom-right aligned: query i sees key j when j <= i + Skv - Sq;
    a row that sees no key has O = 0 and LSE = −inf.

    Args:
        B: sequences in the batch; None reads it from the tensors at run time.
        Sq: query tokens of each sequence, or None.
        Skv: key tokens of each sequence, or None.
        Hq: query heads, a multiple of Hkv.
        Hkv: key/value heads; Hq / Hkv is at most 128.
        D: head size in elements, 64 or 128.
        is_causal: apply the causal mask.
        dtype: "float16" or "bfloat16" ("fp16" and "bf16" for short).
        scale: factor on the logits. None is 1/sqrt(D), a positive number is baked in, "runtime" makes it a float32
            parameter of the kernel, which must be positive as well.
        return_lse: the kernel has a further output LSE, the natural logarithm of the sum of the exponentials of a row's
            scaled logits.

    Raises:
        TypeError: a size is not an integer (bool included) or None where allowed, or another argument has a wrong type.
        ValueError: a value is outside its range. All messages name the argument, its value and what is allowed.
    """

    B: int | None
    Sq: int | None
    Skv: int | None
    Hq: int
    Hkv: int
    D: int
    is_causal: bool = False
    _: KW_ONLY
    dtype: str = "float16"
    scale: float | Literal["runtime"] | None = None
    return_lse: bool = False

    def __post_init__(self) -> None:
        for name in SIZE_NAMES:
            value = getattr(self, name)
            if value is not None or name not in RUN_TIME_NAMES:
                object.__setattr__(self, name, _positive_size(name, value))
        refuse_flags(is_causal=self.is_causal, return_lse=self.return_lse)
        object.__setattr__(self, "dtype", _dtype(self.dtype))
        object.__setattr__(self, "scale", _scale(self.scale))
        if self.D not in HEAD_DIMS:
            raise ValueError(f"D={self.D}: allowed head sizes are {', '.join(map(str, HEAD_DIMS))}")
        if self.Hq % self.Hkv:
            raise ValueError(f"Hq={self.Hq}: allowed values are multiples of Hkv={self.Hkv}")
        if self.ratio > TILE_ROWS:
            raise ValueError(
                f"Hq={self.Hq} with Hkv={self.Hkv}: allowed ratios Hq/Hkv are 1 to {TILE_ROWS}, got {self.ratio}"
            )

    @property
    def ratio(self) -> int:
        """Query heads that share one K/V head."""
        return self.Hq // self.Hkv

    @property
    def run_time_names(self) -> tuple[str, ...]:
        """Sizes that are read from the tensors at run time."""
        return tuple(name for name in RUN_TIME_NAMES if getattr(self, name) is None)

    @property
    def lengths(self) -> tuple[int, int, int]:
        """(B, Sq, Skv).

        Raises:
            ValueError: one of them is None.
        """
        if self.B is None or self.Sq is None or self.Skv is None:
            raise ValueError(f"{', '.join(self.run_time_names)}=None: allowed here are sizes that are known")
        return self.B, self.Sq, self.Skv

    @property
    def softmax_scale(self) -> float:
        """Factor on the logits that is baked in.

        Raises:
            ValueError: it is a parameter of the kernel.
        """
        if isinstance(self.scale, str):
            raise ValueError("scale='runtime': the factor is known to the launch only")
        return 1.0 / math.sqrt(self.D) if self.scale is None else self.scale

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products, over the visible (query, key) pairs only.

        Raises:
            ValueError: a size is None.
        """
        batches, sq, skv = self.lengths
        pairs = sq * skv
        if self.is_causal:
            shift = skv - sq
            first = max(0, -shift)  # rows before it see no key
            pairs = sum_of_range(first + shift + 1, skv) if first < sq else 0
        return 4 * batches * self.Hq * self.D * pairs


def refuse_flags(**flags: object) -> None:
    """Raise a TypeError that names a flag which is neither True nor False."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name}={value!r}: allowed values are True and False")


def sum_of_range(low: int, high: int) -> int:
    """Sum of the integers low..high, both included."""
    return (low + high) * (high - low + 1) // 2


def _positive_size(name: str, value: object) -> int:
    allowed = "positive integers up to 2**30 - 256" + (" and None" if name in RUN_TIME_NAMES else "")
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: allowed values are {allowed}, not bool")
    try:
        size = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}={value!r} ({type(value).__name__}): allowed values are {allowed}") from None
    if not 0 < size <= MAX_SIZE:
        raise ValueError(f"{name}={size}: allowed values are {allowed}")
    return size


def _dtype(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"dtype={value!r} ({type(value).__name__}): allowed values are 'float16' and 'bfloat16'")
    for name, short in DTYPES.items():
        if value in (name, short):
            return name
    raise ValueError(f"dtype={value!r}: allowed values are 'float16' and 'bfloat16'")


def _scale(value: object) -> float | Literal["runtime"] | None:
    allowed = "allowed values are None, positive numbers (from 2**-126 to 2**127) and 'runtime'"
    if value is None:
        return None
    if isinstance(value, str):
        if value != RUNTIME:
            raise ValueError(f"scale={value!r}: {allowed}")
        return RUNTIME
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"scale={value!r} ({type(value).__name__}): {allowed}")
    try:
        scale = float(value)
    except OverflowError:
        scale = math.inf
    if not SCALES[0] <= scale <= SCALES[1]:
        raise ValueError(f"scale={value!r}: {allowed}")
    return scale
