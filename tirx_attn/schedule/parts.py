"""What the plans of all architectures are made of: roles, memory regions, the launch."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tirx_attn.targets import WARP_THREADS

WARPGROUP_THREADS = 4 * WARP_THREADS

CONTROL_BYTES = 1024
"""Shared memory kept for the mbarriers, and on Blackwell the address word of the TMEM allocation."""

ELEMENT_BYTES = 2
PANEL_COLUMNS = 64
"""16-bit columns of one 128-byte swizzle panel; a tile row spans D / 64 panels."""


@dataclass(frozen=True)
class Role:
    """A group of threads with one job.

    Attributes:
        name: name used by the barrier table.
        warpgroups: warpgroups that play the role.
        warp: the one warp of the warpgroup that plays it, or None for all four.
        registers: register budget per thread of the role's warpgroup.
    """

    name: str
    warpgroups: tuple[int, ...]
    warp: int | None
    registers: int

    @property
    def threads(self) -> int:
        """Threads of the role that serve one query stage."""
        return WARPGROUP_THREADS if self.warp is None else WARP_THREADS


@dataclass(frozen=True)
class Warps:
    """Roles of a CTA; a subclass has one field for each."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """All roles, in the order of the plan's fields."""
        return tuple(getattr(self, field.name) for field in fields(self))

    @property
    def registers(self) -> tuple[int, ...]:
        """Register budget per thread of each warpgroup, in warpgroup order."""
        by_group = {group: role.registers for role in self.roles for group in role.warpgroups}
        return tuple(by_group[group] for group in sorted(by_group))

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return WARPGROUP_THREADS * len(self.registers)

    def __getitem__(self, name: str) -> Role:
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)


@dataclass(frozen=True)
class Region:
    """A range of shared memory (bytes) or tensor memory (32-bit columns)."""

    name: str
    start: int
    size: int

    @property
    def end(self) -> int:
        """First unit behind the region."""
        return self.start + self.size


@dataclass(frozen=True)
class Launch:
    """How the host side of a kernel is written. The device code is the same.

    Attributes:
        strided: tensors may have any strides and a byte offset; else they are compact.
        grid: CTAs of a launch whose task count is known at run time only. None launches one CTA for each task; a
            fixed grid must be as large as the largest task count, and surplus CTAs exit.
    """

    strided: bool = True
    grid: int | None = None


STRIDED = Launch()
"""What callers get: tensors with strides, and a grid that follows from the lengths."""

