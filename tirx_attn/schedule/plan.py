"""Plan: what follows from a problem, a Schedule and a target. Who runs where, and what lies where."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

from tirx_attn.config import TILE_KEYS, TILE_ROWS, AttentionConfig
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
from tirx_attn.schedule.schedule import Schedule
from tirx_attn.schedule.tiles import Index, TaskTiles, ceil_div, maximum, minimum
from tirx_attn.targets import B200, Target

Q_STAGES = 2
"""Query tiles of a task. Each has its own softmax warpgroup, S and O stage, and staging tile."""


STATISTIC_COLUMNS = 2
"""Columns of tensor memory of a statistic: the same value twice, since the simulator has no moves of one column."""

ROW_SUM_COLUMN = 32
"""Where row_sum begins in S, if it goes through tensor memory: acc_scale, in the first columns, may not be read yet."""


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

    acc_scale and row_sum, where they go through tensor memory, lie in the lower half of S, whose scores are in
    registers by then. The next QKᵀ overwrites them: for acc_scale it is issued behind a PV that waited for its reader;
    for row_sum the first one of a task waits on `row_sum.empty`.
    """

    s: tuple[Region, ...]
    p: tuple[Region, ...]
    o: tuple[Region, ...]
    columns: int
    acc_scale: tuple[Region, ...] = ()
    row_sum: tuple[Region, ...] = ()

    @property
    def regions(self) -> tuple[Region, ...]:
        """All regions; P may lie over S, and statistics in it."""
        return (*self.s, *self.p, *self.o, *self.acc_scale, *self.row_sum)


@dataclass(frozen=True)
class SmemPlan:
    """Dynamic shared memory in bytes, in allocation order."""

    q: Region
    kv: Region
    o: Region
    acc_scale: Region
    row_sum: Region
    control: Region

    @property
    def regions(self) -> tuple[Region, ...]:
        """All regions, in the order of their addresses."""
        return (self.q, self.kv, self.o, self.acc_scale, self.row_sum, self.control)

    @property
    def size(self) -> int:
        """Bytes of shared memory that the kernel asks for."""
        return self.control.end


@dataclass(frozen=True)
class Plan(BasePlan):
    """A problem, a Schedule and a target, and everything the kernel derives from them."""

    GROWING: ClassVar[tuple[str, ...]] = ("softmax_registers",)
    SHRINKING: ClassVar[tuple[str, ...]] = ("correction_registers", "issue_registers")
    SMEM_KNOBS: ClassVar[tuple[str, ...]] = ("kv_stages", "o_stages")

    schedule: Schedule
    target: Target = B200

    def __post_init__(self) -> None:
        if self.config.is_causal and self.schedule.persistent_ctas is not None:
            raise ValueError(
                f"persistent_ctas={self.schedule.persistent_ctas}: allowed with a causal mask is None "
                "(one CTA takes one task)"
            )
        super().__post_init__()

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

    def tiles_of(self, sq: Index, skv: Index) -> TaskTiles:
        """The tiles of a launch whose lengths `config` may leave open."""
        return TaskTiles(self.config, sq, skv)

    @cached_property
    def smem(self) -> SmemPlan:
        tile = TILE_ROWS * self.config.D * ELEMENT_BYTES
        q = Region("q", 0, Q_STAGES * tile)
        kv = Region("kv", q.end, self.schedule.kv_stages * tile)
        o = Region("o", kv.end, self.schedule.o_stages * tile)
        statistic = 0 if self.schedule.statistics_in_tmem else Q_STAGES * TILE_ROWS * 4
        acc_scale = Region("acc_scale", o.end, statistic)
        row_sum = Region("row_sum", acc_scale.end, statistic if self.sends_row_sum else 0)
        return SmemPlan(q, kv, o, acc_scale, row_sum, Region("control", row_sum.end, CONTROL_BYTES))

    @cached_property
    def tmem(self) -> TmemPlan:
        s = tuple(Region(f"s{i}", i * TILE_KEYS, TILE_KEYS) for i in range(Q_STAGES))
        p_columns = TILE_KEYS * ELEMENT_BYTES // 4
        o = tuple(Region(f"o{i}", s[-1].end + i * self.config.D, self.config.D) for i in range(Q_STAGES))
        p = tuple(Region(f"p{i}", o[-1].end + i * p_columns, p_columns) for i in range(Q_STAGES))
        if p[-1].end > self.target.tmem_columns:
            p = tuple(Region(f"p{i}", stage.end - p_columns, p_columns) for i, stage in enumerate(s))
        places = {"acc_scale": 0, "row_sum": ROW_SUM_COLUMN} if self.sends_row_sum else {"acc_scale": 0}
        statistics = {
            name: tuple(Region(f"{name}{i}", stage.start + at, STATISTIC_COLUMNS) for i, stage in enumerate(s))
            for name, at in places.items()
            if self.schedule.statistics_in_tmem
        }
        return TmemPlan(s, p, o, self.target.tmem_columns, **statistics)

    @property
    def epilogue(self) -> Role:
        """Role that reads the final O."""
        return self.warps[self.schedule.epilogue_owner]

    @property
    def sends_row_sum(self) -> bool:
        """row_sum goes from softmax to the epilogue's owner; a softmax group that is the owner has it in registers."""
        return self.epilogue is self.warps.correction

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
        """(batch, K/V head) pairs that are taken together, for lengths that config may leave open.

        K and V of as many as fit in the L2 budget, in groups as even as one size allows: a small last group keeps few
        SMs busy.
        Divides in two steps: the bytes of a head's K and V may not fit in 32 bits.
        """
        batches = self.config.B if batches is None else batches
        skv = self.config.Skv if skv is None else skv
        keys = self.schedule.l2_budget // (2 * self.config.D * ELEMENT_BYTES)
        heads = batches * self.config.Hkv
        together = maximum(1, minimum(keys // skv, heads))
        return ceil_div(heads, maximum(1, ceil_div(heads, together)))

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-able data, with its map of tensor memory."""
        made = super().to_dict()
        open_sizes = {"B", "Skv"} & set(self.config.run_time_names)
        made["launch"]["l2_heads"] = None if open_sizes else self.l2_heads()
        made["tmem"] = {"columns": self.tmem.columns, "regions": [asdict(region) for region in self.tmem.regions]}
        return made


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

