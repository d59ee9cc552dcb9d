"""How often the online softmax rescales O, for given queries and keys, by row and by warp of the correction group.

The rule is the kernel's (docs/dataflow.md): key blocks of 128 are walked from the last to the first. The first block
with a visible key sets a row's reference. Later the reference moves only where a block's maximum exceeds it by more
than the threshold, in base-2 exponents; then O is multiplied. A warp does so for the sake of any of its 32 rows.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tirx_attn.config import TILE_KEYS
from tirx_attn.schedule.parts import WARP_THREADS
from tirx_attn.schedule.tiles import ceil_div

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class RescaleCounts:
    """Opportunities to rescale, and rescales. Sums with +.

    Attributes:
        threshold: base-2 exponents by which a maximum may exceed the reference.
        row_steps, warp_steps: (row, block) and (warp, block) pairs after the row's, or the warp's, first visible block.
        row_rescales: those in which the row's reference moves.
        warp_rescales: those in which some row's does, so that the warp multiplies its O.
    """

    threshold: float
    row_steps: int
    row_rescales: int
    warp_steps: int
    warp_rescales: int

    @property
    def rows_skipped(self) -> float:
        """Share of the row's opportunities in which O stays as it is; 1 where there are none."""
        return 1 - self.row_rescales / self.row_steps if self.row_steps else 1.0

    @property
    def warps_skipped(self) -> float:
        """Share of the warp's opportunities in which it does not touch O; 1 where there are none."""
        return 1 - self.warp_rescales / self.warp_steps if self.warp_steps else 1.0

    def __add__(self, other: RescaleCounts) -> RescaleCounts:
        if other.threshold != self.threshold:
            raise ValueError(f"threshold={other.threshold}: allowed is that of the other summand, {self.threshold}")
        return RescaleCounts(
            self.threshold,
            self.row_steps + other.row_steps,
            self.row_rescales + other.row_rescales,
            self.warp_steps + other.warp_steps,
            self.warp_rescales + other.warp_rescales,
        )

    def to_dict(self) -> dict[str, Any]:
        """The counts and both shares as JSON-able data."""
        return {**asdict(self), "rows_skipped": self.rows_skipped, "warps_skipped": self.warps_skipped}


def block_maxima(q: Array, k: Array, *, causal: bool = False, scale: float | None = None) -> Array:
    """Largest base-2 exponent of each key block, in the order of the walk.

    Args:
        q: [rows, D], the queries of one head. k: [keys, D].
        causal: row i sees keys up to and including i + keys − rows.
        scale: factor on the logits; 1/sqrt(D) unless given.

    Returns:
        fp64 [rows, steps]; −inf where the row sees no key of the block.
    """
    rows, keys = len(q), len(k)
    factor = (1 / math.sqrt(q.shape[1]) if scale is None else scale) * math.log2(math.e)
    exponents = q.astype(np.float64) @ k.astype(np.float64).T * factor
    if causal:
        exponents[np.arange(keys)[None, :] > np.arange(rows)[:, None] + keys - rows] = -np.inf
    steps = ceil_div(keys, TILE_KEYS)
    padded = np.full((rows, steps * TILE_KEYS), -np.inf)
    padded[:, :keys] = exponents
    return padded.reshape(rows, steps, TILE_KEYS).max(axis=2)[:, ::-1]


def opportunities(maxima: Array) -> Array:
    """Bool [rows, steps]: the visible blocks but for each row's first."""
    seen = maxima > -np.inf
    return seen & (np.cumsum(seen, axis=1) > 1)


def rescales(maxima: Array, threshold: float) -> Array:
    """Bool [rows, steps]: where the row's reference moves, given `block_maxima`."""
    reference = np.full(len(maxima), -np.inf)
    moved = np.zeros(maxima.shape, bool)
    for step, top in enumerate(maxima.T):
        unset = reference == -np.inf
        moved[:, step] = ~unset & (top > reference + threshold)
        reference = np.where(unset | moved[:, step], top, reference)
    return moved


def count_rescales(maxima: Array, threshold: float) -> RescaleCounts:
    """Counts of one head. Warps take 32 consecutive rows, as where each query head has its own K/V head.

    Raises:
        ValueError: the number of rows is no multiple of 32.
    """
    rows, steps = maxima.shape
    if rows % WARP_THREADS:
        raise ValueError(f"rows={rows}: allowed are multiples of {WARP_THREADS}, whole warps")
    possible, moved = opportunities(maxima), rescales(maxima, threshold)
    by_warp = [each.reshape(-1, WARP_THREADS, steps).any(axis=1) for each in (possible, moved)]
    return RescaleCounts(threshold, *(int(each.sum()) for each in (possible, moved, *by_warp)))
