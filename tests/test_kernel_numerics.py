"""The generated kernel on the simulator: numbers against the reference, and both checkers clean."""

from __future__ import annotations

import pytest

from tests.cases import CASES, by_name
from tests.launches import LIMIT, launch, launches
from tirx_attn import verify

pytestmark = [pytest.mark.simulator, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True, scope="module")
def simulator():
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")


@pytest.mark.parametrize(("case", "kind", "name"), launches(CASES))
def test_launch(case, kind, name, record_property):
    launch(case, kind, name, record_property)


def test_simulate_is_the_same_launch():
    case = by_name("full_one_block")
    probe = case.probe("columns")
    o = verify.simulate(probe.q, probe.k, probe.v, schedule=case.schedule, time_limit=LIMIT)
    assert o.dtype == probe.q.dtype
    assert probe.judge(o).ok
