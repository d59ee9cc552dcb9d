"""Clocks that the units of one SM need for a key block of a query tile, each working alone at its full rate.

The model of the FlashAttention-4 paper: the tensor core, the MUFU, shared memory and the FMA pipe work side by side, so
the slowest sets the pace. What a block costs beside that (waits, issue slots, registers) is not in it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tirx_attn.config import TILE_KEYS, TILE_ROWS
from tirx_attn.hopper.schedule import CONSUMER_ROWS
from tirx_attn.schedule.base import BasePlan
from tirx_attn.schedule.parts import ELEMENT_BYTES
from tirx_attn.targets import Target

MMA_ROWS = {"tcgen05": TILE_ROWS, "wgmma": CONSUMER_ROWS}
"""Query rows of one instruction, by `Target.mma`. Each instruction reads its own K or V out of shared memory."""

EXACT_FMAS = 2
"""FMA-pipe operations of a weight from MUFU.EX2: the multiply-add that forms the exponent, the addition to the sum."""

REDUCTION_FMAS = 4
"""FMA-pipe operations that split an exponent into whole and fraction (`roles/rowmath.py`, `emulated_pair`)."""

DEGREE = 3
"""Of the polynomial, one multiply-add for each degree."""

EMULATED_FMAS = REDUCTION_FMAS + DEGREE + 1
"""FMA-pipe operations of an emulated weight; the last is the addition to the sum."""


@dataclass(frozen=True)
class TileBudget:
    """Clocks of one SM for `rows` queries against `keys` keys.

    Attributes:
        target: name of the GPU.
        rows, keys, head_dim: the tile.
        emulated: share of the exponentials that the FMA pipe computes, 0 to 1.
        mma: QKᵀ and PV on the tensor core.
        exp: exponentials on the MUFU.
        smem: operands of the products out of shared memory; P does not come from there.
        fma: exponents, sums and emulated exponentials on the FMA pipe.
    """

    target: str
    rows: int
    keys: int
    head_dim: int
    emulated: float
    mma: float
    exp: float
    smem: float
    fma: float

    @property
    def units(self) -> dict[str, float]:
        """Clocks by unit."""
        return {name: getattr(self, name) for name in ("mma", "exp", "smem", "fma")}

    @property
    def clocks(self) -> float:
        """Clocks of the slowest unit."""
        return max(self.units.values())

    @property
    def binds(self) -> tuple[str, ...]:
        """The slowest units; two where they tie."""
        return tuple(name for name, clocks in self.units.items() if clocks == self.clocks)

    def to_dict(self) -> dict[str, Any]:
        """The budget as JSON-able data."""
        return {**asdict(self), "clocks": self.clocks, "binds": list(self.binds)}


def tile_budget(
    target: Target, rows: int = TILE_ROWS, keys: int = TILE_KEYS, head_dim: int = 128, emulated: float = 0.0
) -> TileBudget:
    """Budget of a tile.

    Args:
        target: the GPU.
        rows: queries, a multiple of the rows of an MMA instruction. keys: keys.
        head_dim: elements of a head.
        emulated: share of the exponentials that the FMA pipe computes.
    """
    if not 0 <= emulated <= 1:
        raise ValueError(f"emulated={emulated}: allowed are shares from 0 to 1")
    scores = rows * keys
    instructions = -(-rows // MMA_ROWS[target.mma])
    operands = (rows + 2 * instructions * keys) * head_dim * ELEMENT_BYTES
    return TileBudget(
        target=target.name,
        rows=rows,
        keys=keys,
        head_dim=head_dim,
        emulated=emulated,
        mma=4 * scores * head_dim / target.mma_flop_per_clock,
        exp=(1 - emulated) * scores / target.exp2_per_clock,
        smem=operands / target.smem_bytes_per_clock,
        fma=scores * (EXACT_FMAS + emulated * (EMULATED_FMAS - EXACT_FMAS)) / target.fma_per_clock,
    )


def plan_budget(plan: BasePlan) -> TileBudget:
    """Budget of an unmasked block of one query tile, with the plan's share of emulated exponentials."""
    emulated = getattr(plan.schedule, "emulated_exponentials", 0) / TILE_KEYS
    return tile_budget(plan.target, plan.tiles.rows, TILE_KEYS, plan.config.D, emulated)


def exp_to_mma(target: Target, head_dim: int) -> float:
    """Clocks of the exponentials over clocks of the products, without emulation; the tile's size cancels."""
    return target.mma_flop_per_clock / (4 * head_dim * target.exp2_per_clock)


def enough_emulation(target: Target, head_dim: int) -> float:
    """Smallest share of emulated exponentials with which the softmax is as fast as it gets, or as fast as the MMA.

    More takes the FMA pipe longer than it spares the MUFU.
    """
    pipes_balance = (target.fma_per_clock - EXACT_FMAS * target.exp2_per_clock) / (
        target.fma_per_clock + (EMULATED_FMAS - EXACT_FMAS) * target.exp2_per_clock
    )
    mma_binds = 1 - 1 / exp_to_mma(target, head_dim)
    return max(0.0, min(pipes_balance, mma_binds))
