"""Mutants whose kernel has no use of what is at fault in its own launch: further launches must find them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from tirx_attn.family import AnyPlan, build_planned
from tirx_attn.verify.mutate import Mutant, mutants
from tirx_attn.verify.mutation import EVENT_LIMIT, Known, Outcome

FAMILIES = ("drop arrival", "double arrival", "early release", "wrong stage", "drop wait")
"""Faults of giving a slot back, on the edges that say that it may be filled again."""


def run_short_mutants(
    plans: Mapping[str, AnyPlan], notes: Callable[[str], None] | None = None, known: Known | None = None
) -> Iterator[Outcome]:
    """Judge the mutants of `FAMILIES` that pass in the own launch of these plans' kernels, one after the other.

    A kernel that is traced again for a further launch gets the same mutant.

    Args:
        plans: base -> plan.
        notes, known: as in `mutation.run_mutants`.
    """
    from tirx_attn.barriers.check import check
    from tirx_attn.verify.exercise import check_launches

    for base, plan in plans.items():
        kernels: dict[AnyPlan, tuple[Any, dict[str, Mutant]]] = {}
        unchanged = build_planned(plan)
        for mutant in mutants(unchanged):
            if mutant.family not in FAMILIES or not mutant.edge.endswith(".empty"):
                continue
            if known and (outcome := known(base, unchanged, mutant)):
                yield outcome
                continue
            start, name = time.monotonic(), mutant.id
            build = partial(_mutated, kernels, name)
            func = build(plan)
            if check(func, limit=EVENT_LIMIT).findings:
                continue
            if notes:
                notes(f"{base}: {name}")
            report = check_launches(plan, func, build=build)
            message = report.findings[0].message.splitlines()[0] if report.findings else ""
            yield Outcome(
                f"{base}/{name}", f"{mutant.family}, short launch", mutant.label, mutant.role, mutant.edge,
                "structural" if report.findings else None, None, time.monotonic() - start, message,
            )  # fmt: skip


def _mutated(kernels: dict[AnyPlan, tuple[Any, dict[str, Mutant]]], name: str, plan: AnyPlan) -> Any:
    """The mutant of a name of a plan's kernel, which is traced once."""
    if plan not in kernels:
        func = build_planned(plan)
        kernels[plan] = func, {mutant.id: mutant for mutant in mutants(func)}
    func, found = kernels[plan]
    return found[name].apply(func)
