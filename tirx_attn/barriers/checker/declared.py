"""The table that a PrimFunc carries, and the PrimFunc held against it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tirx_attn.barriers import PROTOCOL_ATTRIBUTE
from tirx_attn.barriers.checker.machine import Machine
from tirx_attn.barriers.checker.memory import Finding
from tirx_attn.barriers.checker.tir import MAX_WARPS
from tirx_attn.barriers.checker.translate import Skeleton

NAMED = "hardware named barrier"


class Declared:
    """The table that a PrimFunc carries: roles by warp, edges by attribute name, named barriers by number."""

    def __init__(self, func: Any):
        attributes = func.attrs or {}
        data = json.loads(str(attributes[PROTOCOL_ATTRIBUTE])) if PROTOCOL_ATTRIBUTE in attributes else {}
        self.roles: list[dict[str, Any]] = data.get("roles", [])
        self.edges: dict[str, dict[str, Any]] = {
            edge["name"].replace(".", "_"): edge for edge in data.get("protocol", {}).get("edges", [])
        }
        self.register_file: int | None = data.get("registers")
        self.max_named: int | None = data.get("named_barriers")
        self._role_by_warp = [self._find_role(warp) for warp in range(MAX_WARPS)]
        self.named: dict[int, tuple[str, int]] = {}
        """Number of a hardware named barrier -> its edge and slot."""
        number = 1
        for edge in self.edges.values():
            if edge["kind"] == NAMED:
                for slot in range(edge["slots"]):
                    self.named[number] = (edge["name"], slot)
                    number += 1

    def _find_role(self, warp: int) -> str:
        for role in self.roles:
            if warp // 4 in role["warpgroups"] and role["warp"] in (None, warp % 4):
                groups = role["warpgroups"]
                return f"{role['name']} {groups.index(warp // 4)}" if len(groups) > 1 else str(role["name"])
        return f"warp {warp}"

    def role_of(self, warp: int) -> str:
        """Role of a warp; with the number of its warpgroup in the role where that has several."""
        return self._role_by_warp[warp]

    def edge_name(self, attribute: str) -> str:
        edge = self.edges.get(attribute)
        return edge["name"] if edge else attribute

    def barrier_name(self, number: int) -> str:
        if number == 0:
            return "CTA sync"
        name, slot = self.named.get(number, (f"named barrier {number}", 0))
        return f"{name}[{slot}]" if number in self.named else name

    def edge_of_key(self, key: str) -> dict[str, Any] | None:
        """The edge of a machine's key: an attribute name, or "#" and the number of a named barrier."""
        if key.startswith("#"):
            name = self.named.get(int(key[1:]), ("", 0))[0]
            return self.edges.get(name.replace(".", "_"))
        return self.edges.get(key)

    def registers_of(self, warpgroup: int) -> int | None:
        """Declared register budget of a warpgroup."""
        return next((role["registers"] for role in self.roles if warpgroup in role["warpgroups"]), None)

    def producers_of(self, key: str, slot: int) -> list[int]:
        """Warps that arrive on a slot of an edge.

        Where not all warpgroups of a role arrive, the stage's own one does; where the role waits too, the one before.
        """
        edge = self.edge_of_key(key)
        if edge is None:
            return []
        named = self.named[int(key[1:])][1] if key.startswith("#") else None
        groups = {role["name"]: len(role["warpgroups"]) for role in self.roles}
        names = _producers(edge)
        whole = {p["role"] for p in edge["producers"] if p.get("groups", 1) > 1}
        warps = []
        for warp in range(MAX_WARPS):
            name, _, group = self.role_of(warp).partition(" ")
            if name not in names:
                continue
            stage = slot if named is None else named * groups[name] // edge["slots"]
            if not group or name in whole or int(group) == (stage - (name in edge["consumers"])) % groups[name]:
                warps.append(warp)
        return warps

    def credit_of_named(self, number: int) -> int:
        """Threads that arrive at a named barrier before the first task, and so are left over behind the last one."""
        edge = self.edge_of_key(f"#{number}")
        if edge is None or edge["credit"] is None or self.named[number][1] not in edge["free_stages"]:
            return 0
        return sum(p["arrivals"] for p in edge["producers"] if p["role"] == edge["credit"])

    def releases(self, full: str) -> list[str]:
        """Attributes of the edges that say that what an edge fills may be filled again: its pipeline's others."""
        pipeline = self.edges[full]["name"].partition(".")[0] if full in self.edges else full
        return [
            attribute
            for attribute, edge in self.edges.items()
            if attribute != full and edge["name"].startswith(f"{pipeline}.")
        ]

    def between(self, first: str, second: str) -> list[str]:
        """Attributes of the edges on which one role arrives and another waits."""
        a, b = first.split()[0], second.split()[0]
        return [
            attribute
            for attribute, edge in self.edges.items()
            if b in edge["consumers"] and (any(p["role"] == a for p in edge["producers"]) or edge["credit"] == a)
        ]


def check_executed(declared: Declared, skeleton: Skeleton, machines: Iterable[Machine]) -> list[Finding]:
    """Differences between the table and what the plays did."""
    findings: dict[str, Finding] = {}
    for machine in machines:
        faults = (*_counts(declared, skeleton, machine), *_users(declared, machine), *_resources(declared, machine))
        for finding in faults:
            findings.setdefault(finding.message, finding)
    return list(findings.values())


