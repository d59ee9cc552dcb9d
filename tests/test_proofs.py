"""Every launch has a clean record or is proved: numbers against the reference, and both checkers clean."""

from __future__ import annotations

import pytest

from tests.engines import GPU_ARCH, GPU_KERNELS, OP_KERNELS
from tests.launches import LIMIT, launches
from tests.proofs import demand, demand_gpu
from tirx_attn import AttentionConfig, verify
from tirx_attn.family import build_planned, plan_for
from tirx_attn.schedule import tuned_schedule
from tirx_attn.targets import B200
from tirx_attn.verify import PROBES
from tirx_attn.verify.proofs import source_hash

pytestmark = pytest.mark.slow


@pytest.fixture
def simulator():
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")


@pytest.mark.parametrize("name", [*GPU_KERNELS, *OP_KERNELS])
def test_a_kernel_for_the_gpu_has_a_record_or_is_named(request, name):
    config = OP_KERNELS[name] if name in OP_KERNELS else GPU_KERNELS[name].config
    demand_gpu(request, name, source_hash(build_planned(plan_for(config, arch=GPU_ARCH)), GPU_ARCH))


@pytest.mark.simulator
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(
    ("subject", "launch"),
    [pytest.param(*both, id=f"{both[0].name}-{both[1].name.replace(' ', '-')}") for both in launches()],
)
def test_launch(request, subject, launch):
    demand(request, subject, launch)


@pytest.mark.simulator
@pytest.mark.recorded("tirx_attn/verify/attention.py", "tirx_attn/verify/binding.py")
@pytest.mark.usefixtures("simulator")
def test_simulate_is_the_same_launch():
    """With a schedule that is given; the kernel is that of README.md and examples/simulate.py."""
    config = AttentionConfig(1, 100, 100, 6, 2, 128, True)
    probe = PROBES["columns"](config)
    schedule = tuned_schedule(config, B200)
    o = verify.simulate(probe.q, probe.k, probe.v, causal=True, schedule=schedule, time_limit=LIMIT)
    assert o.dtype == probe.q.dtype
    assert probe.judge(o).ok
