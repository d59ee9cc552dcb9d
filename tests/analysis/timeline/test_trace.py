"""Traces of real PrimFuncs: a small one in full, the attention kernels by what must be conserved."""

from __future__ import annotations

from functools import cache

import pytest

from tests.analysis.timeline.toys import MACHINE
from tests.barriers import checked
from tests.pipeline_kernels import SLOTS, TILE_BYTES, TILES, modular
from tirx_attn import AttentionConfig
from tirx_attn.analysis.timeline import trace as t
from tirx_attn.analysis.timeline.figures import CodeFigures, blackwell
from tirx_attn.analysis.timeline.machine import Machine
from tirx_attn.analysis.timeline.replay import TENSOR, replay
from tirx_attn.family import build_planned, family_of, plan_for


def test_a_small_kernel_step_by_step():
    found = t.record(modular())
    roles = {actor.role: actor for actor in found.actors}
    steps = [step for step in roles["warp 4"].steps if step.kind != t.SYNC]
    assert [step.kind for step in steps] == [t.WAIT, t.LOAD, t.EXPECT] * TILES
    assert [step.slot for step in steps[::3]] == [i % SLOTS for i in range(TILES)]
    assert [step.phase for step in steps[::3]] == [i // SLOTS - 1 for i in range(TILES)]
    assert {step.amount for step in steps[1::3]} == {step.bytes for step in steps[2::3]} == {TILE_BYTES}
    uses = [step for step in roles["warp 0"].steps if step.kind == t.WAIT]
    assert [step.phase for step in uses] == [i // SLOTS for i in range(TILES)]
    assert found.arrivals["tile_empty", 0] == 128


def test_a_small_kernel_in_time():
    """Two slots: every second tile waits for the answer to the one before the last."""
    found = t.record(modular())
    programs = {
        actor.role: [(w, s) for w, s in CodeFigures("none", {}).program(actor, [], 1.0)] for actor in found.actors
    }
    machine = Machine(flops=1.0, mufu_cycles=1.0, edge=60.0, tma_latency=600.0)
    load = TILE_BYTES / machine.tma_bytes
    assert replay(programs, found.arrivals, found.threads, machine).end == 3 * (load + 600) + 5 * 60


@cache
def recorded(arch: str, causal: bool) -> tuple[AttentionConfig, t.Trace]:
    config = AttentionConfig(None, None, None, 2, 1, 128, causal)
    func = build_planned(plan_for(config, arch=arch))
    return config, t.record(func, {"B": 1, "Sq": 128 if arch == "sm_100a" else 64, "Skv": 1024})


KERNELS = pytest.mark.parametrize(("arch", "causal"), [("sm_100a", False), ("sm_100a", True), ("sm_90a", True)])


@pytest.mark.slow
@KERNELS
def test_products_and_bytes_are_those_of_the_task(arch, causal):
    _, found = recorded(arch, causal)
    steps = [step for actor in found.actors for step in actor.steps]
    rows = 256 if arch == "sm_100a" else 128
    assert sum(s.amount for s in steps if s.kind == t.PRODUCT) == 4 * rows * 1024 * 128
    loaded = [s for s in steps if s.kind == t.LOAD]
    assert sum(s.amount for s in loaded if s.edge == "kv_load.full") == 2 * 1024 * 128 * 2
    assert sum(s.amount for s in loaded if s.edge == "q_load.full") == rows * 128 * 2


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_a_block_of_scores_is_waited_for_once(causal):
    """The steady loop repeats its first wait; a repeated wait passes at once, and begins no block."""
    _, found = recorded("sm_100a", causal)
    for actor in found.actors:
        waits = [s.phase for s in actor.steps if s.kind == t.WAIT and s.edge == "s_ready"]
        assert waits == (list(range(8)) if actor.role.startswith("softmax") else [])
    figures = blackwell(
        "even", scores=10, parts=(60, 90), loop=100, mufu=8, mufu_span=(10, 90), instructions=50, masked_extra=0,
        masked_mufu=8, correction=1, mma=1, load=1, epilogue=1,
    )  # fmt: skip
    softmax = next(actor for actor in found.actors if actor.role == "softmax 0")
    program = figures.program(softmax, [(8, 1)], 1.0)
    work = [(step.mark, work.stalls) for work, step in program if step.mark in ("wait s_ready", "arrive p_ready_2")]
    assert [mark for mark, _ in work] == ["wait s_ready", "arrive p_ready_2"] * 8
    assert [stalls for _, stalls in work] == [0.0, 30.0, *[10.0, 30.0] * 7]


@pytest.mark.slow
@KERNELS
def test_edges_are_those_of_the_protocol_and_the_pipe_is_busy_for_the_flops(arch, causal):
    config, found = recorded(arch, causal)
    plan = plan_for(config, arch=arch)
    table = family_of(plan.target).protocol(plan)
    none = CodeFigures("none", {})
    programs = {actor.role: none.program(actor, [], 1.0) for actor in found.actors}
    timeline = replay(programs, found.arrivals, found.threads, MACHINE)
    names = {stall.edge for stall in timeline.stalls} - {"CTA sync", "own products", TENSOR}
    assert names
    assert all(name in table for name in names)
    busy = sum(end - start for start, end in timeline.busy[TENSOR])
    steps = [step for actor in found.actors for step in actor.steps if step.kind == t.PRODUCT]
    assert busy == pytest.approx(sum(step.amount for step in steps) / MACHINE.flops)


@pytest.mark.slow
def test_a_kernel_that_hangs_is_refused():
    mutant = checked.find("correction", "drop arrival", "p_ready_2")
    with pytest.raises(ValueError, match="tirx-attn check"):
        t.record(mutant.apply(checked.kernel("correction")))
