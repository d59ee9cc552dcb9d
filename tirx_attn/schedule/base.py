"""BasePlan: what the plans of all architectures derive and refuse in the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

from tirx_attn.config import TILE_KEYS, AttentionConfig
from tirx_attn.schedule.parts import ELEMENT_BYTES, STRIDED, WARPGROUP_THREADS, Launch, Warps
from tirx_attn.schedule.schedule import MAX_TASKS
from tirx_attn.schedule.tiles import Index, TaskTiles
from tirx_attn.targets import Target


@dataclass(frozen=True)
class BasePlan(ABC):
    """A problem, a schedule and a target. A subclass says who runs where and what lies where."""

    GROWING: ClassVar[tuple[str, ...]]
    """Register knobs of warpgroups that take registers at their start."""
    SHRINKING: ClassVar[tuple[str, ...]]
    """Register knobs of warpgroups that give some back."""
    SMEM_KNOBS: ClassVar[tuple[str, ...]]
    """Knobs that decide how much shared memory is needed."""

    config: AttentionConfig
    schedule: Any
    target: Target
    launch: Launch = STRIDED

    def __post_init__(self) -> None:
        launched = self.target.registers // self.warps.threads // 8 * 8
        for name in self.GROWING:
            if getattr(self.schedule, name) < launched:
                self._refuse_registers(name, f"{launched} or more", "grows")
        for name in self.SHRINKING:
            if getattr(self.schedule, name) > launched:
                self._refuse_registers(name, f"{launched} or fewer", "shrinks")
        used = WARPGROUP_THREADS * sum(self.warps.registers)
        if used > self.target.registers:
            raise ValueError(
                f"{self._values(*self.GROWING, *self.SHRINKING)}: 128 threads x {self.warps.registers} need {used} "
                f"registers, allowed are {self.target.registers}"
            )
        if self.tasks is not None and self.tasks >= MAX_TASKS:
            raise ValueError(
                f"B={self.config.B}, Hkv={self.config.Hkv}, Sq={self.config.Sq}: {self.tasks} tasks, "
                f"allowed are fewer than {MAX_TASKS}"
            )
        if self.smem.size > self.target.smem_bytes:
            raise ValueError(
                f"{self._values(*self.SMEM_KNOBS)}: need{'s' * (len(self.SMEM_KNOBS) == 1)} {self.smem.size} bytes of "
                f"shared memory, allowed are {self.target.smem_bytes} on {self.target.name}"
            )

    @property
    @abstractmethod
    def warps(self) -> Warps:
        """Roles of the CTA."""

    @property
    @abstractmethod
    def smem(self) -> Any:
        """Map of shared memory, with `regions` and `size`."""

    @property
    @abstractmethod
    def is_persistent(self) -> bool:
        """CTAs stride over the tasks."""

    @property
    @abstractmethod
    def grid(self) -> int | None:
        """CTAs of the launch; None where their number is known at run time only."""

    @abstractmethod
    def tiles_of(self, sq: Index, skv: Index) -> TaskTiles:
        """The tiles of a launch whose lengths `config` may leave open."""

    @abstractmethod
    def l2_heads(self, batches: Index, skv: Index) -> Index:
        """(batch, K/V head) pairs that are taken together, so that their K and V stay in L2."""

    @cached_property
    def tiles(self) -> TaskTiles:
        return self.tiles_of(self.config.Sq, self.config.Skv)

    @property
    def tasks(self) -> int | None:
        """(batch, K/V head, query tiles of a task) triples; None where B or Sq is known at run time only."""
        if self.config.B is None or self.config.Sq is None:
            return None
        return self.config.B * self.config.Hkv * int(self.tiles.m_blocks)

    @property
    def q_tile_bytes(self) -> int:
        """Bytes that a Q tile's TMA loads bring: its used rows, in-bounds or not."""
        return self.tiles.used_rows * self.config.D * ELEMENT_BYTES

    @property
    def tile_bytes(self) -> int:
        """Bytes of one K or V tile: what the TMA loads of a full box bring, in-bounds or not."""
        return TILE_KEYS * self.config.D * ELEMENT_BYTES

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-able data: problem, schedule, launch, roles, shared memory."""
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
            },
            "roles": [asdict(role) for role in self.warps.roles],
            "smem": {"bytes": self.smem.size, "regions": [asdict(region) for region in self.smem.regions]},
        }

    def _values(self, *names: str) -> str:
        return ", ".join(f"{name}={getattr(self.schedule, name)}" for name in names)

    def _refuse_registers(self, name: str, allowed: str, verb: str) -> None:
        raise ValueError(
            f"{self._values(name)}: allowed values are {allowed}, since the budget {verb} from there at the start"
        )
