"""WGMMA in the play: a unit of each warp that reads shared memory and holds registers until a wait says it is done.

An mma_async belongs to the group that the next commit closes; wait_group(n) completes all groups of the warp but its
last n. Reads of shared memory carry the number of their group, so who knows that a warp's unit has reached that number
may overwrite what it read. Four warps issue an instruction together, and each is taken to read all of it: all four
must say that they are done.

wgmma.fence orders the warp's uses of registers before the products behind it. The compiler keeps only volatile asm in
place: any other use counts as moved behind the fence, unless a register fence stands between them.
"""

from __future__ import annotations

from collections.abc import Callable

from tirx_attn.barriers.checker.memory import MMA
from tirx_attn.barriers.checker.signals import Signals
from tirx_attn.barriers.checker.translate import Skeleton
from tirx_attn.barriers.checker.wgmma import Operand


class Products(Signals):
    """What each warp's products read and hold."""

    def __init__(
        self,
        skeleton: Skeleton,
        role_of: Callable[[int], str],
        edge_name: Callable[[str], str],
        barrier_name: Callable[[int], str],
    ):
        super().__init__(skeleton, role_of, edge_name, barrier_name)
        self.groups = [0] * self.warps
        """Per warp: its committed groups."""
        self.held: list[dict[str, int]] = [{} for _ in range(self.warps)]
        """Per warp: registers -> the last group that has them, as accumulators or as A."""
        self.landed: list[set[str]] = [set() for _ in range(self.warps)]
        """Per warp: accumulators whose wait has returned, but of which the compiler does not know yet."""
        self.unfenced: list[set[str] | None] = [None] * self.warps
        """Per warp: registers used since its last wgmma.fence; None where it has had none."""
        self.loose: list[set[str]] = [set() for _ in range(self.warps)]
        """Per warp: registers used by code that no register fence has held in place since."""
        self.grouped: list[set[tuple[str, int]]] = [set() for _ in range(self.warps)]
        """Per warp: cells that its open group reads already."""

    def address(self, region: int, starts: tuple[int, ...]) -> int:
        """Address field of a descriptor."""
        return self.skeleton.regions[region].first_byte(starts) // 16

    def wgmma(self, warp: int, registers: tuple[str, ...], reads: tuple[tuple[int, int], ...], site: int) -> None:
        """Issue a product. `registers`: the accumulators, and A where it is no shared memory."""
        self.tick(warp)
        group, grouped, unfenced = self.groups[warp] + 1, self.grouped[warp], self.unfenced[warp]
        self.flying[MMA + warp, site] = group
        for name in registers:
            if unfenced is None or name in unfenced:
                self._fault(warp, f"issues {self.sites[site]} with registers {name} not behind a wgmma.fence", site)
            self.held[warp][name] = group
        self.landed[warp].discard(registers[0])
        for at, number in reads:
            operand = self.skeleton.operands[number]
            cells = operand.cells(at)
            if cells is None:
                role = self.role_of(warp)
                self.report(
                    "operand", "", role,
                    f"{role}: {self.sites[site]} reads from byte {at * 16}, where no operand of {operand.buffer} lies "
                    f"(bytes {operand.first} to {operand.end})",
                    (site, number),
                )  # fmt: skip
                continue
            # What the group reads already was checked then: the warp knows no less now.
            fresh = [cell for cell in cells if cell not in grouped]
            if fresh:
                self._need_filled(warp, fresh, operand, site)
                self._access(fresh, MMA + warp, group, self.seen[warp], False, True, site)
                grouped.update(fresh)

    def _need_filled(self, warp: int, cells: list[tuple[str, int]], operand: Operand, site: int) -> None:
        """Report a read of what nobody has written yet: in the order that is played, the product came first."""
        empty = [cell for cell in cells if self.cells.get(cell, (None, {}))[0] is None]
        edge = self.skeleton.fills.get(operand.first)
        if empty and edge:
            role, name = self.role_of(warp), self.edge_name(edge)
            self.report(
                "race", name, role,
                f"{name}: {self.sites[site]} by {role} reads {operand.buffer} at byte {empty[0][1]}, where no TMA load "
                "has written yet",
                (site, operand.buffer),
            )  # fmt: skip

    def wgmma_fence(self, warp: int) -> None:
        self.unfenced[warp] = set(self.loose[warp])

    def commit_group(self, warp: int) -> None:
        self.tick(warp)
        self.groups[warp] += 1
        self.grouped[warp].clear()

    def wait_group(self, warp: int, left: int) -> None:
        self.tick(warp)
        done, clock, held = self.groups[warp] - left, self.seen[warp], self.held[warp]
        clock[MMA + warp] = max(int(clock[MMA + warp]), done)
        for name in [name for name, group in held.items() if group <= done]:
            del held[name]
            self.landed[warp].add(name)

    def use(self, warp: int, registers: str, where: str, is_asm: bool = False) -> None:
        if registers in self.loading[warp]:
            super().use(warp, registers, where)
        if self.skeleton.operands:
            self._touch(warp, registers, "reads", where, is_asm)

    def set(self, warp: int, registers: str, where: str, is_asm: bool = False) -> None:
        self._touch(warp, registers, "writes", where, is_asm)

    def pin(self, warp: int, registers: str, where: str) -> None:
        """An empty asm that names accumulators: what is behind it stays behind it."""
        self.landed[warp].discard(registers)
        self._touch(warp, registers, "fences", where, True)
        self.loose[warp].discard(registers)

    def _touch(self, warp: int, registers: str, verb: str, where: str, is_asm: bool) -> None:
        if registers in self.held[warp]:
            what = f"{verb} registers {registers} of a WGMMA before the wait_group that completes it ({where})"
            self._fault(warp, what, where)
        elif registers in self.landed[warp] and not is_asm:
            self._fault(
                warp, f"{verb} registers {registers} of a WGMMA without a register fence behind its wait_group: the "
                f"compiler may move that ahead of the wait ({where})", where,
            )  # fmt: skip
        unfenced = self.unfenced[warp]
        if not is_asm:
            self.loose[warp].add(registers)
        if unfenced is not None:
            unfenced.add(registers)

    def _fault(self, warp: int, what: str, identity: object) -> None:
        role = self.role_of(warp)
        self.report("registers", "", role, f"{role} {what}", identity)
