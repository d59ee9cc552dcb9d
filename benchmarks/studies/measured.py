"""The measured study: how often O is rescaled, on Gaussian queries and keys and on those of a trained model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from benchmarks.studies.language_model import trained_inputs
from tirx_attn.analysis.rescale import RescaleCounts, block_maxima, count_rescales

THRESHOLDS = (0, 2, 4, 8)
DEVIATIONS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Standard deviations of the elements of Q and K; the logits' is the square."""

GAUSSIAN = {"heads": 8, "rows": 256, "keys": 8192, "head_dim": 128, "seed": 0}
MODEL = {"length": 2048, "windows": 4}

Record = dict[str, Any]


def measure(note: Callable[[str], None] = lambda _: None) -> Record:
    """The whole record, JSON-able. Trains a model for some minutes.

    Raises:
        ImportError: torch is missing.
    """
    return {"model": model_record(note), "gaussian": gaussian_record(note)}


def gaussian_record(note: Callable[[str], None] = lambda _: None) -> Record:
    """Counts by standard deviation, summed over heads."""
    rows = []
    for deviation in DEVIATIONS:
        note(f"Gaussian Q and K, standard deviation {deviation}")
        draw = np.random.default_rng(GAUSSIAN["seed"])
        shape = (GAUSSIAN["heads"], 1, GAUSSIAN["head_dim"])
        q, k = (
            (deviation * draw.standard_normal((shape[0], GAUSSIAN[size], shape[2]))).astype(np.float16)
            for size in ("rows", "keys")
        )
        maxima = [block_maxima(*head) for head in zip(q, k, strict=True)]
        rows.append({"deviation": deviation, "logit_deviation": deviation**2, "counts": counts(maxima)})
    return {"inputs": GAUSSIAN, "rows": rows}


def model_record(note: Callable[[str], None] = lambda _: None) -> Record:
    """Counts by layer and head of the trained model, summed over windows, and over all of it."""
    trained = trained_inputs(MODEL["length"], MODEL["windows"], note)
    layers, _, _, heads, _ = trained.q.shape
    rows, everything = [], []
    for layer in range(layers):
        for head in range(heads):
            note(f"layer {layer}, head {head}")
            q, k = trained.q[layer, :, :, head], trained.k[layer, :, :, head]
            maxima = [block_maxima(*window, causal=True) for window in zip(q, k, strict=True)]
            everything += maxima
            row = {"layer": layer, "head": head, "logit_deviation": round(logit_deviation(q, k), 3)}
            rows.append({**row, "largest_exponent": round(largest(maxima), 2), "counts": counts(maxima)})
    return {"inputs": MODEL, **trained.facts, "rows": rows, "all": counts(everything)}


def counts(maxima: Iterable[np.ndarray[Any, np.dtype[Any]]]) -> list[Record]:
    """One entry for each threshold, over all heads given."""
    each = list(maxima)
    sums: list[RescaleCounts] = [reduce(add, (count_rescales(one, t) for one in each)) for t in THRESHOLDS]
    return [one.to_dict() for one in sums]


def logit_deviation(q: np.ndarray[Any, np.dtype[Any]], k: np.ndarray[Any, np.dtype[Any]]) -> float:
    """Standard deviation of the visible scaled logits around their row's mean, over all windows."""
    variances = []
    for queries, keys in zip(q.astype(np.float64), k.astype(np.float64), strict=True):
        logits = queries @ keys.T / math.sqrt(queries.shape[1])
        variances += [row[: i + 1].var() for i, row in enumerate(logits)]
    return math.sqrt(float(np.mean(variances)))


def largest(maxima: Iterable[np.ndarray[Any, np.dtype[Any]]]) -> float:
    """Largest magnitude of a visible block's maximum, in base-2 exponents."""
    return max(float(np.abs(one[one > -np.inf]).max()) for one in maxima)
