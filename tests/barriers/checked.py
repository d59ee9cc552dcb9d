"""Kernels and mutants that the tests of the structural check share. Each is traced once in a process."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.cases import by_name
from tirx_attn import AttentionConfig
from tirx_attn.barriers.check import Report, check
from tirx_attn.kernel import build_kernel
from tirx_attn.schedule import make_plan
from tirx_attn.verify.mutate import Mutant, mutants
from tirx_attn.verify.mutation import BASES, EVENT_LIMIT, PROBLEM

BIG = {
    "full_8192": AttentionConfig(1, 8192, 8192, 32, 32, 128),
    "causal_8192": AttentionConfig(1, 8192, 8192, 32, 32, 128, True),
    "causal_4096_ratio_8": AttentionConfig(1, 4096, 4096, 32, 4, 128, True),
}
"""Lengths at which kernels are measured. The others are in tests/cases.py."""


@cache
def kernel(name: str) -> Any:
    """PrimFunc of a case, of a big problem, or of a base of the mutants."""
    if name in BASES:
        return build_kernel(make_plan(PROBLEM, BASES[name]))
    if name in BIG:
        return build_kernel(make_plan(BIG[name]))
    case = by_name(name)
    return build_kernel(make_plan(case.config, case.schedule))


@cache
def plan(base: str) -> Any:
    """Plan of a base."""
    return make_plan(PROBLEM, BASES[base])


@cache
def all_mutants(base: str) -> tuple[Mutant, ...]:
    """Mutants of a base."""
    return tuple(mutants(kernel(base)))


def find(base: str, family: str, label: str = "", role: str = "", number: int = 0) -> Mutant:
    """The mutant of that family, in program order; with `label` and `role` where they are given."""
    found = [m for m in all_mutants(base) if m.family == family and label in (m.label, "") and role in (m.role, "")]
    return found[number]


def judge(base: str, family: str, label: str = "", role: str = "", number: int = 0) -> Report:
    """Report on a mutant."""
    return check(find(base, family, label, role, number).apply(kernel(base)), limit=EVENT_LIMIT)


def headline(report: Report) -> str:
    """First line of the counterexample that is shown first."""
    return report.findings[0].message.splitlines()[0]
