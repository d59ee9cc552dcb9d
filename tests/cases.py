"""The named cases that tests of the static kernel share: one problem, one schedule, the probes and checkers to run.

A case costs one simulator build for each of its kinds, however many probes it has, so probes share cases. Kernels for
run-time lengths, and the inputs that broke other attention kernels, are in run_time.py; what must be refused is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.schedule import Schedule, tuned_schedule
from tirx_attn.targets import B200
from tirx_attn.verify import PROBES, RESCALE_PROBES
from tirx_attn.verify.probe import Probe
from tirx_attn.verify.proofs import Kernel, Launch

ALL_KINDS = ("run", "synccheck", "racecheck")
RESCALES = ("rescale_every", "rescale_never")
DATA = ("random", *RESCALES)
"""Ordinary data, keys that force a rescale in every block, keys that force none: what the checkers must see."""
BY_HEAD = ("random", "rescale_by_head")
"""The same where there are several heads or batches: every and no rescale by turns, in one launch."""


@dataclass(frozen=True)
class Case:
    """One problem under one schedule.

    Attributes:
        name: the case's id, for `pytest.mark.parametrize(..., ids=...)`.
        shape: (B, Sq, Skv, Hq, Hkv, D).
        is_causal: the mask.
        schedule_changes: fields of `Schedule` that differ from the tuned default.
        probes: names of the probes to run for numbers.
        checked: names of the probes on which the checkers run.
        kinds: simulator runs that this case asks for.
    """

    name: str
    shape: tuple[int, int, int, int, int, int]
    is_causal: bool = False
    schedule_changes: Mapping[str, Any] = field(default_factory=dict)
    probes: tuple[str, ...] = ("random",)
    checked: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("run",)

    @property
    def config(self) -> AttentionConfig:
        return AttentionConfig(*self.shape, self.is_causal)

    @property
    def schedule(self) -> Schedule:
        return replace(tuned_schedule(self.config, B200), **self.schedule_changes)

    @property
    def subject(self) -> Kernel:
        """The kernel that is proved."""
        return Kernel(self.name, self.config, self.schedule)

    @property
    def launches(self) -> list[Launch]:
        """Kind by kind, since each kind is one build."""
        return [
            Launch(kind, name, self.shape[:3])
            for kind in self.kinds
            for name in (self.probes if kind == "run" else self.checked)
        ]

    def probe(self, name: str) -> Probe:
        return (PROBES | RESCALE_PROBES)[name](self.config)


def _proved(
    name: str,
    shape: tuple[int, int, int, int, int, int],
    causal: bool = False,
    more: tuple[str, ...] = (),
    **changes: Any,
) -> Case:
    """IDX, HEAD, DIM and ONE in one launch, then `more`; numbers and both checkers on each of DATA."""
    return Case(name, shape, causal, changes, ("columns", *DATA, *more), DATA, ALL_KINDS)


def _by_head(case: Case) -> Case:
    """The case with one launch for both outcomes of a rescale."""
    return replace(case, probes=("columns", *BY_HEAD), checked=BY_HEAD)


CONFIGURATIONS = (
    _proved("full_one_block", (1, 256, 128, 1, 1, 128)),
    _proved("full_three_blocks_ratio_2", (1, 256, 384, 2, 1, 128)),
    replace(
        _proved("causal_ratio_2", (1, 256, 256, 2, 1, 128), True),
        probes=("columns", "pick", *DATA, "rescale_some_rows"),
        checked=(*DATA, "rescale_some_rows"),
    ),
    _by_head(_proved("causal_four_heads", (1, 256, 256, 4, 4, 128), True)),
    _by_head(_proved("causal_batch_2_ratio_8", (2, 128, 256, 8, 1, 128), True)),
    _proved("causal_rows_without_keys", (1, 512, 256, 1, 1, 128), True),
    _by_head(_proved("three_tasks_a_cta_correction", (1, 256, 256, 3, 3, 128), persistent_ctas=1)),
    _by_head(
        _proved("three_tasks_a_cta_softmax", (1, 256, 256, 3, 3, 128), persistent_ctas=1, epilogue_owner="softmax")
    ),
)
"""The default schedule on each kind of problem, and small persistent grids in which every phase wraps."""

VARIED: dict[str, Any] = {
    "statistics": "tmem", "pv_split": (32, 32, 32, 32), "kv_stages": 4, "o_stages": 1, "rescale": "always",
    "mma_order": "by_product",
}  # fmt: skip
"""What variants.py adds to the protocol, as far as it goes together."""

KNOBS = (
    _proved(
        "full_other_knobs",
        (1, 256, 256, 2, 1, 128),
        more=("huge_logits",),
        persistent_ctas=1,
        stagger=True,
        statistics="collective",
        pv_split=(64, 64),
    ),
    _proved(
        "causal_other_knobs",
        (1, 256, 384, 1, 1, 128),
        True,
        more=("huge_logits",),
        stagger=True,
        statistics="collective",
        pv_split=(96, 32),
        epilogue_owner="correction",
        kv_stages=2,
    ),
    _by_head(_proved("full_variants", (1, 256, 384, 2, 2, 128), persistent_ctas=1, **VARIED)),
    _by_head(_proved("causal_variants", (1, 256, 384, 2, 2, 128), True, **VARIED)),
    _by_head(
        _proved(
            "full_d64_variants",
            (1, 256, 384, 2, 2, 64),
            persistent_ctas=1,
            statistics="tmem",
            pv_split=(32, 64, 32),
            o_stages=1,
            epilogue_owner="softmax",
        )
    ),
)
"""Every protocol knob at the value that is not the default; without a mask, the epilogue's owner has a case above."""

