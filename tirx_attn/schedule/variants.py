"""Variants: research edits of the protocol that ship with the kernel, each a few values of the Schedule.

docs/variants.md says what the checkers, the machine code and the model say of each one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tirx_attn.config import HEAD_DIMS, AttentionConfig
from tirx_attn.schedule.schedule import Schedule
from tirx_attn.schedule.tuning import tuned_schedule
from tirx_attn.targets import B200, Target


@dataclass(frozen=True)
class Variant:
    """One way to run the kernel that is worth a look.

    Attributes:
        name: what `variant` and the command line call it.
        changes: knobs of Schedule that it sets, on top of the tuned row of a problem. Where the tuned row has these
            values already, the variant is that row.
        why: why one would want it, in a sentence or two.
        head_sizes: D for which it says something; with both masks.
    """

    name: str
    changes: Mapping[str, Any]
    why: str
    head_sizes: tuple[int, ...] = HEAD_DIMS

    def schedule(self, config: AttentionConfig, target: Target = B200) -> Schedule:
        """The tuned schedule of a problem with the variant's knobs.

        Raises:
            ValueError: the head size is none of the variant's.
        """
        if config.D not in self.head_sizes:
            sizes = ", ".join(map(str, self.head_sizes))
            raise ValueError(f"D={config.D}: allowed head sizes of the variant {self.name} are {sizes}")
        return replace(tuned_schedule(config, target), **self.changes)

    def is_tuned(self, config: AttentionConfig, target: Target = B200) -> bool:
        """The tuned row of a problem has the variant's values."""
        return self.schedule(config, target) == tuned_schedule(config, target)


def _variant(name: str, why: str, head_sizes: tuple[int, ...] = HEAD_DIMS, **changes: Any) -> Variant:
    return Variant(name, MappingProxyType(changes), why, head_sizes)


VARIANTS = (
    _variant(
        "statistics-pairwise",
        "A correction warp waits for the one softmax warp whose rows it serves: a late one holds up its own rows only.",
        statistics="pairwise",
    ),
    _variant(
        "statistics-collective",
        "Two named barriers in place of eight, which leaves six to other uses; who waits, waits for the last of four "
        "warps.",
        statistics="collective",
    ),
    _variant(
        "statistics-tmem",
        "The way of the FlashAttention-4 paper: acc_scale and row_sum go through columns of S that are in registers by "
        "then, and take no shared memory. What it costs is a store, a load and their waits in each block.",
        statistics="tmem",
    ),
    _variant(
        "stagger",
        "The two softmax groups take turns in their exponentials, so that each has the MUFU to itself and the tensor "
        "cores get the two tiles apart.",
        stagger=True,
    ),
    _variant(
        "pv-96-32",
        "Three quarters of P go ahead; the rest is there by the time that their product is through.",
        pv_split=(96, 32),
    ),
    _variant(
        "pv-64-64",
        "PV starts after half of P: earlier, and it waits longer for the rest.",
        pv_split=(64, 64),
    ),
    _variant(
        "pv-32-96",
        "PV starts after the columns that run ahead of the maximum, as early as it can.",
        pv_split=(32, 96),
    ),
    _variant(
        "pv-4x32",
        "The finest overlap: each quarter of P is multiplied as it comes, for two waits and two hand-overs more.",
        pv_split=(32, 32, 32, 32),
    ),
    _variant(
        "epilogue-correction",
        "The correction group normalises and stages O, so that softmax can go on with the next task of its CTA.",
        epilogue_owner="correction",
    ),
    _variant(
        "epilogue-softmax",
        "The softmax groups, which have row_sum in registers, normalise O with twice the threads; row_sum is not sent.",
        epilogue_owner="softmax",
    ),
    _variant(
        "ring-2",
        "One K and one V tile: 32 KiB of shared memory for something else, and no load ahead of the block at hand.",
        (128,),
        kv_stages=2,
    ),
    _variant(
        "ring-3",
        "What fits beside two Q tiles and two staging tiles: the next K is there when its V slot is still in use.",
        (128,),
        kv_stages=3,
    ),
    _variant(
        "ring-4-one-o-stage",
        "A whole key block ahead, paid for with one of the staging tiles of O: the two query tiles take turns at the "
        "other one, at the end of a task.",
        (128,),
        kv_stages=4,
        o_stages=1,
    ),
    _variant(
        "rescale-voted",
        "A correction warp leaves O alone in a block in which none of its rows moved its reference: most of them.",
        rescale="voted",
    ),
    _variant(
        "rescale-always",
        "No vote and no branch: the time of a block does not depend on the data. O goes through registers in every "
        "block, which is what the vote saves.",
        rescale="always",
    ),
    _variant(
        "mma-by-tile",
        "PV and the next QKᵀ of one query tile, then those of the other: one tile is rescaled, and its softmax runs, "
        "while the other one is multiplied.",
        mma_order="by_tile",
    ),
    _variant(
        "mma-by-product",
        "Both PV, then both QKᵀ: what the overlap of a tile's correction with the other tile's products is worth.",
        mma_order="by_product",
    ),
)
"""All variants; those that are a tuned row's values stand beside the others of their kind."""


def variant(name: str) -> Variant:
    """The variant of that name.

    Raises:
        ValueError: there is none; the message names all.
    """
    for each in VARIANTS:
        if each.name == name:
            return each
    raise ValueError(f"{name!r}: allowed values are {', '.join(each.name for each in VARIANTS)}")
