"""Shapes of the sm_90a kernel and changes to its schedule that the model speaks of. Needs no TVM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.family import plan_for
from tirx_attn.hopper.plan import HopperPlan

TOKENS, HEADS = 16384, 16


@dataclass(frozen=True)
class Shape:
    """A problem: `B` follows from the tokens."""

    s: int
    causal: bool
    d: int

    def plan(self, changes: dict[str, Any] | None = None) -> HopperPlan:
        """Plan of the problem with the tuned schedule, or with knobs changed."""
        config = AttentionConfig(TOKENS // self.s, self.s, self.s, HEADS, HEADS, self.d, self.causal)
        tuned = plan_for(config, arch="sm_90a")
        made = plan_for(config, replace(tuned.schedule, **(changes or {})), "sm_90a")
        assert isinstance(made, HopperPlan)
        return made

    def __str__(self) -> str:
        return f"D = {self.d}, {'causal' if self.causal else 'full'}, S = {self.s}"


TWO: dict[str, Any] = {"consumers": 2, "consumer_registers": 240, "producer_registers": 24}
NO_TURNS: dict[str, Any] = {"ping_pong": False}
ONE_Q: dict[str, Any] = {"q_stages": 1}


PREDICTED: tuple[tuple[Shape, dict[str, Any]], ...] = (
    (Shape(4096, False, 128), {"kv_stages": 3}),
    (Shape(4096, True, 128), {"kv_stages": 3}),
    (Shape(4096, False, 128), {"kv_stages": 5, "q_stages": 1}),
    (Shape(16384, False, 128), NO_TURNS),
    (Shape(16384, True, 128), NO_TURNS),
    (Shape(2048, False, 128), ONE_Q),
    (Shape(1024, True, 128), ONE_Q),
    (Shape(4096, False, 64), {"kv_stages": 4}),
    (Shape(4096, False, 64), {"kv_stages": 6}),
    (Shape(4096, True, 64), {"kv_stages": 8}),
    (Shape(4096, False, 64), TWO),
    (Shape(1024, False, 64), ONE_Q),
    (Shape(4096, False, 64), NO_TURNS),
    (Shape(4096, True, 64), NO_TURNS),
)
"""Changes to the tuned kernel that the model speaks of before they are measured in cycles."""


def words(changes: dict[str, Any]) -> str:
    """Changed knobs, without the registers that follow from them."""
    return ", ".join(f"{name}={value}" for name, value in changes.items() if not name.endswith("registers"))
