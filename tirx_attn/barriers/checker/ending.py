"""What a CTA leaves in flight when it ends: its shared memory is given to another CTA then.

The CTA ends when its last warp does, so what any warp knows at its end is known. An asynchronous access to shared
memory must be known to be done: a store to have been read, a load to have arrived, a product to be complete.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tirx_attn.barriers.checker.machine import Machine
from tirx_attn.barriers.checker.memory import MMA, STORE, TCGEN, TMA, Finding


def in_flight(machine: Machine) -> Iterator[Finding]:
    """Findings on a CTA that has ended, one for each statement whose access is not known to be done."""
    known = np.max(machine.seen, axis=0)
    reported = set()
    for (unit, site), number in machine.flying.items():
        if known[unit] < number and site not in reported:
            reported.add(site)
            role, place = machine.unit_role(unit), machine.sites[site]
            edge = machine.fills(unit)
            yield Finding(
                "in flight", machine.edge_name(edge) if edge else "", role,
                f"{place.text} by {role}, then the end of the CTA, not ordered: {_missing(machine, unit, number)} "
                f"({place.where})",
            )  # fmt: skip
    for (attribute, slot), mbarrier in machine.slots.items():
        if mbarrier.bytes:
            name = machine.edge_name(attribute)
            state = "outstanding" if mbarrier.bytes > 0 else "too many"
            yield Finding(
                "in flight", name, "", f"{name}[{slot}]: {abs(mbarrier.bytes)} bytes are {state} at the end of the CTA"
            )


def _missing(machine: Machine, unit: int, number: int) -> str:
    """What would have said that a unit's access is done."""
    if STORE <= unit < TMA:
        groups = machine.bulk[unit - STORE]
        if not groups or groups[-1] < number:
            return "it is in no bulk group"
        return "no wait_group waits for its bulk group"
    if unit < TCGEN:
        return f"nobody waits for its bytes on {machine.edge_name(machine.fills(unit))}"
    if machine.skeleton.operands:
        return "no wait_group waits for it" if number <= machine.groups[unit - MMA] else "it is not committed"
    return "nobody waits for a commit of it"

