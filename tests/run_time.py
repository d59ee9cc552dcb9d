"""Kernels for run-time lengths, each built once, and the launches that the tests make of them.

A name that begins with a letter and a number is an id of the list of inputs that broke other attention kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.cases import BY_HEAD, DATA
from tirx_attn.config import RUNTIME, TILE_KEYS, AttentionConfig
from tirx_attn.schedule import Plan, tuned_schedule
from tirx_attn.targets import B200
from tirx_attn.verify import PROBES, RESCALE_PROBES, proofs
from tirx_attn.verify.probe import Probe

Lengths = tuple[int, int, int]
"""(B, Sq, Skv)."""


@dataclass(frozen=True)
class Kernel:
    """One build for all lengths.

    Attributes:
        name: its id.
        heads: (Hq, Hkv, D).
        is_causal, dtype: of the problem.
        scale: of the problem: None, or a number that is handed to the launch.
        changes: fields of `Schedule` that differ from the tuned default.
        grid: CTAs, where they would follow from the lengths.
    """

    name: str
    heads: tuple[int, int, int]
    is_causal: bool = False
    dtype: str = "float16"
    scale: float | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    grid: int = 64

    @property
    def config(self) -> AttentionConfig:
        scale = None if self.scale is None else RUNTIME
        return AttentionConfig(
            None, None, None, *self.heads, self.is_causal, dtype=self.dtype, scale=scale, return_lse=True
        )

    @property
    def subject(self) -> proofs.Kernel:
        """What is proved on the simulator."""
        schedule = replace(tuned_schedule(self.config, B200), **self.changes)
        return proofs.Kernel(f"open_{self.name}", self.config, schedule, self.grid, self.scale)

    @property
    def plan(self) -> Plan:
        """For the simulator."""
        return self.subject.plan

    def at(self, lengths: Lengths) -> AttentionConfig:
        """The problem of one launch."""
        b, sq, skv = lengths
        return replace(self.config, B=b, Sq=sq, Skv=skv, scale=self.scale)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, for numbers or by a checker."""

    kernel: str
    row: str
    lengths: Lengths
    probe: str = "random"
    kind: str = "run"

    @property
    def id(self) -> str:
        return f"{self.kernel}-{self.row}-{'x'.join(map(str, self.lengths))}-{self.probe}-{self.kind}"

    @property
    def proof(self) -> proofs.Launch:
        """The launch on the simulator."""
        return proofs.Launch(self.kind, self.probe, self.lengths)

    def make_probe(self) -> Probe:
        return (PROBES | RESCALE_PROBES)[self.probe](KERNELS[self.kernel].at(self.lengths))


_TWO_CTAS = {"persistent_ctas": 2}

KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("full", (1, 1, 128), changes=_TWO_CTAS),
        Kernel("causal", (1, 1, 128), True),
        Kernel("full_8_2", (8, 2, 128), scale=0.11, changes={"persistent_ctas": 4}),
        Kernel("causal_4_1", (4, 1, 128), True),
        Kernel("full_28_4", (28, 4, 128), changes={"persistent_ctas": 8}),
        Kernel("full_24_8", (24, 8, 128), changes={"persistent_ctas": 8}),
        Kernel("causal_40_4", (40, 4, 128), True),
        Kernel("causal_128_1", (128, 1, 128), True, grid=512),
        Kernel("causal_bf16", (1, 1, 128), True, "bfloat16"),
        Kernel("causal_8_8_d64", (8, 8, 64), True),
        Kernel("full_5_1_d64_bf16", (5, 1, 64), dtype="bfloat16", scale=0.2, changes=_TWO_CTAS),
        Kernel("causal_7_1_bf16", (7, 1, 128), True, "bfloat16"),
        Kernel("full_7_1", (7, 1, 128), changes={"persistent_ctas": 1}),
    )
}

LENGTHS: tuple[Lengths, ...] = (
    (1, 1, 1),
    (1, 1, 257),
    (2, 3, 5),
    (3, 17, 64),
    (1, 64, 17),
    (2, 100, 128),
    (1, 127, 129),
    (1, 130, 1),
    (1, 5, 600),
    (1, 33, 300),
)
"""Kernels run at these, on ordinary data."""

SHORTER: tuple[Lengths, ...] = (
    (1, 1, 1),
    (1, 1, 600),
    (2, 3, 5),
    (1, 7, 129),
    (1, 2, 64),
    (1, 4, 127),
    (1, 1, 128),
    (1, 6, 9),
    (1, 3, 33),
    (2, 1, 2),
)
"""The same for kernels of many heads, of which every key block costs the most."""

MANY_HEADS = 24
"""Query heads from which on a kernel runs at `SHORTER`; so do kernels of many K/V heads."""

OTHERS: dict[str, tuple[Lengths, ...]] = {
    "full": ((1, 1, 1), (2, 3, 5), (1, 5, 600), (1, 127, 129), (1, 600, 300), (5, 129, 255)),
    "causal": ((1, 1, 1), (2, 3, 5), (1, 5, 600), (1, 127, 129), (1, 511, 512), (2, 257, 384)),
    "causal_7_1_bf16": (*LENGTHS, (1, 90, 333)),
    "full_5_1_d64_bf16": (*LENGTHS, (1, 120, 333)),
}
"""The same for kernels that have rows of their own below at many further lengths, or that want more."""


