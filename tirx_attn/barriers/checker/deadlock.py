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
        state: what is there and what is missing, in words.
        partial: some arrivals, or some bytes, of the phase are there.
        missing: roles that have not arrived.
        site: the wait statement, as printed.
    """

    role: str
    target: Any
    name: str
    edge: str
    phase: int
    state: str
    partial: bool
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
    suspect = min(waits.values(), key=lambda wait: _suspicion(wait, waits))
    cycle = _cycle(suspect, list(waits.values()))
    lines = [f"{suspect.edge}: deadlock, {suspect}"]
    lines += [f"  {wait}" for wait in cycle[1:]]
    kind = "bytes" if "bytes" in suspect.state and suspect.partial else "deadlock"
    return Finding(kind, suspect.edge, ", ".join(suspect.missing) or suspect.role, "\n".join(lines))


def _suspicion(wait: Wait, waits: dict[tuple[str, Any], Wait]) -> tuple[int, int]:
    """Lower is more telling: a phase half filled; an arrival owed by a role that has left; anything; the CTA sync."""
    blocked_roles = {other.role for other in waits.values()}
    if wait.edge == "CTA sync":
        return (3, wait.phase)
    if wait.partial:
        return (0, wait.phase)
    left = any(role not in blocked_roles for role in wait.missing)
    return (1 if left else 2, wait.phase)


def _cycle(start: Wait, waits: list[Wait]) -> list[Wait]:
    chain = [start]
    while True:
        following = next((wait for wait in waits if wait.role in chain[-1].missing and wait not in chain), None)
        if following is None:
            return chain
        chain.append(following)


def _describe(machine: Machine, declared: Declared, warp: int, blocked: tuple[Any, ...]) -> Wait:
    target, phase, site = blocked
    where = str(machine.sites[site])
    if target[0] == "#":
        number = target[1]
        bar = machine.named[number]
        key, slot, name = f"#{number}", 0, declared.barrier_name(number)
        state, present = f"{bar.here} of {bar.threads} threads", set(bar.members)
        partial = False
        edge = name.split("[")[0]
        owing = declared.producers_of(key, slot) if number else range(len(machine.seen))
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
        partial = done > 0 or mbarrier.bytes != 0
        missing = [w for w in declared.producers_of(key, slot) if w not in present]
        if not mbarrier.pending:
            missing = []
    roles = tuple(dict.fromkeys(machine.role_of(w) for w in missing))
    return Wait(machine.role_of(warp), target, name, edge, phase, state, partial, roles, where)
