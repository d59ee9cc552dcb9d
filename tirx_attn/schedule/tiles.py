"""Key ranges and row packing of a task. The arithmetic works on Python ints and on TIR expressions alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tirx_attn.config import TILE_KEYS, TILE_ROWS, AttentionConfig

Index = Any
"""A Python int, or an int32 TIR expression."""

TILES_PER_TASK = 2


@dataclass(frozen=True)
class TaskTiles:
    """Geometry of a task: query tiles of packed rows that walk the same key blocks, last to first.

    Row r of a tile holds query token r // ratio (counted from the tile's first token) of query head r % ratio of the
    task's K/V head, so that the heads that share K and V share its tiles. Where the ratio does not divide the number of
    rows, the last rows of a tile hold nothing.

    Attributes:
        config: the problem.
        sq, skv: its lengths, those of `config` unless given; expressions where they are known at run time only.
        tiles_per_task: query tiles that one task takes.
        rows: rows of a query tile.
    """

    config: AttentionConfig
    sq: Index = None
    skv: Index = None
    tiles_per_task: int = TILES_PER_TASK
    rows: int = TILE_ROWS

    def __post_init__(self) -> None:
        for name, value in (("sq", self.config.Sq), ("skv", self.config.Skv)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @property
    def tokens_per_tile(self) -> int:
        """Query tokens in a tile: each fills a row for every query head that shares the K/V head."""
        return self.rows // self.config.ratio

    @property
    def used_rows(self) -> int:
        """Rows of a tile that hold a query."""
        return self.tokens_per_tile * self.config.ratio

    @property
    def may_mask(self) -> bool:
        """Some block may hold keys that some row does not see: by the causal mask, or since the last one is short."""
        return self.config.is_causal or self.config.Skv is None or self.config.Skv % TILE_KEYS != 0

    @property
    def m_blocks(self) -> Index:
        """Tasks along the query tokens of one (batch, K/V head)."""
        return ceil_div(self.sq, self.tiles_per_task * self.tokens_per_tile)

    @property
    def shift(self) -> Index:
        """Causal mask: token i sees keys up to and including i + shift."""
        return self.skv - self.sq

    def first_token(self, m_block: Index, stage: Index) -> Index:
        """First query token of a tile of a task; may lie at or beyond Sq."""
        return (m_block * self.tiles_per_task + stage) * self.tokens_per_tile

    def row_token(self, row: Index) -> Index:
        """Token of a packed row, counted from the tile's first token."""
        return row // self.config.ratio

    def key_blocks(self, m_block: Index) -> Index:
        """Key blocks that both tiles of a task walk: those that some row of the task may see."""
        if not self.config.is_causal:
            return ceil_div(self.skv, TILE_KEYS)
        last_token = minimum(self.first_token(m_block + 1, 0), self.sq) - 1
        return ceil_div(maximum(last_token + 1 + self.shift, 0), TILE_KEYS)

    def unmasked_blocks(self, m_block: Index, stage: Index) -> Index:
        """Leading key blocks that every row of a tile sees whole. The blocks from here on need the mask."""
        if not self.config.is_causal:
            return self.skv // TILE_KEYS
        visible_to_first = maximum(self.first_token(m_block, stage) + 1 + self.shift, 0)
        return minimum(visible_to_first // TILE_KEYS, self.key_blocks(m_block))

    def visible_columns(self, m_block: Index, stage: Index, row: Index, block: Index) -> Index:
        """Columns of a key block that a packed row sees: those below the returned limit (may be < 0 or > 128)."""
        if not self.config.is_causal:
            return self.skv - block * TILE_KEYS
        token = self.first_token(m_block, stage) + self.row_token(row)
        return token + 1 + self.shift - block * TILE_KEYS


def ceil_div(a: Index, b: int) -> Index:
    """a / b rounded up, for a not negative."""
    return (a + b - 1) // b


def minimum(a: Index, b: Index) -> Index:
    """The smaller one, of integers or of expressions."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else _tir().min(a, b)


def maximum(a: Index, b: Index) -> Index:
    """The larger one, of integers or of expressions."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else _tir().max(a, b)


def _tir() -> Any:
    from tvm import tirx  # only reached with a TIR expression in hand, so TVM is loaded already

    return tirx