ROWS = (
    Case(
        "M11_two_stages",
        (1, 128, 128, 1, 1, 128),
        True,
        schedule_changes={"kv_stages": 2},
        probes=(),
        checked=("random",),
        kinds=("racecheck",),
    ),
)
"""Inputs that broke other kernels, on schedules that run_time.py, which has the others, does not build.

M11: 128 keys fill a ring of two tiles; `causal_other_knobs` wraps it. M8, synccheck with one K/V head of ratio 8, is a
launch of `causal_batch_2_ratio_8`.
"""

CASES = (*CONFIGURATIONS, *KNOBS, *ROWS)


@dataclass(frozen=True)
class Rejected:
    """A problem that must be refused before any compile.

    Attributes:
        name: the case's id.
        arguments: arguments of `get_flash_attention4_kernel`, (B, Sq, Skv, Hq, Hkv, D, is_causal).
        message: what the ValueError's text must hold: argument, value, allowed values.
    """

    name: str
    arguments: tuple[int, int, int, int, int, int, bool]
    message: str


REJECTED = (
    Rejected("C6_33_2", (1, 128, 128, 33, 2, 128, False), r"Hq=33: allowed .*multiples of Hkv=2"),
    Rejected("C6_3_2", (1, 128, 128, 3, 2, 128, False), r"Hq=3: allowed .*multiples of Hkv=2"),
    Rejected("C9", (1, 128, 128, 256, 1, 128, False), r"Hq=256 .*allowed ratios .*128.*got 256"),
    Rejected("D1", (1, 1000, 1000, 8, 8, 256, True), r"D=256: allowed .*128"),
    Rejected("D2", (1, 1000, 1000, 8, 8, 16, True), r"D=16: allowed .*128"),
    Rejected("D3_8", (1, 256, 256, 1, 1, 8, False), r"D=8: allowed .*128"),
    Rejected("D3_16", (1, 2048, 2048, 1, 1, 16, True), r"D=16: allowed .*128"),
    Rejected("D5_96", (1, 128, 128, 1, 1, 96, False), r"D=96: allowed .*128"),
    Rejected("D5_160", (1, 128, 128, 1, 1, 160, False), r"D=160: allowed .*128"),
    Rejected("D5_192", (1, 128, 128, 1, 1, 192, False), r"D=192: allowed .*128"),
    Rejected("D6", (1, 128, 128, 8, 4, 512, True), r"D=512: allowed .*128"),
    Rejected("H1_baked_in", (1, 128, 0, 1, 1, 128, False), r"Skv=0: allowed .*positive"),
    Rejected("H1_baked_in_causal", (1, 128, 0, 1, 1, 128, True), r"Skv=0: allowed .*positive"),
)

MASK_LENGTHS = (1, 127, 128, 129, 255, 256, 257, 384)
"""M6: Sq and Skv over which every role must compute the same tile ranges."""


def by_name(name: str) -> Case:
    """The case of that name."""
    return next(case for case in CASES if case.name == name)
