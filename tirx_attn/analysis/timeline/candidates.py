"""Schedules near a tuned one: a few values of each knob that the model has an opinion on, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tirx_attn.family import AnyPlan, AnySchedule, family_of
from tirx_attn.schedule import Plan
from tirx_attn.schedule.schedule import MMA_ORDERS, RESCALES, STATISTICS

Changes = dict[str, Any]

BLACKWELL_KNOBS: dict[str, tuple[Changes, ...]] = {
    "pv_split": tuple({"pv_split": split} for split in ((32, 96), (64, 64), (96, 32), (32,) * 4)),
    "epilogue_owner": ({"epilogue_owner": "correction"}, {"epilogue_owner": "softmax"}),
    "statistics": tuple({"statistics": place} for place in STATISTICS),
    "stagger": ({"stagger": False}, {"stagger": True}),
    "emulated_pairs": tuple({"emulated_pairs": (n, n, n, n)} for n in range(5)),
    "kv_stages": tuple({"kv_stages": n} for n in range(2, 9)),
    "o_stages": ({"o_stages": 1}, *({"o_stages": 1, "kv_stages": n} for n in (4, 8))),
    "mma_order": tuple({"mma_order": order} for order in MMA_ORDERS),
    "rescale": tuple({"rescale": when} for when in RESCALES),
    "rescale_columns": tuple({"rescale_columns": n} for n in (16, 32, 64)),
    "registers": tuple(
        {"softmax_registers": s, "correction_registers": c, "issue_registers": i}
        for s, c, i in ((200, 64, 48), (192, 80, 48), (184, 88, 56))
    ),
    "l2_budget": tuple({"l2_budget": n * 1024 * 1024} for n in (16, 32, 50, 64, 100)),
}

HOPPER_KNOBS: dict[str, tuple[Changes, ...]] = {
    "consumers": (
        {"consumers": 2, "consumer_registers": 240, "producer_registers": 24},
        {"consumers": 3, "consumer_registers": 160, "producer_registers": 32},
    ),
    "kv_stages": tuple({"kv_stages": n} for n in range(3, 9)),
    "q_stages": ({"q_stages": 1}, {"q_stages": 2}),
    "ping_pong": ({"ping_pong": True}, {"ping_pong": False}),
}


@dataclass(frozen=True)
class Candidate:
    """A legal schedule.

    Attributes:
        changes: knobs that differ from the schedule that the search began at.
        plan: its plan.
    """

    changes: Changes
    plan: AnyPlan

    @property
    def name(self) -> str:
        """The changed knobs, as --schedule takes them."""
        return ", ".join(f"{knob}={_text(value)}" for knob, value in self.changes.items()) or "as tuned"


def knobs_of(plan: AnyPlan) -> dict[str, tuple[Changes, ...]]:
    """Knobs of a plan's architecture, each with its values."""
    return BLACKWELL_KNOBS if isinstance(plan, Plan) else HOPPER_KNOBS


def neighbours(plan: AnyPlan, knobs: Iterable[str] | None = None) -> list[Candidate]:
    """The plan itself, and legal ones that differ in one knob.

    Args:
        plan: where the search begins.
        knobs: which knobs; None takes all.

    Raises:
        ValueError: a knob has no such name.
    """
    known = knobs_of(plan)
    made = [Candidate({}, plan)]
    for knob in known if knobs is None else knobs:
        if knob not in known:
            raise ValueError(f"{knob!r}: allowed values are {', '.join(known)}")
        made += filter(None, (changed(plan, values) for values in known[knob]))
    return made


def combined(plan: AnyPlan, gains: Sequence[Candidate]) -> Candidate | None:
    """All these changes together, the first of two that set one knob; None where that is not legal or not new."""
    changes: Changes = {}
    for candidate in gains:
        if not changes.keys() & candidate.changes.keys():
            changes |= candidate.changes
    return changed(plan, changes) if len(gains) > 1 and changes != gains[0].changes else None


def changed(plan: AnyPlan, values: Changes) -> Candidate | None:
    """A plan with knobs set; None where it is the same or not legal."""
    changes = {knob: value for knob, value in values.items() if getattr(plan.schedule, knob) != value}
    if not changes:
        return None
    family = family_of(plan.target)
    try:
        schedule: AnySchedule = replace(plan.schedule, **changes)
        made = family.make_plan(plan.config, schedule, plan.target)
        family.protocol(made)
    except ValueError:
        return None
    return Candidate(changes, made)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
