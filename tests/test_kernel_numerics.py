"""The generated kernel on the simulator: numbers against the reference, and both checkers clean."""

from __future__ import annotations

import pytest

from tests.cases import CASES
from tests.launches import LIMIT, launch, launches
from tirx_attn import AttentionConfig, verify
from tirx_attn.schedule import tuned_schedule
from tirx_attn.targets import B200
from tirx_attn.verify import PROBES

pytestmark = [pytest.mark.simulator, pytest.mark.slow]


@pytest.fixture(autouse=True, scope="module")
def simulator():
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")


@pytest.mark.parametrize(("case", "kind", "name"), launches(CASES))
def test_launch(case, kind, name, record_property):
    launch(case, kind, name, record_property)


def test_simulate_is_the_same_launch():
    """With a schedule that is given; the kernel is that of README.md and examples/simulate.py."""
    config = AttentionConfig(1, 100, 100, 6, 2, 128, True)
    probe = PROBES["columns"](config)
    schedule = tuned_schedule(config, B200)
    o = verify.simulate(probe.q, probe.k, probe.v, causal=True, schedule=schedule, time_limit=LIMIT)
    assert o.dtype == probe.q.dtype
    assert probe.judge(o).ok
