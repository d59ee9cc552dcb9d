"""Figures of machine code as the model takes them: a recorded cubin, and today's Hopper kernel."""

from __future__ import annotations

import pytest

from tests.analysis import recorded
from tests.hopper import kernels
from tirx_attn import AttentionConfig, variant
from tirx_attn.analysis import code_report
from tirx_attn.analysis.timeline.measured import figures_of, mma_stalls
from tirx_attn.runtime import Cubin, build


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
    takes_turns = name != "causal"  # whose heads share no K and V
    assert names == [
        "wait kv_load.full", *["sync mma_turn"] * takes_turns, "product rows_s", "wait kv_load.full", "product rows_o",
        *["signal mma_turn"] * takes_turns, "group wait 1", "arrive kv_load.empty", "group wait 0",
        "arrive kv_load.empty",
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stagger", "pv-4x32", "mma-by-product", "statistics-tmem"])
def test_marks_of_the_variants(name):
    """Every hand-over of P and the turn have a place; products in two loops are those of one tile together."""
    config = AttentionConfig(None, None, None, 4, 4, 128, True)
    schedule = variant(name).schedule(config)
    cubin = build(config, schedule=schedule).cubin
    report = code_report(cubin)
    figures = figures_of(cubin, 128, takes_turns=schedule.stagger)
    marks = dict(figures.roles["softmax"].steady.marks)
    expected = ["arrive p_o_rescale", *(f"arrive p_ready_{n + 2}" for n in range(len(schedule.pv_split) - 1))]
    turns = {"wait exp_turn", "arrive exp_turn"} if schedule.stagger else set()
    assert marks.keys() == {"wait s_ready", "signal stats.full", *expected, *turns}
    positions = [marks[mark] for mark in expected]
    assert positions == sorted(positions)
    if turns:
        assert marks["signal stats.full"] <= marks["wait exp_turn"] < marks["arrive exp_turn"] < positions[-1]
    loops = [loop for loop in report.loops if loop.role == "mma"]
    assert len(loops) == (2 if name == "mma-by-product" else 1)
    assert sum(loop.tiles for loop in loops) == 1
    assert sum(loop.kinds["UTC*MMA"] for loop in loops) == 16
    assert mma_stalls(report) == sum(loop.always_stalls for loop in loops)
    assert figures.roles["correction"].once[0].stalls == report.role("correction").always_stalls / 2
