"""Bytes that attention moves between the SMs and global memory, and the arithmetic they buy.

Three ways to compute one problem. Standard attention writes S and P to global memory and reads them back. The tiled
walk of the kernels here keeps them on the SM and reads K and V again for every task. Where the L2 cache holds the K and
V of the heads in flight, the walk's repeats stay in L2 and global memory sees each tensor once. (FlashAttention,
Dao et al. 2022, theorem 2, has the first two for one head of N queries and keys; the logarithms in LSE are left out.)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tirx_attn.config import TILE_KEYS
from tirx_attn.schedule.base import BasePlan
from tirx_attn.schedule.parts import ELEMENT_BYTES


@dataclass(frozen=True)
class Traffic:
    """One problem's arithmetic and its traffic, in floating-point operations and bytes.

    Attributes:
        flops: of the two matrix products, over visible (query, key) pairs.
        standard_bytes: with S and P in global memory. A mask saves nothing: it is applied to S.
        tiled_bytes: of the walk of the plan, were there no L2 cache.
        single_bytes: with Q, K, V read and O written once, the least there is.
    """

    flops: int
    standard_bytes: int
    tiled_bytes: int
    single_bytes: int

    @property
    def intensities(self) -> dict[str, float]:
        """Floating-point operations per byte, by the way the problem is computed."""
        ways = {"standard": self.standard_bytes, "tiled": self.tiled_bytes, "single": self.single_bytes}
        return {name: self.flops / moved for name, moved in ways.items()}

    def to_dict(self) -> dict[str, Any]:
        """The figures and the intensities as JSON-able data."""
        return {**asdict(self), "flop_per_byte": self.intensities}


def standard_words(sq: int, skv: int, head_dim: int) -> int:
    """Words of one head of standard attention, 4Nd + 4N²: Q, K, V and O once; S and P written and read."""
    return 2 * (sq + skv) * head_dim + 4 * sq * skv


def tiled_words_bound(n: int, head_dim: int, words: int) -> float:
    """N²d²/M: words of one head that a tiled algorithm with room for M = `words` moves, up to a factor."""
    return n * n * head_dim * head_dim / words


def walk_words(n: int, head_dim: int, query_words: int) -> float:
    """Words of one head that the walk here moves: 2Nd + 2N²d²/M, with M = `query_words` of Q on the SM at once.

    Each task reads K and V, 2Nd words, and there are N·d/M tasks.
    """
    return 2 * n * head_dim + 2 * n * n * head_dim * head_dim / query_words


def traffic(plan: BasePlan) -> Traffic:
    """Traffic of a plan's problem.

    Raises:
        ValueError: a length is known at run time only.
    """
    config = plan.config
    batches, sq, skv = config.lengths
    queries, keys = batches * config.Hq * sq * config.D, batches * config.Hkv * skv * config.D
    scores = batches * config.Hq * sq * skv
    walked = sum(min(plan.tiles.key_blocks(m) * TILE_KEYS, skv) for m in range(plan.tiles.m_blocks))
    again = batches * config.Hkv * walked * config.D
    return Traffic(
        flops=config.flops,
        standard_bytes=(2 * queries + 2 * keys + 4 * scores) * ELEMENT_BYTES,
        tiled_bytes=(2 * queries + 2 * again) * ELEMENT_BYTES,
        single_bytes=(2 * queries + 2 * keys) * ELEMENT_BYTES,
    )
