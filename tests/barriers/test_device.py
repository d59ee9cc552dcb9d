"""Barriers made from a table: init counts, hardware barrier numbers, first phases and credits in the generated CUDA."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from tvm.script import tirx as T
from tvm.tirx.lang.alloc_pool import SMEMPool
from tvm.tirx.lang.pipeline import MBarrier, TCGen05Bar, TMABar

from tests.cuda_text import Kernel, evaluate
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.barriers.device import Barriers, NamedBarrier, attribute, buffer_name
from tirx_attn.barriers.protocol import Edge, Kind, Producer, Protocol, protocol
from tirx_attn.runtime import generate_cuda
from tirx_attn.schedule import make_plan


def edge(name: str, kind: Kind, stages: int, arrivals: tuple[int, ...], **more) -> Edge:
    return Edge(name, kind, stages, tuple(Producer("a", n, "it") for n in arrivals), ("b",), "it", **more)


TABLE = Protocol(
    (
        edge("tile.full", Kind.TMA, 3, (1,), tx_bytes=4096),
        edge("both", Kind.THREADS, 2, (96, 32), credit="b"),
        edge("mail", Kind.NAMED, 2, (128,)),
        edge("done", Kind.COMMIT, 2, (1,), free_stages=(0, 1)),
        edge("pairs", Kind.NAMED, 8, (32,)),
        edge("turn", Kind.THREADS, 2, (128,), free_stages=(0,)),
        edge("own", Kind.THREADS, 2, (64,), credit="a"),
    )
)
OBJECTS: dict[str, object] = {}


@T.inline
def use_named(barriers, group, warp):
    if group < 2:
        barriers.mail.arrive(group, warp)
        barriers.pairs.arrive(group, warp)
    else:
        for stage in T.unroll(2):
            barriers.mail.wait(stage, warp)
            barriers.pairs.wait(stage, warp)


@T.inline
def wait_once(barriers, group, warp):
    full = barriers.cursor("tile.full", 3)
    done = barriers.cursor("done")
    turn = barriers.cursor("turn", stage=group)
    barriers.tile_full.wait(full.stage, full.phase)
    barriers.done.wait(group, done.phase)
    barriers.turn.wait(group, turn.phase)


@T.inline
def credit_of_b(barriers, group, warp):
    barriers.give_credit("b", group)


@T.inline
def credit_of_nobody(barriers, group, warp):
    barriers.give_credit("c", group)


def generate(table: Protocol, use) -> Kernel:
    """A kernel of four warpgroups that makes the barriers of `table` and uses them as `use` says."""

    @T.prim_func
    def main(x: T.handle):
        T.match_buffer(x, (1,), "int32")
        T.device_entry()
        T.cta_id([1])
        group = T.warpgroup_id([4])
        warp = T.warp_id_in_wg([4])
        T.thread_id_in_wg([128])
        pool = SMEMPool()
        barriers = Barriers(pool, table)
        pool.commit()
        OBJECTS.update(vars(barriers))
        use(barriers, group, warp)

    return Kernel(generate_cuda(main))


def word(argument: str, **values: int) -> int:
    """Index of the mbarrier word that a pointer expression names."""
    return evaluate(re.search(r"\(uint64_t\*\)\w+\)\[(.*)\]", argument)[1], values)


def test_init_counts_are_those_of_the_table():
    inits = generate(TABLE, use_named).calls(r"mbarrier\.init")
    assert [(word(call.arguments[0]), evaluate(call.arguments[1], {})) for call in inits] == [
        *[(0, 1), (1, 1), (2, 1)],
        *[(3, 128), (4, 128)],
        *[(5, 1), (6, 1)],
        *[(7, 128), (8, 128)],
        *[(9, 64), (10, 64)],
    ]


def test_named_barriers_are_numbered_from_one():
    """The first named edge takes 1 and 2, one per stage; the second 3 to 10, one per stage and warp."""
    kernel = generate(TABLE, use_named)
    used: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for call in kernel.calls(r"\bbar\."):
        for values in call.cases():
            barrier = tuple(evaluate(argument, values) for argument in call.arguments)
            used.setdefault((call.ptx.split()[0], values["warp_id_in_cta"]), []).append(barrier)
    for warp in range(8):
        assert used["bar.arrive", warp] == [(1 + warp // 4, 256), (3 + warp, 64)]
    for warp in range(8, 16):
        assert used["bar.sync", warp] == [(1, 256), (3 + warp % 4, 64), (2, 256), (7 + warp % 4, 64)]
    assert len(used) == 16


def test_first_waits_ask_for_the_phase_of_the_table():
    kernel = generate(TABLE, wait_once)
    phases = dict(re.findall(r"\b(\w+)_phase_ptr\[0\] = (.*);", kernel.body))
    assert evaluate(phases["full"], {}) == 0
    assert evaluate(phases["done"], {}) == 1
    assert [word(call.arguments[0], warp_id_in_cta=4, full_stage_ptr=0) for call in kernel.calls("try_wait")] == [
        0,
        6,
        8,
    ]


def test_only_the_free_stage_of_two_passes_at_once():
    """`turn` starts free for stage 0 only: its cursor begins with parity 1 there and 0 on the other stage."""
    kernel = generate(TABLE, wait_once)
    text = re.search(r"\bturn_phase_ptr\[0\] = (.*);", kernel.body)[1]
    choice = re.search(rf"if \((.*)\) \{{\s*{text} = (.*);\s*\}} else \{{\s*{text} = (.*);", kernel.body)
    condition, free, waits = choice.groups()
    parities = [int(free if evaluate(condition, {"warp_id_in_cta": 4 * stage}) else waits) for stage in (0, 1)]
    assert parities == [1, 0]


def test_credit_is_one_arrival_on_the_edges_that_name_the_role():
    calls = generate(TABLE, credit_of_b).calls(r"mbarrier\.arrive")
    assert [word(call.arguments[0], warp_id_in_cta=4) for call in calls] == [4]
    assert evaluate(calls[0].arguments[1], {}) == 1
    assert generate(TABLE, credit_of_nobody).calls(r"mbarrier\.arrive") == []


def test_each_kind_has_its_object():
    OBJECTS.clear()
    generate(TABLE, use_named)
    kinds = {name: type(OBJECTS[attribute(name)]) for name in ("tile.full", "both", "mail", "done")}
    assert kinds == {"tile.full": TMABar, "both": MBarrier, "mail": NamedBarrier, "done": TCGen05Bar}


def test_buffers_carry_the_names_of_their_edges():
    assert attribute("q_load.full") == "q_load_full"
    assert buffer_name("q_load.full") == "ctx_barriers_q_load_full_buf"


@pytest.mark.parametrize("statistics", ["pairwise", "collective"])
def test_the_kernels_own_table_takes_words_in_order(statistics):
    table = protocol(make_plan(AttentionConfig(1, 256, 256, 1, 1, 128), Schedule(statistics=statistics, stagger=True)))
    inits = generate(table, credit_of_nobody).calls(r"mbarrier\.init")
    counts = [e.count for e in table.edges if e.kind is not Kind.NAMED for _ in range(e.stages)]
    assert [evaluate(call.arguments[1], {}) for call in inits] == counts
    assert [word(call.arguments[0]) for call in inits] == list(range(table.mbarriers))


@pytest.mark.parametrize(
    ("name", "phases"), [("done", {(1, 0): 1, (1, 1): 1, (0, 1): 0}), ("turn", {(1, 0): 1, (1, 1): 0, (0, 1): 1})]
)
def test_one_cursor_serves_both_stages(name, phases):
    """Where stages start with different parities, that of stage 1 is the other one throughout."""
    barriers = object.__new__(Barriers)
    barriers.table = TABLE
    for (phase, stage), expected in phases.items():
        assert barriers.phase(name, SimpleNamespace(phase=phase), stage) == expected


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_parts_of_p_are_found_by_number(parts):
    barriers = object.__new__(Barriers)
    names = ["p_o_rescale", "p_ready_2", "p_ready_3", "p_ready_4"][:parts]
    for name in names:
        setattr(barriers, name, name)
    assert [barriers.part_of_p(part) for part in range(parts)] == names
