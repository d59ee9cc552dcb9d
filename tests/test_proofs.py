"""Every launch has a clean record or is proved: numbers against the reference, and both checkers clean."""

from __future__ import annotations

import pytest

from tests.launches import LIMIT, launches
from tests.proofs import demand
from tirx_attn import AttentionConfig, verify
from tirx_attn.schedule import tuned_schedule
from tirx_attn.targets import B200
from tirx_attn.verify import PROBES

pytestmark = [pytest.mark.simulator, pytest.mark.slow]


@pytest.fixture(autouse=True, scope="module")
def simulator():
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")


@pytest.mark.parametrize(
    ("subject", "launch"),
    [pytest.param(*both, id=f"{both[0].name}-{both[1].name.replace(' ', '-')}") for both in launches()],
)
def test_launch(request, subject, launch):
    demand(request, subject, launch)


@pytest.mark.recorded("tirx_attn/verify/attention.py", "tirx_attn/verify/binding.py")
def test_simulate_is_the_same_launch():
    """With a schedule that is given; the kernel is that of README.md and examples/simulate.py."""
    config = AttentionConfig(1, 100, 100, 6, 2, 128, True)
    probe = PROBES["columns"](config)
    schedule = tuned_schedule(config, B200)
    o = verify.simulate(probe.q, probe.k, probe.v, causal=True, schedule=schedule, time_limit=LIMIT)
    assert o.dtype == probe.q.dtype
    assert probe.judge(o).ok
