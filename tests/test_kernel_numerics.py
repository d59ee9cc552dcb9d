"""The generated kernel on the simulator: numbers against the reference, both checkers clean, on every shared case."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.cases import CASES, Case, by_name
from tirx_attn import verify

pytestmark = [pytest.mark.simulator, pytest.mark.slow, pytest.mark.timeout(1800)]

LIMIT = 1500.0
"""Seconds for a call with its build, on a machine that has built nothing yet."""

NUMBERS = [(case, name) for case in CASES if "run" in case.kinds for name in case.probes]
CHECKS = [
    (case, checker, name)
    for case in CASES
    for checker in ("synccheck", "racecheck")
    if checker in case.kinds
    for name in case.checked
]


@pytest.fixture(autouse=True, scope="module")
def simulator():
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")
    verify.require_simulator()
    yield
    verify.close()


@cache
def kernel(name: str):
    from tirx_attn import get_flash_attention4_kernel

    case = by_name(name)
    return get_flash_attention4_kernel(*case.shape, case.is_causal, schedule=case.schedule)


@pytest.mark.parametrize(("case", "name"), NUMBERS, ids=lambda value: getattr(value, "name", value))
def test_numbers(case: Case, name: str, record_property):
    probe = case.probe(name)
    run = verify.run(kernel(case.name), probe.arrays, time_limit=LIMIT)
    verdict = probe.judge(run.outputs["O"])
    record_property("error", verdict.error)
    record_property("bound", verdict.bound)
    assert verdict.ok, verdict
    assert run.verdict == "clean", run.findings


@pytest.mark.parametrize(("case", "checker", "name"), CHECKS, ids=lambda value: getattr(value, "name", value))
def test_protocol(case: Case, checker: str, name: str):
    check = getattr(verify, checker)(kernel(case.name), case.probe(name).arrays, time_limit=LIMIT)
    assert check.clean, (check.verdict, check.findings)


def test_m3_equal_tasks_give_equal_bits():
    """Six tasks of one key tile on two CTAs, all with the data of head 0."""
    probe = by_name("M3").probe("random")
    q, k, v = (np.repeat(array[:, :, :1], 6, axis=2) for array in (probe.q, probe.k, probe.v))
    o = verify.run(kernel("M3"), {"Q": q, "K": k, "V": v}, time_limit=LIMIT).outputs["O"]
    assert verify.judge(o, q, k, v).ok
    for head in range(1, 6):
        assert np.array_equal(o[:, :, 0].view(np.uint16), o[:, :, head].view(np.uint16)), head


def test_simulate_is_the_same_launch():
    case = by_name("full_one_block")
    probe = case.probe("columns")
    o = verify.simulate(probe.q, probe.k, probe.v, schedule=case.schedule, time_limit=LIMIT)
    assert o.dtype == probe.q.dtype
    assert probe.judge(o).ok
