"""Room that a rescale threshold leaves: how large weights, row sums and accumulators may get, and what holds them.

While a row keeps an older reference, its maximum may lie up to `threshold` base-2 exponents above it. A weight is then
at most 2^t, and the largest weight of a row that has seen a key is at least 1, for a reference never exceeds the
maximum. So the row sum lies between 1 and Skv·2^t, and |O| before its division is at most row_sum·max|V|. (A weight
of 2^t takes t bits off the range of its format and none off its precision, which is relative.)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import log2
from typing import Any

import ml_dtypes
import numpy as np

from tirx_attn.config import DTYPES

FP32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Margin:
    """Largest magnitudes under a threshold, and the bits that are left above each.

    Attributes:
        threshold: base-2 exponents.
        dtype: of P and V. skv: keys.
        largest_p: weight, held in `dtype`.
        largest_row_sum: sum of the weights, held in fp32.
        safe_v: |V| up to which the unnormalised output, held in fp32, cannot overflow; at most what `dtype` holds.
        p_bits, row_sum_bits: base-2 logarithm of what the format holds over what occurs; below 0 overflows.
    """

    threshold: float
    dtype: str
    skv: int
    largest_p: float
    largest_row_sum: float
    safe_v: float
    p_bits: float
    row_sum_bits: float

    @property
    def fits(self) -> bool:
        """Neither weights nor their sums overflow, whatever Q and K hold."""
        return min(self.p_bits, self.row_sum_bits) > 0

    def to_dict(self) -> dict[str, Any]:
        """The magnitudes as JSON-able data."""
        return {**asdict(self), "fits": self.fits}


def margin(threshold: float, dtype: str = "float16", skv: int = 8192) -> Margin:
    """Room under a threshold.

    Args:
        threshold: `Schedule.rescale_threshold`, 0 or more.
        dtype: "float16" or "bfloat16". skv: number of keys.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: allowed values are {', '.join(map(repr, DTYPES))}")
    if not threshold >= 0:
        raise ValueError(f"threshold={threshold}: allowed are numbers from 0")
    held = float(ml_dtypes.finfo(dtype).max)
    weight = 2.0**threshold
    row_sum = skv * weight
    return Margin(
        threshold=threshold,
        dtype=dtype,
        skv=skv,
        largest_p=weight,
        largest_row_sum=row_sum,
        safe_v=min(held, FP32_MAX / row_sum),
        p_bits=log2(held / weight),
        row_sum_bits=log2(FP32_MAX / row_sum),
    )


def largest_threshold(dtype: str) -> float:
    """Threshold at which a weight reaches the largest number of `dtype`."""
    return log2(float(ml_dtypes.finfo(dtype).max))
