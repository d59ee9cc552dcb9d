"""HopperPlan: what follows from a problem, a HopperSchedule and a target. Who runs where, and what lies where."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tirx_attn.config import AttentionConfig
from tirx_attn.hopper.schedule import HopperSchedule
from tirx_attn.schedule.base import BasePlan
from tirx_attn.schedule.parts import (
    CONTROL_BYTES,
    ELEMENT_BYTES,
    STRIDED,
    Launch,
    Region,
    Role,
    Warps,
)
from tirx_attn.schedule.tiles import Index, TaskTiles, ceil_div
from tirx_attn.targets import H200, Target


@dataclass(frozen=True)
class HopperWarps(Warps):
    """Roles of the CTA: one warpgroup loads and stores, the others multiply and compute the softmax."""

    load: Role
    store: Role
    consumer: Role


@dataclass(frozen=True)
class HopperSmem:
    """Dynamic shared memory in bytes, in allocation order."""

    q: Region
    kv: Region
    o: Region
    control: Region

    @property
    def regions(self) -> tuple[Region, ...]:
        """All regions, in the order of their addresses."""
        return (self.q, self.kv, self.o, self.control)

    @property
    def size(self) -> int:
        """Bytes of shared memory that the kernel asks for."""
        return self.control.end


@dataclass(frozen=True)
class HopperPlan(BasePlan):
    """A problem, a HopperSchedule and a target, and everything the kernel derives from them."""

    GROWING: ClassVar[tuple[str, ...]] = ("consumer_registers",)
    SHRINKING: ClassVar[tuple[str, ...]] = ("producer_registers",)
    SMEM_KNOBS: ClassVar[tuple[str, ...]] = ("kv_stages", "q_stages")

    schedule: HopperSchedule
    target: Target = H200

    @cached_property
    def warps(self) -> HopperWarps:
        s = self.schedule
        return HopperWarps(
            load=Role("load", (0,), 0, s.producer_registers),
            store=Role("store", (0,), 1, s.producer_registers),
            consumer=Role("consumer", tuple(range(1, 1 + s.consumers)), None, s.consumer_registers),
        )

    def tiles_of(self, sq: Index, skv: Index) -> TaskTiles:
        """The tiles of a launch whose lengths `config` may leave open."""
        return TaskTiles(self.config, sq, skv, tiles_per_task=1, rows=self.schedule.rows)

    @cached_property
    def smem(self) -> HopperSmem:
        query_tile = self.schedule.rows * self.config.D * ELEMENT_BYTES
        q = Region("q", 0, self.schedule.q_stages * query_tile)
        kv = Region("kv", q.end, self.schedule.kv_stages * self.tile_bytes)
        o = Region("o", kv.end, query_tile)
        return HopperSmem(q, kv, o, Region("control", o.end, CONTROL_BYTES))

    @property
    def is_persistent(self) -> bool:
        """CTAs stride over the tasks."""
        return True

    @property
    def tasks_per_cta(self) -> int | None:
        """Tasks of the busiest CTA; None where they are known at run time only."""
        if self.tasks is None or self.config.B is None:
            return None
        stops = self.config.B * self.config.Hkv * int(self.stops(self.tiles.m_blocks))
        return ceil_div(stops, self.grid) * self.tiles_per_stop

    @property
    def tiles_per_stop(self) -> int:
        """Query tiles that a CTA takes at once: with a causal mask a long one and a short one, which balance."""
        return 2 if self.config.is_causal else 1

    def stops(self, m_blocks: Index) -> Index:
        """How often CTAs stop at one (batch, K/V head)."""
        return ceil_div(m_blocks, self.tiles_per_stop)

    @property
    def grid(self) -> int:
        """CTAs of the persistent launch."""
        ctas = self.schedule.persistent_ctas or self.target.sms
        if self.config.B is None or self.config.Sq is None:
            return ctas
        return min(ctas, self.config.B * self.config.Hkv * int(self.stops(self.tiles.m_blocks)))

    def l2_heads(self, batches: Index, skv: Index) -> Index:
        """(batch, K/V head) pairs that CTAs walk at once: head by head, so that their K and V stay in L2."""
        return 1

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-able data."""
        made = super().to_dict()
        made["launch"]["tiles_per_stop"] = self.tiles_per_stop
        return made


def make_hopper_plan(
    config: AttentionConfig,
    schedule: HopperSchedule | None = None,
    target: Target = H200,
    launch: Launch | None = None,
) -> HopperPlan:
    """Plan of a problem; without a schedule the tuned one is taken.

    Raises:
        TypeError: `schedule` is not a HopperSchedule.
        ValueError: the schedule does not fit the target (registers, shared memory).
    """
    if schedule is None:
        from tirx_attn.hopper.tuning import hopper_tuning_row

        schedule = hopper_tuning_row(config, target).schedule
    if not isinstance(schedule, HopperSchedule):
        raise TypeError(f"schedule={schedule!r}: allowed values are None and tirx_attn.HopperSchedule")
    return HopperPlan(config, schedule, target, launch or STRIDED)

