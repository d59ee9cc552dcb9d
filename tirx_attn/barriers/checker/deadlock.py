"""Explaining a play that cannot go on: who waits for whom, and which arrival is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tirx_attn.barriers.checker.declared import Declared
from tirx_attn.barriers.checker.machine import Machine
from tirx_attn.barriers.checker.memory import Finding


@dataclass(frozen=True)
class Wait:
    """A blocked wait.

    Attributes:
        role: who waits.
        target: its mbarrier (edge attribute, slot) or named barrier ("#", number).
        name: edge and slot, as printed.
        edge: edge name.
        phase: phase waited for.
        was_free: the slot is declared free at the start, so that its phase 0 belongs to its second use.
        state: what is there and what is missing, in words.
        partial: some arrivals of the phase are there.
        bytes_differ: bytes are missing, or more came than were expected.
        missing: roles that have not arrived.
        site: the wait statement, as printed.
    """

    role: str
    target: Any
    name: str
    edge: str
    phase: int
    was_free: bool
    state: str
    partial: bool
    bytes_differ: bool
    missing: tuple[str, ...]
    site: str

    def __str__(self) -> str:
        owed = f"; missing: {', '.join(self.missing)}" if self.missing else ""
        return f"{self.role} waits for {self.name} phase {self.phase} ({self.state}{owed}) at {self.site}"


def explain(machine: Machine, declared: Declared) -> Finding:
    """The finding of a deadlock: the wait most likely at fault first, then the cycle of who waits for whom."""
    waits: dict[tuple[str, Any], Wait] = {}
    for warp, blocked in sorted(machine.blocked.items()):
        wait = _describe(machine, declared, warp, blocked)
        waits.setdefault((wait.role, wait.target), wait)
    if not waits:
        return Finding("hang", "", "", "the kernel does not end, though no role waits")
    everyone = list(waits.values())
    suspect = min(everyone, key=lambda wait: _suspicion(wait, everyone))
    lines = [f"{suspect.edge}: deadlock, {suspect}"]
    lines += [f"  {wait}" for wait in _cycle(suspect, everyone)[1:]]
    kind = "bytes" if suspect.bytes_differ else "deadlock"
    return Finding(kind, suspect.edge, ", ".join(suspect.missing) or suspect.role, "\n".join(lines))


def states(machine: Machine) -> str:
    """What each role did last, a line each."""
    lines: dict[str, None] = {}
    for warp, site in sorted(machine.latest.items()):
        verb = "waits at" if warp in machine.blocked else "was last at"
        lines.setdefault(f"  {machine.role_of(warp)} {verb} {machine.sites[site]}")
    return "\n".join(lines)


def _suspicion(wait: Wait, waits: list[Wait]) -> tuple[int, bool, int, bool]:
    """Lower is more telling: wrong bytes; an arrival owed by a role that has left, or a wait of a cycle; one that
    hangs because of another; the CTA sync. Among equals one that is half filled, then the earliest use of a slot.
    """
    blocked_roles = {other.role for other in waits}
    if wait.edge == "CTA sync":
        rank = 3
    elif wait.bytes_differ:
        rank = 0
    elif any(role not in blocked_roles for role in wait.missing) or len(_cycle(wait, waits)) > 1:
        rank = 1
    else:
        rank = 2
    return (rank, not wait.partial, wait.phase + wait.was_free, not wait.was_free)


def _cycle(start: Wait, waits: list[Wait]) -> list[Wait]:
    """The shortest cycle of who waits for whom through a wait, or the wait alone where it is on none."""
    chains = [[start]]
    for chain in chains:
        for following in (wait for wait in waits if wait.role in chain[-1].missing):
            if following.role == start.role:
                return chain
            if all(following not in other for other in chains):
                chains.append([*chain, following])
    return [start]


def _describe(machine: Machine, declared: Declared, warp: int, blocked: tuple[Any, ...]) -> Wait:
    target, phase, site = blocked
    where = str(machine.sites[site])
    if target[0] == "#":
        number = target[1]
        bar = machine.named[number]
        key, slot, name = f"#{number}", 0, declared.barrier_name(number)
        state, present = f"{bar.here} of {bar.threads} threads", set(bar.members)
        partial = bytes_differ = False
        edge = name.split("[")[0]
        owing = declared.producers_of(key, slot) if number else range(machine.warps)
        missing = [w for w in owing if w not in present]
        if number and declared.edges:
            missing = [w for w in missing if w % 4 == warp % 4 or bar.threads > 64]
    else:
        key, slot = target
        mbarrier = machine.slots[target]
        edge = declared.edge_name(key)
        name = f"{edge}[{slot}]"
        done = mbarrier.count - mbarrier.pending
        state, present = f"{done} of {mbarrier.count} arrivals", set(mbarrier.arrived)
        if mbarrier.bytes:
            state += f", {abs(mbarrier.bytes)} bytes {'missing' if mbarrier.bytes > 0 else 'too many'}"
        partial, bytes_differ = done > 0, mbarrier.bytes != 0
        missing = [w for w in declared.producers_of(key, slot) if w not in present]
        if not mbarrier.pending:
            missing = []
    roles = tuple(dict.fromkeys(machine.role_of(w) for w in missing))
    row = declared.edge_of_key(key)
    was_free = row is not None and target[0] != "#" and slot in row["free_stages"]
    return Wait(
        machine.role_of(warp), target, name, edge, phase, was_free, state, partial, bytes_differ, roles, where
    )  # fmt: skip
