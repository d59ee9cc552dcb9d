"""The replay against times worked out by hand, and against what must hold for any program."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.analysis.timeline.toys import MACHINE, ring, run
from tirx_attn.analysis.timeline import trace as t
from tirx_attn.analysis.timeline.figures import Work
from tirx_attn.analysis.timeline.replay import ISSUE, MUFU, TENSOR, TMA

LATE = replace(MACHINE, edge=60.0, tma_latency=600.0)


@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_a_ring_of_one_takes_a_round_trip_a_tile(tiles):
    # load 16 KiB at 64 bytes a cycle, arrive, wake, work, wake the load warp; the last tile needs no answer
    assert run(ring(tiles, 1, 16384, 100.0), LATE).end == tiles * (256 + 600 + 60 + 100 + 60) - 60


@pytest.mark.parametrize(("edge", "latency"), [("kv_load.full", 600.0), ("q_load.full", 900.0)])
def test_query_tiles_come_from_further_away(edge, latency):
    load = [
        (Work(), t.Step(t.LOAD, edge, amount=16384)),
        (Work(), t.Step(t.EXPECT, edge, amount=1, bytes=16384)),
    ]
    use = [(Work(), t.Step(t.WAIT, edge))]
    assert run({"load": load, "use": use}, replace(LATE, query_latency=900.0)).end == 256 + latency + 60


def test_a_deep_ring_is_bound_by_the_slower_side():
    first = 256 + 600 + 60
    assert run(ring(20, 8, 16384, 400.0), LATE).end == pytest.approx(first + 20 * 400)
    bound_by_tma = run(ring(20, 8, 65536, 400.0), LATE)
    assert bound_by_tma.end == pytest.approx(20 * 1024 + 600 + 60 + 400)
    assert bound_by_tma.use(TMA, 0, 20 * 1024) == pytest.approx(1.0)


@pytest.mark.parametrize("depth", range(1, 6))
def test_a_deeper_ring_is_never_slower(depth):
    shallow, deep = (run(ring(30, d, 16384, 250.0), LATE).end for d in (depth, depth + 1))
    assert deep <= shallow
    # as many tiles on their way as there are slots, or the work
    round_trip = 256 + 600 + 60 + 250 + 60
    period = max(250.0, 256.0, round_trip / depth)
    assert shallow == pytest.approx(30 * period, rel=0.2)


def products(count: int) -> list[tuple[Work, t.Step]]:
    made = [(Work(), t.Step(t.PRODUCT, "s", amount=2 * 128**3)) for _ in range(count)]
    return [*made, (Work(), t.Step(t.COMMIT, "s_ready", amount=1))]


def test_the_tensor_pipe_takes_products_one_after_the_other():
    machine = replace(MACHINE, fill=50.0, edge=10.0)
    programs = {"mma": products(4), "softmax": [(Work(), t.Step(t.WAIT, "s_ready", 0, 0))]}
    found = run(programs, machine)
    assert found.end == 4 * 512 + 50 + 10
    assert found.busy[TENSOR] == [(i * 512.0, (i + 1) * 512.0) for i in range(4)]
    assert found.path(0, found.end) == {TENSOR: 2048.0, "tensor pipe latency": 50.0, "edge s_ready": 10.0}
    (stall,) = found.stalls
    assert (stall.role, stall.edge, stall.end - stall.start) == ("softmax", "s_ready", 2108.0)


def groups(count: int) -> list[tuple[Work, t.Step]]:
    issued = [
        step
        for _ in range(count)
        for step in ((Work(), t.Step(t.PRODUCT, "s", amount=524288)), (Work(), t.Step(t.GROUP)))
    ]
    return [*issued, (Work(), t.Step(t.GROUP_WAIT, "1", amount=1))]


def test_a_wait_for_all_groups_but_one():
    assert run({"consumer": groups(4)}).end == 3 * 64
    # two warpgroups share the pipe by turns
    assert run({"consumer 0": groups(4), "consumer 1": groups(4)}).end == pytest.approx(6 * 64)


def test_issue_waits_for_the_pipe_where_few_products_may_be_ahead():
    machine = replace(MACHINE, issue_depth=1)
    program = [(Work(), t.Step(t.PRODUCT, "s", amount=524288)) for _ in range(5)]
    # the last product is issued when the one before it starts
    assert run({"consumer": program}, machine).end == 3 * 64
    assert run({"consumer": program}).end == 0


def exponentials(blocks: int) -> list[tuple[Work, t.Step]]:
    return [(Work(1000.0, 100.0, 450.0), t.Step(t.GROUP)) for _ in range(blocks)]


def test_two_warps_share_the_mufu():
    alone = run({"softmax 0": exponentials(10)})
    assert alone.end == pytest.approx(10 * 1000)
    both = run({"softmax 0": exponentials(10), "softmax 1": exponentials(10)})
    # 2 x 100 instructions of 8 cycles a block are more than the 1000 cycles of a warp by itself
    assert both.end == pytest.approx(10 * 1600, rel=0.02)
    assert both.use(MUFU, 0, both.end) == pytest.approx(1.0, rel=0.02)
    assert both.use(ISSUE, 0, both.end) == pytest.approx(9000 / 16000, rel=0.02)


@pytest.mark.parametrize("warps", [1, 2, 3])
@pytest.mark.parametrize("mufu", [0.0, 50.0, 100.0, 125.0])
def test_a_faster_mufu_is_never_slower(warps, mufu):
    work = [(Work(1000.0, mufu, 400.0), t.Step(t.GROUP)) for _ in range(5)]
    programs = {f"softmax {i}": work for i in range(warps)}
    slow, fast = run(programs), run(programs, replace(MACHINE, mufu_cycles=4.0))
    assert fast.end <= slow.end + 1e-6
    assert slow.use(MUFU, 0, slow.end) * slow.end == pytest.approx(5 * warps * mufu * 8)


def test_dilation_stretches_work_alone():
    machine = replace(LATE, dilation=1.5)
    assert run(ring(1, 1, 16384, 100.0), machine).end == 256 + 600 + 60 + 150


def test_a_named_barrier_lets_all_go_when_the_last_has_come():
    sync = (Work(), t.Step(t.SYNC, "turn", 1, 0, 128))
    programs = {"a": [(Work(300.0), t.Step(t.SIGNAL, "turn", 1, 0, 128))], "b": [sync, (Work(50.0), t.Step(t.GROUP))]}
    found = run(programs, replace(MACHINE, named=20.0), {1: 256})
    assert found.end == 300 + 20 + 50
    assert found.path(0, found.end) == {"a: instructions": 300.0, "edge turn": 20.0, "b: instructions": 50.0}


def test_the_path_adds_up_to_the_time():
    found = run(ring(9, 3, 32768, 333.0), LATE)
    assert sum(found.path(0, found.end).values()) == pytest.approx(found.end)
    assert sum(found.path(500, 2000).values()) == pytest.approx(1500)


def test_spans_and_stalls_are_all_of_a_roles_time():
    found = run(ring(9, 3, 32768, 333.0), LATE)
    for role in ("load", "use"):
        pieces = [(s.start, s.end) for s in found.spans if s.lane == role]
        pieces += [(s.start, s.end) for s in found.stalls if s.role == role]
        pieces.sort()
        assert pieces[0][0] == 0
        assert all(left[1] == right[0] for left, right in pairwise(pieces))
    assert max(s.end for s in found.stalls if s.role == "use") + 333.0 == found.end
    loads = [(s.start, s.end) for s in found.spans if s.lane == TMA]
    assert loads == found.busy[TMA]


def test_a_stall_names_the_last_to_arrive():
    machine = replace(MACHINE, fill=50.0, edge=10.0)
    found = run({"mma": products(4), "softmax": [(Work(), t.Step(t.WAIT, "s_ready", 0, 0))]}, machine)
    (stall,) = found.stalls
    assert (stall.by, stall.released, stall.end) == (TENSOR, 2098.0, 2108.0)
    by = {(stall.role, stall.by) for stall in run(ring(9, 3, 32768, 333.0), LATE).stalls}
    assert by == {("load", "use"), ("use", TMA)}


def test_a_span_says_what_of_it_was_spent_in_a_queue():
    both = run({"softmax 0": exponentials(10), "softmax 1": exponentials(10)})
    assert {span.what for span in both.spans} == {"exponentials"}
    for role in ("softmax 0", "softmax 1"):
        spans = [span for span in both.spans if span.lane == role]
        assert len(spans) == 10
        assert sum(s.end - s.start - s.queued for s in spans) == pytest.approx(10 * 1000)
