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
from tirx_attn.verify.probes import Probe

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


def verdicts(probe: Probe, o: Any) -> list[verify.ErrorVerdict]:
    """One verdict; where the K/V heads have data of different size, one for each of them."""
    if probe.name != "rescale_by_head":
        return [probe.judge(o)]
    ratio = probe.q.shape[2] // probe.k.shape[2]
    pairs = [(batch, head) for batch in range(o.shape[0]) for head in range(probe.k.shape[2])]
    return [
        verify.judge(
            *(x[batch : batch + 1, :, ratio * head : ratio * (head + 1)] for x in (o, probe.q)),
            *(x[batch : batch + 1, :, head : head + 1] for x in (probe.k, probe.v)),
            causal=probe.is_causal,
        )
        for batch, head in pairs
    ]


def launch(case: Case, kind: str, name: str, record_property: Callable[[str, object], None]) -> None:
    """One launch: the numbers within the rule and nothing unwritten read, or the checker clean."""
    probe = case.probe(name)
    if kind != "run":
        check = getattr(verify, kind)(kernel(case.name), probe.arrays, time_limit=LIMIT)
        assert check.clean, (check.verdict, check.findings)
        return
    run = verify.run(kernel(case.name), probe.arrays, time_limit=LIMIT)
    for verdict in verdicts(probe, run.outputs["O"]):
        record_property("error", verdict.error)
        record_property("bound", verdict.bound)
        assert verdict.ok, verdict
    assert run.verdict == "clean", run.findings
