"""Structural check: what a generated PrimFunc really does, against what it declares, and played to its end.

No GPU, no simulator, no import of the protocol: the PrimFunc carries its declared table as an attribute, so a
serialised PrimFunc can be checked anywhere. docs/protocol_check.md says what is proved and what is assumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tirx_attn.barriers.checker.coverage import Exercised, exercised
from tirx_attn.barriers.checker.deadlock import explain, states
from tirx_attn.barriers.checker.declared import Declared, check_executed
from tirx_attn.barriers.checker.ending import in_flight
from tirx_attn.barriers.checker.machine import Machine
from tirx_attn.barriers.checker.memory import Finding
from tirx_attn.barriers.checker.signals import Fatal
from tirx_attn.barriers.checker.translate import Skeleton, extract

EVENT_LIMIT = 2_000_000
"""A play that has not ended by then is reported as a hang."""

EVENTS_PER_CTA = 200_000
"""Where the plays of one CTA are longer than this in sum, no further CTA is played: it would do the same again."""

Outcome = Callable[[int, int, int], bool]
"""Of the branches that depend on data: (warp, site, how often the warp branched) -> taken."""


def outcomes(skeleton: Skeleton) -> dict[str, Outcome]:
    """What is played: no branch on data taken, each one always taken and the others never, and all now and then."""
    plays: dict[str, Outcome] = {NONE_TAKEN: lambda warp, site, turn: False}
    for branch in skeleton.branches:
        plays[f"{skeleton.sites[branch]} always taken"] = _only(branch)
    if plays.keys() != {NONE_TAKEN}:
        plays[SOME_TAKEN] = lambda warp, site, turn: (warp + turn) % 2 == 0
    return plays


def _only(branch: int) -> Outcome:
    return lambda warp, site, turn: site == branch


NONE_TAKEN = "no branch on data taken"
SOME_TAKEN = "branches on data taken by some warps, at some times"


@dataclass
class Report:
    """Result of a structural check.

    Attributes:
        findings: faults, the most telling one first.
        plays: what was played: (CTA, key of `outcomes`, events).
        exercised: which phases of which slots were waited for, and which way branches went.
        launches: sizes of the further launches that were joined, in words.
        seconds: time the check took.
    """

    findings: list[Finding] = field(default_factory=list)
    plays: list[tuple[int, str, int]] = field(default_factory=list)
    exercised: Exercised = field(default_factory=Exercised)
    launches: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """"clean" or "error"."""
        return "error" if self.findings else "clean"

    def join(self, other: Report, launch: str) -> None:
        """Add the report on another launch; its findings say at which sizes they were found."""
        for finding in other.findings:
            finding.message += f"\n  in a launch of {launch}"
        self.findings += other.findings
        self.plays += other.plays
        self.exercised.join(other.exercised)
        self.launches.append(launch)
        self.seconds += other.seconds

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-able data."""
        return {
            "checker": "structural",
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "plays": [{"cta": cta, "branch": branch, "events": events} for cta, branch, events in self.plays],
            "exercised": {"launches": self.launches, **self.exercised.to_dict()},
            "seconds": round(self.seconds, 3),
        }


def check(
    func: Any,
    *,
    sizes: Mapping[str, int] | None = None,
    ctas: Iterable[int] | None = None,
    limit: int = EVENT_LIMIT,
    long: int = EVENT_LIMIT,
) -> Report:
    """Check the synchronisation of a PrimFunc.

    Args:
        func: a PrimFunc as generated (not lowered).
        sizes: values of the sizes that it leaves to run time, such as {"B": 1, "Sq": 300, "Skv": 77}.
        ctas: CTAs to play; None plays the first and the last of the grid.
        limit: events after which a play counts as hanging.
        long: events of a CTA, no branch on data taken, above which just one more play follows: all branches now and
            then. For callers that play short launches too.

    Raises:
        Unsupported: a statement has no translation.
        ValueError: `sizes` are not those that the PrimFunc leaves to run time.
    """
    start = time.monotonic()
    declared, skeleton, report = Declared(func), extract(func, sizes), Report()
    machines = []
    for cta in dict.fromkeys((0, skeleton.grid - 1) if ctas is None else ctas):
        seen, is_long = Exercised(), False
        for branch, taken in outcomes(skeleton).items():
            if is_long and branch != SOME_TAKEN:
                continue
            machine = Machine(skeleton, declared.role_of, taken, declared.edge_name, declared.barrier_name)
            machines.append(machine)
            _play(machine, declared, cta, branch, limit, report)
            seen.repeat(exercised(machine, declared))
            is_long |= branch == NONE_TAKEN and machine.events > long
            if report.findings:
                break
        report.exercised.join(seen)
        if report.findings or is_long or sum(events for _, _, events in report.plays) > EVENTS_PER_CTA:
            break
    report.findings += check_executed(declared, skeleton, machines)
    report.findings.sort(key=lambda finding: _ORDER.index(finding.kind))
    report.seconds = time.monotonic() - start
    return report


_ORDER = (
    "table", "allocation", "operand", "registers", "over-arrival", "race", "aliased phase", "early arrival",
    "first wait", "in flight", "bytes", "hang", "deadlock",
)  # fmt: skip


def _play(machine: Machine, declared: Declared, cta: int, branch: str, limit: int, report: Report) -> None:
    try:
        ended = machine.play(cta, limit)
        if ended:
            machine.findings += in_flight(machine)
        else:
            machine.findings.append(explain(machine, declared))
    except Fatal as stop:
        if not machine.findings:
            message = f"the kernel hangs: {stop}\n{states(machine)}"
            machine.findings.append(Finding("hang", "", "", message))
    report.plays.append((cta, branch, machine.events))
    for finding in machine.findings:
        if finding.kind == "race" and not finding.edge:
            _name_edge(finding, declared, machine)
        finding.message += f"\n  in CTA {cta}, {branch}"
    report.findings += machine.findings


def _name_edge(finding: Finding, declared: Declared, machine: Machine) -> None:
    """Say which edge should have ordered a race: the first on which the first role arrived after its access.

    A TMA load overwrites what its own pipeline has released.
    """
    first, second = finding.roles
    candidates = declared.between(first, second)
    if finding.fills:
        candidates = declared.releases(finding.fills)
    later = (edge for step, role, edge in machine.log if step > finding.step and role == first and edge in candidates)
    attribute = next(later, candidates[0] if candidates else "")
    if attribute:
        finding.edge = declared.edge_name(attribute)
        finding.message = f"{finding.edge}: {finding.message}"
