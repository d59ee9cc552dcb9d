"""Launches that the structural check plays beside a kernel's own one, so that each slot, phase and branch is used.

A short launch uses no slot twice, and a slot that is given back too early is no fault there. Sizes that a kernel has
baked in make it another kernel: it is traced again, with the same schedule and heads and other lengths of the same
kind. A kernel that leaves its sizes to run time is traced once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tirx_attn.barriers.check import Report, check
from tirx_attn.barriers.checker.coverage import ENOUGH
from tirx_attn.config import MAX_SIZE, RUN_TIME_NAMES, TILE_KEYS, AttentionConfig
from tirx_attn.family import AnyPlan, build_planned
from tirx_attn.schedule.tiles import ceil_div

USES = 5
"""Uses of a slot that has each of its two phases waited for twice, where the first wait passes at once."""

LONG = 50_000
"""Events of a CTA of the own launch from which on only the further launches take each branch on data by itself."""

BLOCKS = 3
"""Key blocks of a task that has a first one, a last one and one between."""


@dataclass(frozen=True)
class Sizes:
    """A launch to play.

    Attributes:
        b, sq, skv: sizes.
        ctas: CTAs to play.
    """

    b: int
    sq: int
    skv: int
    ctas: tuple[int, ...]

    @property
    def named(self) -> dict[str, int]:
        """The sizes, by the names that AttentionConfig has for them."""
        return dict(zip(RUN_TIME_NAMES, (self.b, self.sq, self.skv), strict=True))


def check_launches(
    plan: AnyPlan,
    func: Any = None,
    *,
    sizes: Mapping[str, int] | None = None,
    build: Callable[[AnyPlan], Any] = build_planned,
) -> Report:
    """Structural check of a plan's kernel in its own launch, then in further ones until all has been exercised.

    What is left in `exercised.unseen` of the report, none of these launches reaches. A finding of a further launch says
    in its last line which one that is; nothing is played after a finding.

    Args:
        plan: the kernel's plan.
        func: its PrimFunc; None builds it.
        sizes: the own launch of a kernel whose sizes are open; None plays further launches alone.
        build: plan -> PrimFunc.

    Raises:
        Unsupported, ValueError: as `tirx_attn.barriers.check.check`.
    """
    func = build(plan) if func is None else func
    open_names = plan.config.run_time_names
    report = check(func, sizes=sizes, long=LONG) if sizes or not open_names else Report()
    for launch in further(plan):
        if report.findings or (report.plays and not report.exercised.unseen):
            break
        # Names that stay open keep the PrimFunc; the others are constants in it.
        fixed: Any = {name: n for name, n in launch.named.items() if name not in open_names}
        config = replace(plan.config, **fixed)
        played = func if config == plan.config else build(replace(plan, config=config))
        given = {name: n for name, n in launch.named.items() if name in open_names}
        found = check(played, sizes=given, ctas=launch.ctas)
        report.join(found, words(plan.config, launch))
    return report


def words(config: AttentionConfig, launch: Sizes) -> str:
    """A launch as findings name it."""
    return ", ".join(f"{name}={n}" for name, n in {**launch.named, "Hq": config.Hq, "Hkv": config.Hkv}.items())


def further(plan: AnyPlan) -> Iterator[Sizes]:
    """A launch of many key blocks and tasks, in which each slot is used `USES` times; then one of a single key block.

    The second one has the fewest loads between two tasks, so that a slot of Q is needed again the earliest. With a
    causal mask the first one has a tile whose rows see two blocks in part, and the second one tasks without keys.
    """
    short = 1 if plan.config.Skv is None else -plan.config.Skv % TILE_KEYS
    yield _long(plan, short)
    along, visits = _along(plan, 2), _visits(plan)
    if plan.config.is_causal:
        # More tasks than see the block: the first of them are without keys.
        along = _along(plan, ceil_div(TILE_KEYS, _tokens(plan)) + 2)
        visits = ceil_div(visits * along, ceil_div(TILE_KEYS, _tokens(plan)))
    whole = 0 if plan.config.Skv is None else short
    yield _launch(plan, max(visits, ENOUGH * along), along, _last_tile_empty(plan, along), TILE_KEYS - whole)


def _long(plan: AnyPlan, short: int) -> Sizes:
    """Many key blocks, of which the last one lacks `short` keys."""
    config, ring, tile = plan.config, plan.schedule.kv_stages, plan.tiles.tokens_per_tile
    if not plan.is_persistent:
        blocks = ceil_div(USES * ring, 2)
        # The block that the rows of the first task begin to see lies in its middle.
        sq = next(n for n in range(tile - short, MAX_SIZE, TILE_KEYS) if n > _tokens(plan))
        return _launch(plan, 1, ceil_div(sq, _tokens(plan)), sq, blocks * TILE_KEYS - short)
    # With a causal mask the tiles of a head end in different blocks.
    along = _along(plan, max(2, ceil_div(TILE_KEYS + tile, _tokens(plan))) if config.is_causal else 2)
    visits = max(_visits(plan), ENOUGH * along)
    blocks = max(BLOCKS, ceil_div(USES * ring, 2 * visits))
    sq = _last_tile_empty(plan, along)
    if config.is_causal:
        sq -= tile // 2  # a tile begins inside a block
        blocks = max(blocks, ceil_div(sq, TILE_KEYS))
    # A task begins at another slot of the ring than the one before.
    blocks = min(range(blocks, blocks + ring), key=lambda n: math.gcd(2 * n, ring))
    return _launch(plan, visits, along, sq, blocks * TILE_KEYS - short)


def _visits(plan: AnyPlan) -> int:
    """Visits of a CTA in which it uses each slot of Q `USES` times."""
    return USES * ceil_div(getattr(plan.schedule, "q_stages", 1), getattr(plan, "tiles_per_stop", 1))


def _tokens(plan: AnyPlan) -> int:
    """Query tokens of a visit of a CTA: a task, or the tiles that it takes at a stop."""
    return plan.tiles.tokens_per_tile * plan.tiles.tiles_per_task * getattr(plan, "tiles_per_stop", 1)


def _last_tile_empty(plan: AnyPlan, along: int) -> int:
    """Sq of so many visits, of which the last one has rows for its first tile alone."""
    return (along - 1) * _tokens(plan) + plan.tiles.tokens_per_tile


def _along(plan: AnyPlan, least: int) -> int:
    """Visits along the query tokens of a head; no divisor of a stride over them, so that a CTA comes to each."""
    ctas = plan.schedule.persistent_ctas or plan.target.sms
    choices = range(least, least + ctas + 2)
    return next(n for n in choices if math.gcd(n, ctas) == 1) if plan.is_persistent else least


def _launch(plan: AnyPlan, visits: int, along: int, sq: int, skv: int) -> Sizes:
    """A launch with so many visits of a CTA; without strides over the tasks, one with two tasks of each length."""
    if plan.is_persistent:
        strides = plan.schedule.persistent_ctas or plan.target.sms
        return Sizes(ceil_div(visits * strides, plan.config.Hkv * along), sq, skv, ctas=(0,))
    tasks = ENOUGH * plan.config.Hkv * along
    longest = range(ENOUGH)
    return Sizes(ENOUGH, sq, skv, (*longest, *(tasks - 1 - n for n in longest)))
