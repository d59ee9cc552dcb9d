"""Which share of a launch's exponentials the FMA pipe computes.

The kernel emulates fixed positions of a row (`Schedule.emulated_pairs`) in blocks that are neither a task's first nor
cut by the mask. So the share follows from the shape. (Blocks that move a reference take none; they are left out here.)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tirx_attn.config import TILE_KEYS
from tirx_attn.schedule.base import BasePlan


@dataclass(frozen=True)
class Emulation:
    """Exponentials of one launch, masked and unused ones included.

    Attributes:
        blocks: (query tile, key block) pairs.
        steady_blocks: those that take emulated exponentials.
        emulated_columns: of a row's 128 exponentials in such a block.
    """

    blocks: int
    steady_blocks: int
    emulated_columns: int

    @property
    def share(self) -> float:
        """Emulated exponentials over all, 0 to 1."""
        return self.steady_blocks * self.emulated_columns / (self.blocks * TILE_KEYS) if self.blocks else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The counts and the share as JSON-able data."""
        return {**asdict(self), "share": self.share}


def emulation(plan: BasePlan) -> Emulation:
    """Emulated exponentials of a plan; none for sm_90a.

    Raises:
        ValueError: a length is known at run time only.
    """
    batches, _, _ = plan.config.lengths
    tiles, pairs = plan.tiles, batches * plan.config.Hkv
    blocks = steady = 0
    for m_block in range(tiles.m_blocks):
        walked = int(tiles.key_blocks(m_block))
        blocks += tiles.tiles_per_task * walked
        for stage in range(tiles.tiles_per_task):
            steady += max(0, min(int(tiles.unmasked_blocks(m_block, stage)), walked - 1))
    columns = getattr(plan.schedule, "emulated_exponentials", 0)
    return Emulation(pairs * blocks, pairs * steady if columns else 0, columns)
