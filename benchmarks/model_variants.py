"""Shapes of the sm_90a kernel and changes to its schedule that the model speaks of. Needs no TVM."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.family import plan_for
from tirx_attn.hopper.plan import HopperPlan

TOKENS = 16384
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Shape:
    """A problem: `B` follows from the tokens; `heads` are Hq and Hkv."""

    s: int
    causal: bool
    d: int
    heads: tuple[int, int] = (16, 16)

    def plan(self, changes: dict[str, Any] | None = None) -> HopperPlan:
        """Plan of the problem with the tuned schedule, or with knobs changed."""
        config = AttentionConfig(TOKENS // self.s, self.s, self.s, *self.heads, self.d, self.causal)
        tuned = plan_for(config, arch="sm_90a")
        made = plan_for(config, replace(tuned.schedule, **(changes or {})), "sm_90a")
        assert isinstance(made, HopperPlan)
        return made

    def __str__(self) -> str:
        grouped = "" if self.heads == (16, 16) else f", heads {self.heads[0]}/{self.heads[1]}"
        return f"D = {self.d}, {'causal' if self.causal else 'full'}, S = {self.s}{grouped}"


NO_TURNS: dict[str, Any] = {"ping_pong": False}
ONE_Q: dict[str, Any] = {"q_stages": 1}

GROUPED = (32, 8)
PREDICTED: tuple[tuple[Shape, dict[str, Any]], ...] = (
    (Shape(512, False, 128), ONE_Q),
    (Shape(8192, False, 128), ONE_Q),
    (Shape(512, True, 128), ONE_Q),
    (Shape(2048, True, 128), ONE_Q),
    (Shape(2048, False, 128), NO_TURNS),
    (Shape(2048, True, 128), NO_TURNS),
    (Shape(8192, True, 128), NO_TURNS),
    (Shape(2048, False, 128), {**ONE_Q, **NO_TURNS}),
    (Shape(8192, True, 128), {**ONE_Q, **NO_TURNS}),
    (Shape(2048, False, 128, GROUPED), ONE_Q),
    (Shape(4096, False, 128, GROUPED), NO_TURNS),
    (Shape(4096, True, 128, GROUPED), NO_TURNS),
    (Shape(4096, False, 128), {"persistent_ctas": 120}),
    (Shape(4096, True, 128), {"persistent_ctas": 120}),
)
"""Changes to the tuned kernel that the model speaks of before they are measured in cycles."""


@dataclass(frozen=True)
class Seen:
    """What an H200 showed of a change: clock cycles of each launch of the tuned and of the changed kernel."""

    shape: Shape
    changes: dict[str, Any]
    tuned: tuple[float, ...]
    changed: tuple[float, ...]

    @property
    def percent(self) -> float:
        """How many more cycles the changed kernel takes, by the medians."""
        return 100 * (median(self.changed) / median(self.tuned) - 1)


@cache
def seen_cycles(name: str = "cycles_h200.json") -> tuple[Seen, ...]:
    """The rows of a file in data/, which says where and how they were measured."""
    rows = json.loads((DATA / name).read_text())["rows"]
    return tuple(
        Seen(
            Shape(row["S"], row["causal"], row["D"], tuple(row["heads"]) if "heads" in row else (16, 16)),
            row["changes"], tuple(row["tuned"]), tuple(row["changed"]),
        )
        for row in rows
    )  # fmt: skip


SECOND_ROUND = "cycles_h200_second.json"
"""What was measured of PREDICTED afterwards."""


def words(changes: dict[str, Any]) -> str:
    """Changed knobs, without the registers that follow from them."""
    return ", ".join(f"{name}={value}" for name, value in changes.items() if not name.endswith("registers"))
