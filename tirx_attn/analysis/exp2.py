"""2^f on [0, 1) by polynomials: the best one of each degree, and its error in the precisions that a weight passes.

The fit is minimax in relative error with p(0) = 1, so that a weight of 1 is exact. The kernel evaluates it in fp32 by
Horner's rule (`roles/rowmath.py`) and P is then rounded to 16 bit, whose own rounding a better polynomial cannot beat.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import ml_dtypes  # noqa: F401  (makes "bfloat16" a dtype name)
import numpy as np

from tirx_attn.analysis.budget import REDUCTION_FMAS

Array = np.ndarray[Any, np.dtype[Any]]

SAMPLES = 1 << 16
"""Fractions at which errors are taken, evenly spaced from 0; all are fp32 numbers."""

ITERATIONS = 30
TOLERANCE = 1e-9
"""Relative difference of the error's extremes at which the exchange ends."""


@dataclass(frozen=True)
class PolynomialError:
    """Largest relative errors of a polynomial for 2^f on [0, 1).

    Attributes:
        degree: of the polynomial.
        coefficients: from that of f⁰, which is 1, to the highest.
        exact: evaluated in fp64.
        fp32: coefficients and each multiply-add rounded to fp32.
        fp16, bf16: the fp32 value rounded once more.
        fp16_same, bf16_same: share of the 16-bit results that are those of the exact 2^f.
        fmas: FMA-pipe operations of an exponential, the range reduction included.
    """

    degree: int
    coefficients: tuple[float, ...]
    exact: float
    fp32: float
    fp16: float
    bf16: float
    fp16_same: float
    bf16_same: float
    fmas: int

    def to_dict(self) -> dict[str, Any]:
        """The errors as JSON-able data."""
        return asdict(self)


@cache
def minimax(degree: int) -> tuple[float, ...]:
    """Coefficients, lowest first, of the polynomial with p(0) = 1 and the least largest relative error on [0, 1].

    Remez' exchange for f, f², ... over 2^f, on a dense grid.

    Raises:
        ValueError: a degree outside 1 to 6; beyond, fp32 has no digits left.
    """
    if not 1 <= degree <= 6:
        raise ValueError(f"degree={degree}: allowed are 1 to 6")
    grid = (1 - np.cos(np.linspace(0, np.pi, 20001))) / 2
    powers = np.arange(1, degree + 1)
    nodes = (1 - np.cos(np.pi * (np.arange(degree + 1) + 1) / (degree + 1))) / 2
    signs = (-1.0) ** np.arange(degree + 1)
    solution = np.zeros(degree + 1)
    for _ in range(ITERATIONS):
        system = np.column_stack((nodes[:, None] ** powers / np.exp2(nodes)[:, None], signs))
        solution = np.linalg.solve(system, 1 - np.exp2(-nodes))
        error = relative_error((1.0, *solution[:-1]), grid)
        nodes = grid[_extremes(error)]
        heights = np.abs(relative_error((1.0, *solution[:-1]), nodes))
        if heights.max() - heights.min() <= TOLERANCE * heights.max():
            break
    return (1.0, *(float(c) for c in solution[:-1]))


def relative_error(coefficients: tuple[float, ...], f: Array) -> Array:
    """p(f) / 2^f − 1 in fp64; coefficients lowest first."""
    return np.polynomial.polynomial.polyval(f, np.array(coefficients)) / np.exp2(f) - 1


def evaluate_fp32(coefficients: tuple[float, ...], f: Array) -> Array:
    """p(f) in fp32 by fused multiply-adds. A product of two fp32 numbers is exact in fp64, where the sum is formed."""
    rounded = np.array(coefficients, np.float32)
    power = np.full(f.shape, rounded[-1])
    for coefficient in rounded[-2::-1]:
        power = (power.astype(np.float64) * f.astype(np.float64) + np.float64(coefficient)).astype(np.float32)
    return power


def polynomial_error(degree: int, coefficients: tuple[float, ...] | None = None) -> PolynomialError:
    """Errors of the best polynomial of a degree, or of the one given."""
    coefficients = coefficients or minimax(degree)
    f = np.arange(SAMPLES) / SAMPLES
    right, computed = np.exp2(f), evaluate_fp32(coefficients, f)
    errors, same = {}, {}
    for dtype in ("float16", "bfloat16"):
        narrow = computed.astype(dtype)
        errors[dtype] = _largest(narrow, right)
        same[dtype] = float(np.mean(narrow == right.astype(dtype)))
    return PolynomialError(
        degree=degree,
        coefficients=coefficients,
        exact=float(np.abs(relative_error(coefficients, f)).max()),
        fp32=_largest(computed, right),
        fp16=errors["float16"],
        bf16=errors["bfloat16"],
        fp16_same=same["float16"],
        bf16_same=same["bfloat16"],
        fmas=REDUCTION_FMAS + degree,
    )


def rounding_error(dtype: str) -> float:
    """Largest relative error of the exact 2^f rounded to `dtype`: what no polynomial goes below."""
    right = np.exp2(np.arange(SAMPLES) / SAMPLES)
    return _largest(right.astype(dtype), right)


def _largest(computed: Array, right: Array) -> float:
    return float(np.abs(computed.astype(np.float64) / right - 1).max())


def _extremes(error: Array) -> Array:
    """Index of the largest magnitude between neighbouring changes of sign, 0 at the start left out."""
    signs = np.sign(error[1:])
    starts = np.concatenate(([0], np.flatnonzero(np.diff(signs)) + 1, [len(signs)]))
    parts = [range(a + 1, b + 1) for a, b in pairwise(starts)]
    return np.array([part[int(np.argmax(np.abs(error[part.start : part.stop])))] for part in parts])
