"""Structural check: what a generated PrimFunc really does, against what it declares, and played to its end.

No GPU, no simulator, no import of the protocol: the PrimFunc carries its declared table as an attribute, so a
serialised PrimFunc can be checked anywhere. docs/protocol_check.md says what is proved and what is assumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tirx_attn.barriers.checker.deadlock import explain, states
from tirx_attn.barriers.checker.declared import Declared, check_executed
from tirx_attn.barriers.checker.machine import Machine
from tirx_attn.barriers.checker.memory import Finding
from tirx_attn.barriers.checker.signals import Fatal
from tirx_attn.barriers.checker.tir import walk
from tirx_attn.barriers.checker.translate import extract

EVENT_LIMIT = 2_000_000
"""A play that has not ended by then is reported as a hang."""

EVENTS_PER_CTA = 200_000
"""Where the plays of one CTA are longer than this in sum, no further CTA is played: it would do the same again."""

RESCALES: dict[str, Callable[[int, int, int], bool]] = {
    "rescale in every block": lambda warp, site, turn: True,
    "rescale in no block": lambda warp, site, turn: False,
    "rescale in some warps and blocks": lambda warp, site, turn: (warp + turn) % 2 == 0,
}
"""Outcomes of the branches that depend on data: (warp, site, how often the warp branched) -> taken."""


@dataclass
class Report:
    """Result of a structural check.

    Attributes:
        findings: faults, the most telling one first.
        plays: what was played: (CTA, outcome of the rescale branch, events).
        seconds: time the check took.
    """

    findings: list[Finding] = field(default_factory=list)
    plays: list[tuple[int, str, int]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """"clean" or "error"."""
        return "error" if self.findings else "clean"

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-able data."""
        return {
            "checker": "structural",
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "plays": [{"cta": cta, "branch": branch, "events": events} for cta, branch, events in self.plays],
            "seconds": round(self.seconds, 3),
        }


def check(func: Any, *, ctas: Iterable[int] | None = None, limit: int = EVENT_LIMIT) -> Report:
    """Check the synchronisation of a PrimFunc.

    Args:
        func: a PrimFunc as generated (not lowered), its lengths baked in.
        ctas: CTAs to play; None plays the first and the last of the grid.
        limit: events after which a play counts as hanging.

    Raises:
        Unsupported: a statement has no translation.
    """
    start = time.monotonic()
    declared, skeleton, report = Declared(func), extract(func), Report()
    machines = []
    for cta in dict.fromkeys(_ctas(func) if ctas is None else ctas):
        for branch, taken in RESCALES.items():
            machine = Machine(skeleton, declared.role_of, taken, declared.edge_name, declared.barrier_name)
            machines.append(machine)
            _play(machine, declared, cta, branch, limit, report)
            if report.findings:
                break
        if report.findings or sum(events for _, _, events in report.plays) > EVENTS_PER_CTA:
            break
    report.findings += check_executed(declared, skeleton, machines)
    report.findings.sort(key=lambda finding: _ORDER.index(finding.kind))
    report.seconds = time.monotonic() - start
    return report


_ORDER = (
    "table", "allocation", "registers", "over-arrival", "race", "aliased phase", "early arrival", "first wait",
    "bytes", "hang", "deadlock",
)  # fmt: skip


def _ctas(func: Any) -> list[int]:
    for statement in walk(func.body):
        if type(statement).__name__ == "ScopeIdDefStmt" and getattr(statement, "def").scope == 1:
            grid = int(getattr(statement, "def").extents[0])
            return [0, grid - 1]
    return [0]


def _play(machine: Machine, declared: Declared, cta: int, branch: str, limit: int, report: Report) -> None:
    try:
        ended = machine.play(cta, limit)
        if not ended:
            machine.findings.append(explain(machine, declared))
    except Fatal as stop:
        if not machine.findings:
            message = f"the kernel hangs: {stop}\n{states(machine)}"
            machine.findings.append(Finding("hang", "", "", message))
    report.plays.append((cta, branch, machine.events))
    for finding in machine.findings:
        if finding.kind == "race":
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
