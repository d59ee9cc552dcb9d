"""Kernel and plan agree: registers, barrier counts, named barriers and bytes in the CUDA come from the plan."""

from __future__ import annotations

import re

import pytest

from tests.cuda_text import evaluate
from tests.hopper.kernels import NAMES, built, cuda, plan
from tirx_attn.barriers.protocol import Kind
from tirx_attn.hopper.protocol import hopper_protocol
from tirx_attn.runtime import generate_cuda


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in NAMES])
def name(request) -> str:
    return request.param


def test_launch(name):
    assert cuda(name).launch_bounds == (plan(name).warps.threads, 1)


def test_registers(name):
    made = plan(name)
    found = {}
    for call in cuda(name).calls(r"\bsetmaxnreg\b"):
        kind, value = re.search(r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32 (\d+);", call.ptx).groups()
        for warp in call.warps() & set(range(made.warps.threads // 32)):
            found.setdefault(warp // 4, set()).add((kind, int(value)))
    assert found == {
        group: {("inc" if group else "dec", registers)} for group, registers in enumerate(made.warps.registers)
    }


def test_mbarriers(name):
    counts = [evaluate(call.arguments[1], {}) for call in cuda(name).calls(r"mbarrier\.init")]
    edges = [edge for edge in hopper_protocol(plan(name)).edges if edge.kind is not Kind.NAMED]
    assert counts == [edge.count for edge in edges for _ in range(edge.stages)]


def test_bytes(name):
    sizes = {evaluate(call.arguments[1], {}) for call in cuda(name).calls(r"expect_tx")}
    assert sizes == {plan(name).q_tile_bytes, plan(name).tile_bytes}


def test_named_barriers(name):
    calls = cuda(name).calls(r"^bar\.(sync|arrive) ")
    if not plan(name).schedule.ping_pong:
        assert calls == []
        return
    edge = hopper_protocol(plan(name))["mma_turn"]
    assert edge.count == 256
    assert {evaluate(call.arguments[1], {}) for call in calls} == {edge.count}


def test_counts_of_the_protocol():
    table = hopper_protocol(plan("full"))
    assert table["kv_load.empty"].count == 8  # one lane of each of the eight consumer warps
    assert table["o_staged.full"].count == 256
    assert table["o_staged.empty"].count == 32
    assert (table.mbarriers, table.named_barriers) == (2 + 2 + 4 + 4 + 1 + 1, 2)
    three = hopper_protocol(plan("full_d64"))
    assert (three["kv_load.empty"].count, three["o_staged.full"].count) == (12, 384)
    assert "mma_turn" not in hopper_protocol(plan("full_other_knobs"))


@pytest.mark.slow
def test_a_second_build_is_the_same_text():
    from tirx_attn.hopper.kernel import build_hopper_kernel

    assert generate_cuda(build_hopper_kernel(plan("full")), "sm_90a") == built("full").source
