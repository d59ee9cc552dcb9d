"""Figures of machine code as the model takes them: a recorded cubin, and today's Hopper kernel."""

from __future__ import annotations

import pytest

from tests.analysis import recorded
from tests.hopper import kernels
from tirx_attn.analysis import code_report
from tirx_attn.analysis.timeline.measured import figures_of
from tirx_attn.runtime import Cubin


def test_a_recorded_kernel():
    report = recorded.report()
    loop = report.role("softmax")
    figures = figures_of(Cubin.of_image(recorded.image()), 128)
    steady, careful = figures.roles["softmax"].steady, figures.roles["softmax"].careful
    marks = dict(steady.marks)
    assert (marks["arrive p_o_rescale"], marks["arrive p_ready_2"]) == loop.p_arrivals
    assert 0 < marks["signal stats.full"] < marks["arrive p_ready_2"]
    assert (steady.stalls, steady.instructions, steady.mufu) == (loop.stalls, loop.instructions, loop.mufu)
    assert careful.stalls == report.role("masked").always_stalls
    assert figures.roles["mma"].per_product.stalls == report.role("mma").per_tile(report.role("mma").always_stalls)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "causal", "full_d64"])
def test_marks_of_the_consumer(name):
    built = kernels.built(name)
    loop = code_report(built.cubin, head_size=built.config.D).role("consumer")
    steady = figures_of(built.cubin, built.config.D).roles["consumer"].steady
    names = [mark for mark, _ in steady.marks]
    assert names == [
        "wait kv_load.full", "sync mma_turn", "product rows_s", "wait kv_load.full", "product rows_o",
        "signal mma_turn", "group wait 1", "arrive kv_load.empty", "group wait 0", "arrive kv_load.empty",
    ]  # fmt: skip
    positions = [at for _, at in steady.marks]
    assert positions == sorted(positions)
    assert positions[-1] < steady.stalls == loop.always_stalls
    # the assembler moves the wait for PV above the exponentials
    assert positions[-2] < steady.mufu_span[1] - 400


@pytest.mark.slow
def test_no_turns_no_marks_of_them():
    built = kernels.built("full_other_knobs")
    names = {mark for mark, _ in figures_of(built.cubin, 128).roles["consumer"].steady.marks}
    assert not {"sync mma_turn", "signal mma_turn"} & names
