"""What plays have exercised: how often each slot's phases were waited for, and which way branches and loops went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tirx_attn.barriers.checker.declared import Declared
from tirx_attn.barriers.checker.machine import Machine

ENOUGH = 2
"""Times that each phase of a slot, and each way of a branch, is to be seen."""

_TIMES = ("never", "once")


@dataclass
class Exercised:
    """What plays have exercised.

    Attributes:
        phases: (edge, slot) -> phases that its waiting roles waited for in one CTA, the most in any play. They are
            numbered from 0; where a slot is free at the start, the wait that passes at once is not one of them. The
            uses of a hardware named barrier count as phases.
        branches: branch or loop, with its place -> how often it was [not taken, taken], or [skipped, entered], by the
            warp that came by most often, in all CTAs that were played. Those that go the same way in every launch are
            left out.
    """

    phases: dict[tuple[str, int], int] = field(default_factory=dict)
    branches: dict[str, list[int]] = field(default_factory=dict)

    def join(self, other: Exercised) -> None:
        """Add the plays of another CTA."""
        self._most_phases(other)
        for name, (out, into) in other.branches.items():
            counts = self.branches.setdefault(name, [0, 0])
            counts[0], counts[1] = counts[0] + out, counts[1] + into

    def repeat(self, other: Exercised) -> None:
        """Add another play of the same CTA, in which branches on data went other ways."""
        self._most_phases(other)
        for name, counts in other.branches.items():
            self.branches[name] = [max(pair) for pair in zip(counts, self.branches.get(name, [0, 0]), strict=True)]

    def _most_phases(self, other: Exercised) -> None:
        for key, count in other.phases.items():
            self.phases[key] = max(count, self.phases.get(key, 0))

    @property
    def unseen(self) -> list[str]:
        """Phases and ways that were seen less than `ENOUGH` times, in words. Slots of an edge that agree are joined."""
        groups: dict[tuple[str, int], list[int]] = {}
        for (edge, slot), count in self.phases.items():
            groups.setdefault((edge, count), []).append(slot)
        found = []
        for (edge, count), slots in groups.items():
            missing = [f"phase {phase} {_TIMES[n]}" for phase, n in enumerate(_by_parity(count)) if n < ENOUGH]
            if missing:
                found.append(f"{edge}[{', '.join(map(str, slots))}]: {', '.join(missing)}")
        for name, counts in self.branches.items():
            words = ("skipped", "entered") if name.startswith("loop") else ("not taken", "taken")
            missing = [f"{word} {_TIMES[n]}" for word, n in zip(words, counts, strict=True) if n < ENOUGH]
            if missing:
                found.append(f"{name}: {', '.join(missing)}")
        return found

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: `edges` (waits for phases of parity 0 and 1, and whether a parity came again), `branches`,
        `unseen`."""
        return {
            "edges": [
                {"edge": edge, "slot": slot, "waits": list(_by_parity(count)), "wrapped": count > ENOUGH}
                for (edge, slot), count in self.phases.items()
            ],
            "branches": [
                {"branch": name, "not_taken": counts[0], "taken": counts[1]} for name, counts in self.branches.items()
            ],
            "unseen": self.unseen,
        }


def _by_parity(count: int) -> tuple[int, int]:
    return (count + 1) // 2, count // 2


def exercised(machine: Machine, declared: Declared) -> Exercised:
    """What one play of a CTA exercised."""
    found = Exercised()
    for (attribute, slot), mbarrier in machine.slots.items():
        last = [phase for phase, _, _ in mbarrier.waited.values()]
        found.phases[declared.edge_name(attribute), slot] = min(last) + 1 if last else 0
    for number, (name, slot) in declared.named.items():
        found.phases[name, slot] = machine.named[number].generation if number in machine.named else 0
    copies: Counter[str] = Counter()
    most: Counter[tuple[int, bool]] = Counter()
    for (site, into, _), count in machine.passed.items():
        most[site, into] = max(most[site, into], count)
    for site in machine.skeleton.conditions:
        place = machine.sites[site]
        name = f"{place.text.split()[0]} {place.where}"
        copies[name] += 1
        # A function that is inlined in several places has its branch there each time.
        label = f"{name} #{copies[name]}" if copies[name] > 1 else name
        found.branches[label] = [most[site, False], most[site, True]]
    return found