def lengths_of(kernel: Kernel) -> tuple[Lengths, ...]:
    """Lengths at which a kernel runs on ordinary data."""
    hq, hkv, _ = kernel.heads
    return SHORTER if max(hq, 4 * hkv) >= MANY_HEADS else OTHERS.get(kernel.name, LENGTHS)


_EVERY_LENGTH = [Launch(name, "lengths", lengths) for name, kernel in KERNELS.items() for lengths in lengths_of(kernel)]

_ROWS = [
    Launch("causal", "A1", (1, 256, 128), "idx"),
    Launch("causal", "A2", (1, 128, 384), "idx"),
    Launch("causal", "A4", (1, 2, 5), "idx"),
    Launch("causal_bf16", "A5", (2, 1024, 1024), "one"),  # one of its eight heads
    Launch("causal_4_1", "A6", (1, 1024, 1024), "idx"),  # one of its two groups of heads
    Launch("full", "B4", (1, 1, 257), "idx"),
    *(Launch("full", "B6", (1, sq, 1024)) for sq in (1, 2, 8, 16, 17)),
    Launch("full_28_4", "C1", (1, 128, 128), "head"),
    Launch("causal_40_4", "C3", (1, 128, 128), "columns"),
    Launch("full_24_8", "C5", (1, 256, 256), "head"),
    Launch("causal_128_1", "C8", (1, 16, 16), "idx"),
    Launch("full_8_2", "C10", (2, 1, 512), "head"),
    Launch("causal_8_8_d64", "D8", (1, 256, 256), "columns"),
    Launch("full", "E1", (1, 1, 1), "huge_logits"),
    Launch("full", "E1", (1, 130, 300), "huge_logits"),
    Launch("causal", "E1", (1, 300, 300), "huge_logits"),
    Launch("full", "E3", (1, 128, 256), "very_negative"),
    Launch("causal", "E3", (1, 256, 300), "very_negative"),
    *(Launch("full", "E8", (1, 128, 1024), probe)
      for probe in ("jump_last", "jump_first", "rescale_every", "rescale_alternate", "staircase_falling")),
    Launch("full", "E1", (1, 128, 700), "large_in_some_rows"),
    Launch("causal", "E1", (1, 300, 700), "large_in_some_rows"),
    # Rows of one warp that see no key, of a block or at all, beside rows with large scores.
    *(Launch("causal", "E1", lengths, "huge_logits") for lengths in ((1, 4, 130), (1, 300, 260))),
    Launch("causal", "F2", (1, 256, 128)),
    Launch("causal", "M2", (1, 512, 128), "idx"),
]  # fmt: skip

CHECKED_LENGTHS: dict[str, tuple[Lengths, ...]] = {
    # One query row; one key; one block; a ragged tail; rows without a key; tasks without a key.
    "causal_7_1_bf16": ((1, 1, 1), (1, 1, 300), (1, 30, 128), (1, 40, 333), (1, 90, 50), (2, 37, 129)),
    # As above, all tasks on one CTA.
    "full_7_1": ((1, 1, 1), (1, 1, 300), (2, 30, 128), (1, 90, 333), (3, 37, 129)),
}


def _outcomes(lengths: Lengths) -> tuple[str, ...]:
    """Probes that rescale in every block and in none: batches by turns, else one launch for each."""
    batches, _, skv = lengths
    if skv <= TILE_KEYS:
        return DATA[1:2]  # one block of keys has nothing to rescale
    return BY_HEAD[1:] if batches > 1 else DATA[1:]


_CHECKED = [
    Launch(name, "paths", lengths, probe, kind)
    for name, all_lengths in CHECKED_LENGTHS.items()
    for kind in ("synccheck", "racecheck")
    for lengths in all_lengths
    for probe in _outcomes(lengths)
] + [
    *(Launch(name, "E1", (1, 40, 600), "large_in_some_rows", kind)
      for name in ("causal_7_1_bf16", "full_7_1") for kind in ("synccheck", "racecheck")),
    # Heads of 64 have a ring of six tiles: five key blocks wrap it.
    *(Launch("full_5_1_d64_bf16", "M11", (1, 30, 513), "rescale_every", kind) for kind in ("synccheck", "racecheck")),
    Launch("causal_7_1_bf16", "M2", (1, 100, 20), "random", "synccheck"),
    Launch("causal_7_1_bf16", "M2", (1, 100, 20), "random", "racecheck"),
    Launch("causal", "M7", (1, 256, 256), "random", "racecheck"),
    # The ring of three: 64 and 128 keys fit, 257 wrap it. The ring of two wraps in tests/cases.py.
    *(Launch("causal", "M11", (1, n, n), "random", "racecheck") for n in (64, 128, 257)),
    Launch("full_7_1", "M3", (6, 18, 128), "random", "synccheck"),
    Launch("full_7_1", "M3", (6, 18, 128), "random", "racecheck"),
]  # fmt: skip

LAUNCHES = tuple(sorted((*_EVERY_LENGTH, *_ROWS, *_CHECKED), key=lambda launch: (launch.kernel, launch.kind)))
"""All launches, kernel by kernel and kind by kind, since each kind of a kernel is one build."""
