"""Plan: what follows from a problem, a Schedule and a target. Who runs where, and what lies where."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from tirx_attn.config import TILE_KEYS, TILE_ROWS, AttentionConfig
from tirx_attn.schedule.parts import (
    CONTROL_BYTES,
    ELEMENT_BYTES,
    STRIDED,
    WARPGROUP_THREADS,
    Launch,
    Region,
    Role,
    Warps,
)
from tirx_attn.schedule.schedule import MAX_TASKS, Schedule
from tirx_attn.schedule.tiles import Index, TaskTiles, ceil_div, maximum, minimum
from tirx_attn.targets import B200, Target

Q_STAGES = 2
"""Query tiles of a task. Each has its own softmax warpgroup, S and O stage, and staging tile."""


@dataclass(frozen=True)
class WarpPlan(Warps):
    """Roles of the CTA's four warpgroups."""

    softmax: Role
    correction: Role
    mma: Role
    load: Role
    store: Role


@dataclass(frozen=True)
class TmemPlan:
    """Tensor memory in 32-bit columns of 128 lanes. P lies beside S and O where there is room, for head size 64.

    Elsewhere it aliases the upper half of its own S stage. P may overwrite S there because a softmax warp stores P only
    after its own loads of S completed, and each warp owns its 32 lanes; the next QKᵀ may overwrite P because it is
    issued after the PV that reads P, and MMAs of one shape keep their order. For head size 64 the two shapes differ.
    """

    s: tuple[Region, ...]
    p: tuple[Region, ...]
    o: tuple[Region, ...]
    columns: int

    @property
    def regions(self) -> tuple[Region, ...]:
        return (*self.s, *self.p, *self.o)


@dataclass(frozen=True)
class SmemPlan:
    """Dynamic shared memory in bytes, in allocation order."""

    q: Region
    kv: Region
    o: Region
    mailbox: Region
    control: Region

    @property
    def regions(self) -> tuple[Region, ...]:
        return (self.q, self.kv, self.o, self.mailbox, self.control)

    @property
    def size(self) -> int:
        return self.control.end