def _counts(declared: Declared, skeleton: Skeleton, machine: Machine) -> Iterator[Finding]:
    for attribute, edge in declared.edges.items():
        if edge["kind"] == NAMED:
            continue
        name, slots = edge["name"], skeleton.barriers.get(attribute, 0)
        parts = " + ".join(f"{p['role']} {p['arrivals']}" for p in edge["producers"])
        roles = " and ".join(p["role"] for p in edge["producers"])
        if slots != edge["slots"]:
            yield Finding("table", name, roles, f"{name}: has {slots} slots, declared are {edge['slots']}")
        for slot in range(slots):
            count = machine.slots[attribute, slot].count
            if count != edge["count"]:
                yield Finding(
                    "table", name, roles,
                    f"{name}[{slot}]: initialised for {count} arrivals, declared are {edge['count']} ({parts})",
                )  # fmt: skip
        for size in machine.expected.get(attribute, ()):
            if size != edge["tx_bytes"]:
                yield Finding(
                    "table", name, roles,
                    f"{name}: {roles} expects {size} bytes, declared are {edge['tx_bytes']} (a full tile)",
                )  # fmt: skip
    for attribute in skeleton.barriers.keys() - declared.edges.keys() if declared.edges else ():
        yield Finding("table", attribute, "", f"{attribute}: this barrier is not in the table")


def _users(declared: Declared, machine: Machine) -> Iterator[Finding]:
    for users, known, verb in ((machine.arrivals, _producers, "arrives on"), (machine.waits, _consumers, "waits for")):
        for (key, role), sites in users.items():
            edge = declared.edge_of_key(key)
            if edge and role.split()[0] not in known(edge):
                where = machine.sites[min(sites)]
                yield Finding(
                    "table", edge["name"], role,
                    f"{edge['name']}: {role} {verb} it, declared are {', '.join(sorted(known(edge)))}: {where}",
                )  # fmt: skip
    waiting: dict[tuple[str, int], set[str]] = {}
    for (attribute, slot, role), (phase, site) in machine.first_waits.items():
        waiting.setdefault((attribute, slot), set()).add(role.split()[0])
        edge = declared.edges.get(attribute)
        if edge and phase != (-1 if slot in edge["free_stages"] else 0):
            state = "is free" if slot in edge["free_stages"] else "is not free"
            yield Finding(
                "first wait", edge["name"], role,
                f"{edge['name']}[{slot}]: {role} first waits for phase {phase}, declared is that the slot {state} at "
                f"the start: {machine.sites[site]}",
            )  # fmt: skip
    idle = not machine.first_waits  # a CTA without a task: its initial credits are given, and not used
    for (attribute, slot), mbarrier in machine.slots.items() if machine.ended and not idle else ():
        edge = declared.edges.get(attribute)
        if edge is None or not mbarrier.phase:
            continue
        name = edge["name"]
        for role in sorted(_consumers(edge) - waiting.get((attribute, slot), set())):
            yield Finding("table", name, role, f"{name}[{slot}]: {role} never waits for it, as it declares")


def _producers(edge: dict[str, Any]) -> set[str]:
    return {p["role"] for p in edge["producers"]} | ({edge["credit"]} - {None})


def _consumers(edge: dict[str, Any]) -> set[str]:
    return set(edge["consumers"])


def _resources(declared: Declared, machine: Machine) -> Iterator[Finding]:
    total = 0
    for group in range(machine.warps // 4):
        taken = [machine.registers.get(4 * group + warp, []) for warp in range(4)]
        role = declared.role_of(4 * group)
        wanted = declared.registers_of(group)
        if any(len(values) != 1 for values in taken) or len({values[0] for values in taken}) != 1:
            yield Finding(
                "table", "setmaxnreg", role, f"setmaxnreg: the warps of warpgroup {group} execute it as {taken}"
            )  # fmt: skip
            continue
        value = taken[0][0]
        total += 128 * value
        if wanted is not None and value != wanted:
            yield Finding(
                "table", "setmaxnreg", role, f"setmaxnreg: {role} takes {value} registers, declared are {wanted}"
            )
    if declared.register_file is not None and total > declared.register_file:
        yield Finding("table", "setmaxnreg", "", f"setmaxnreg: {total} registers, the SM has {declared.register_file}")
    for number, bar in machine.named.items() if machine.ended else ():
        edge = declared.edge_of_key(f"#{number}")
        owed = declared.credit_of_named(number)
        if edge and bar.here != owed:
            yield Finding(
                "table", edge["name"], "",
                f"{declared.barrier_name(number)}: {bar.here} threads are left over at the end, declared are {owed} "
                "(the initial credit)",
            )  # fmt: skip
    if machine.named and max(machine.named) > (declared.max_named or 16) - 1:
        yield Finding("table", "", "", f"named barrier {max(machine.named)}: the hardware has 16, 0 to 15")
    if not machine.inits_fenced:
        yield Finding("table", "", "", "mbarrier.init is not followed by fence.mbarrier_init: TMA may not see it")
    if machine.ended and machine.allocated:
        yield Finding("allocation", "", "", "tensor memory is not freed at the end of the kernel")
