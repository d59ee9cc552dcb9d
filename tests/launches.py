"""Launches of the shared cases on the simulator. Each kernel is traced once in a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

from tests.cases import DATA, Case, by_name
from tirx_attn import verify
from tirx_attn.schedule import make_plan
from tirx_attn.verify import simulated_plan

LIMIT = 1500.0
"""Seconds for a call with its build, on a machine that has built nothing yet."""


@cache
def kernel(name: str) -> Any:
    """PrimFunc of the case of that name, for the simulator."""
    from tirx_attn.kernel import build_kernel

    case = by_name(name)
    return build_kernel(simulated_plan(make_plan(case.config, case.schedule)))


def launches(cases: Iterable[Case]) -> list[Any]:
    """(case, kind, probe) of every launch, case by case and kind by kind, since each kind of a case is one build."""
    return [
        pytest.param(case, kind, name, id=f"{case.name}-{kind}-{name}")
        for case in cases
        for kind in case.kinds
        for name in (case.probes if kind == "run" else case.checked)
        if not (case.by_command and name in DATA)
    ]


def launch(case: Case, kind: str, name: str, record_property: Callable[[str, object], None]) -> None:
    """One launch: the numbers within the rule and nothing unwritten read, or the checker clean."""
    probe = case.probe(name)
    if kind != "run":
        check = getattr(verify, kind)(kernel(case.name), probe.arrays, time_limit=LIMIT)
        assert check.clean, (check.verdict, check.findings)
        return
    run = verify.run(kernel(case.name), probe.arrays, time_limit=LIMIT)
    verdict = probe.judge(run.outputs["O"])
    record_property("error", verdict.error)
    record_property("bound", verdict.bound)
    assert verdict.ok, verdict
    assert run.verdict == "clean", run.findings