@dataclass(frozen=True)
class Plan:
    """A problem, a Schedule and a target, and everything the kernel derives from them."""

    config: AttentionConfig
    schedule: Schedule
    target: Target = B200
    launch: Launch = STRIDED

    def __post_init__(self) -> None:
        s = self.schedule
        if self.config.is_causal and s.persistent_ctas is not None:
            raise ValueError(
                f"persistent_ctas={s.persistent_ctas}: allowed with a causal mask is None (one CTA takes one task)"
            )
        launched = self.target.registers // self.warps.threads
        if s.softmax_registers < launched:
            _refuse_registers("softmax_registers", s.softmax_registers, f"{launched} or more", "grows")
        for name in ("correction_registers", "issue_registers"):
            if getattr(s, name) > launched:
                _refuse_registers(name, getattr(s, name), f"{launched} or fewer", "shrinks")
        used = WARPGROUP_THREADS * sum(self.warps.registers)
        if used > self.target.registers:
            raise ValueError(
                f"softmax_registers={s.softmax_registers}, correction_registers={s.correction_registers}, "
                f"issue_registers={s.issue_registers}: 128 threads x {self.warps.registers} need {used} registers, "
                f"allowed are {self.target.registers}"
            )
        if self.tasks is not None and self.tasks >= MAX_TASKS:
            raise ValueError(
                f"B={self.config.B}, Hkv={self.config.Hkv}, Sq={self.config.Sq}: {self.tasks} tasks, "
                f"allowed are fewer than {MAX_TASKS}"
            )
        if self.smem.size > self.target.smem_bytes:
            raise ValueError(
                f"kv_stages={s.kv_stages}: needs {self.smem.size} bytes of shared memory, "
                f"allowed are {self.target.smem_bytes} on {self.target.name}"
            )

    @cached_property
    def warps(self) -> WarpPlan:
        s = self.schedule
        return WarpPlan(
            softmax=Role("softmax", (0, 1), None, s.softmax_registers),
            correction=Role("correction", (2,), None, s.correction_registers),
            mma=Role("mma", (3,), 0, s.issue_registers),
            load=Role("load", (3,), 1, s.issue_registers),
            store=Role("store", (3,), 2, s.issue_registers),
        )

    @cached_property
    def tiles(self) -> TaskTiles:
        return TaskTiles(self.config)

    def tiles_of(self, sq: Index, skv: Index) -> TaskTiles:
        """The tiles of a launch whose lengths `config` may leave open."""
        return TaskTiles(self.config, sq, skv)

    @cached_property
    def smem(self) -> SmemPlan:
        tile = TILE_ROWS * self.config.D * ELEMENT_BYTES
        q = Region("q", 0, Q_STAGES * tile)
        kv = Region("kv", q.end, self.schedule.kv_stages * tile)
        o = Region("o", kv.end, Q_STAGES * tile)
        mailbox = Region("mailbox", o.end, Q_STAGES * TILE_ROWS * 4)
        return SmemPlan(q, kv, o, mailbox, Region("control", mailbox.end, CONTROL_BYTES))

    @cached_property
    def tmem(self) -> TmemPlan:
        s = tuple(Region(f"s{i}", i * TILE_KEYS, TILE_KEYS) for i in range(Q_STAGES))
        p_columns = TILE_KEYS * ELEMENT_BYTES // 4
        o = tuple(Region(f"o{i}", s[-1].end + i * self.config.D, self.config.D) for i in range(Q_STAGES))
        p = tuple(Region(f"p{i}", o[-1].end + i * p_columns, p_columns) for i in range(Q_STAGES))
        if p[-1].end > self.target.tmem_columns:
            p = tuple(Region(f"p{i}", stage.end - p_columns, p_columns) for i, stage in enumerate(s))
        return TmemPlan(s, p, o, self.target.tmem_columns)

    @property
    def epilogue(self) -> Role:
        """Role that reads the final O."""
        return self.warps[self.schedule.epilogue_owner]

    @property
    def tasks(self) -> int | None:
        """(batch, K/V head, pair of query tiles) triples; None where B or Sq is known at run time only."""
        if self.config.B is None or self.config.Sq is None:
            return None
        return self.config.B * self.config.Hkv * int(self.tiles.m_blocks)

    @property
    def is_persistent(self) -> bool:
        """Non-causal tasks cost the same, so CTAs stride over them; causal CTAs take one task each."""
        return not self.config.is_causal

    @property
    def tasks_per_cta(self) -> int | None:
        """Tasks of the busiest CTA; None where they are known at run time only."""
        return ceil_div(self.tasks, self.grid) if self.tasks and self.grid else None

    @property
    def grid(self) -> int | None:
        """CTAs of the launch; None where there are as many as tasks, known at run time only."""
        if not self.is_persistent:
            return self.launch.grid if self.tasks is None else self.tasks
        ctas = self.schedule.persistent_ctas or self.target.sms
        return ctas if self.tasks is None else min(self.tasks, ctas)

    def l2_heads(self, batches: Index = None, skv: Index = None) -> Index:
        """(batch, K/V head) pairs whose K and V fit in the L2 budget together, for lengths that config may leave open.

        Divides in two steps: the bytes of a head's K and V may not fit in 32 bits.
        """
        batches = self.config.B if batches is None else batches
        skv = self.config.Skv if skv is None else skv
        keys = self.schedule.l2_budget // (2 * self.config.D * ELEMENT_BYTES)
        return maximum(1, minimum(keys // skv, batches * self.config.Hkv))

    @property
    def q_tile_bytes(self) -> int:
        """Bytes that a Q tile's TMA loads bring: its used rows, in-bounds or not."""
        return self.tiles.used_rows * self.config.D * ELEMENT_BYTES

    @property
    def tile_bytes(self) -> int:
        """Bytes of one K or V tile: what the TMA loads of a full box bring, in-bounds or not."""
        return TILE_ROWS * self.config.D * ELEMENT_BYTES

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-able data: problem, schedule, launch, roles, memory maps."""
        return {
            "config": asdict(self.config),
            "schedule": asdict(self.schedule),
            "target": asdict(self.target),
            "launch": {
                "grid": self.grid,
                "threads": self.warps.threads,
                "tasks": self.tasks,
                "m_blocks": None if self.config.Sq is None else self.tiles.m_blocks,
                "persistent": self.is_persistent,
                "l2_heads": None if {"B", "Skv"} & set(self.config.run_time_names) else self.l2_heads(),
            },
            "roles": [asdict(role) for role in self.warps.roles],
            "smem": {"bytes": self.smem.size, "regions": [asdict(region) for region in self.smem.regions]},
            "tmem": {"columns": self.tmem.columns, "regions": [asdict(region) for region in self.tmem.regions]},
        }


def make_plan(
    config: AttentionConfig, schedule: Schedule | None = None, target: Target = B200, launch: Launch | None = None
) -> Plan:
    """Plan of a problem; without a Schedule the tuning table's row for the problem's regime is taken.

    Raises:
        TypeError: `schedule` is not a Schedule.
        ValueError: the Schedule does not fit the target (registers, shared memory).
    """
    if schedule is None:
        from tirx_attn.schedule.tuning import tuned_schedule

        schedule = tuned_schedule(config, target)
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule={schedule!r}: allowed values are None and tirx_attn.Schedule")
    return Plan(config, schedule, target, launch or STRIDED)


def _refuse_registers(name: str, value: int, allowed: str, verb: str) -> None:
    raise ValueError(f"{name}={value}: allowed values are {allowed}, since the budget {verb} from there at the start")
