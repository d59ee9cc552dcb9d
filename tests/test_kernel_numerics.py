"""The generated kernel on the simulator: numbers against the reference, and both checkers clean."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import CONFIGURATIONS, KNOBS, LONG_ROWS, by_name
from tests.launches import LIMIT, kernel, launch, launches
from tirx_attn import verify

pytestmark = [pytest.mark.simulator, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True, scope="module")
def simulator():
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")


@pytest.mark.parametrize(("case", "kind", "name"), launches((*CONFIGURATIONS, *KNOBS, *LONG_ROWS)))
def test_launch(case, kind, name, record_property):
    launch(case, kind, name, record_property)


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
