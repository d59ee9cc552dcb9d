"""The sm_90a kernels as machine code: registers, spills, WGMMA and TMA, and what the assembler complains of."""

from __future__ import annotations

import re

import pytest

from tests.hopper.kernels import NAMES, built
from tirx_attn.runtime import CompileError, build
from tirx_attn.runtime.cubin import Cubin

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=NAMES)
def name(request) -> str:
    return request.param


def test_nothing_spills_and_nothing_is_serialised(name):
    cubin = built(name).cubin
    resources = cubin.resources()
    assert (resources.spill_instructions, resources.spill_bytes, resources.local_bytes) == (0, 0, 0)
    assert "ptxas info" in cubin.log
    assert cubin.slow_code == ()


def test_the_launch_fits_one_cta_per_sm(name):
    plan, resources = built(name).plan, built(name).cubin.resources()
    assert resources.registers * plan.warps.threads <= 65536
    assert resources.static_smem == 0
    assert resources.dynamic_smem == plan.smem.size <= 232448
    assert resources.barriers <= 16


def test_setmaxnreg_of_the_machine_code_is_the_plans(name):
    assert set(built(name).cubin.resources().register_requests) == set(built(name).plan.warps.registers)


def test_the_products_are_wgmma_and_the_copies_tma(name):
    """HGMMAs of a block: D/16 of QKᵀ and 8 of PV, for each place in the code where one is issued."""
    sass, plan = built(name).cubin.sass(), built(name).plan
    assert re.search(r"\.target\s+sm_90a", sass)
    qk, pv = plan.config.D // 16, 128 // 16
    blocks = 1 + plan.config.is_causal  # the loop over whole blocks, and the one over masked ones
    shapes = re.findall(r"\bHGMMA\.64x(\d+)x16\.F32", sass)
    assert len(shapes) == (qk + pv) * (1 + blocks)
    assert set(shapes) == {"128", str(plan.config.D)}
    assert len(re.findall(r"\bUTMALDG\b", sass)) > 0
    assert len(re.findall(r"\bUTMASTG\b", sass)) == plan.config.D // 64
    assert not re.search(r"\bHMMA\b", sass)
    assert len(re.findall(r"\bSTSM\b", sass)) == plan.config.D // 16
    # All exponentials of a block, and of its two rows' factors.
    assert len(re.findall(r"\bMUFU\.EX2\b", sass)) == (64 + 2) * (1 + blocks)


def test_bf16_is_bf16():
    assert "F32.BF16" in built("causal_7_1_d64_bf16").cubin.sass()
    assert "F32.BF16" not in built("full").cubin.sass()


LOG = """ptxas info    : Function properties for k
ptxas         .     0 bytes stack frame, {stores} bytes spill stores, 0 bytes spill loads
{line}
"""


@pytest.mark.parametrize(
    ("stores", "line", "expected"),
    [
        (0, "", 0),
        (8, "", 1),
        (0, "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized", 1),
        (120, "ptxas warning : (C7508) Potential Performance Loss: 'setmaxnreg' ignored", 2),
    ],
)
def test_complaints_are_read_from_the_log(stores, line, expected):
    cubin = Cubin("sm_90a", b"", "", "13", LOG.format(stores=stores, line=line), 0.0)
    assert len(cubin.slow_code) == expected
    if expected:
        with pytest.raises(CompileError, match="slow machine code for sm_90a\n"):
            cubin.refuse_slow_code()
    else:
        cubin.refuse_slow_code()


def test_a_build_that_spills_is_refused():
    """Three consumers have 160 registers each: too few for head size 128."""
    from dataclasses import replace

    from tests.hopper.kernels import CONFIGS, plan

    three = replace(
        plan("full").schedule,
        consumers=3, kv_stages=3, q_stages=1, consumer_registers=160, producer_registers=32,
    )  # fmt: skip
    with pytest.raises(CompileError, match="ptxas made slow machine code for sm_90a"):
        build(CONFIGS["full"], schedule=three, arch="sm_90a")
