"""Blocks, dominators and loops of little programs."""

from __future__ import annotations

from tests.analysis.programs import assemble
from tirx_attn.analysis.flow import dominated, graph, natural_loops, on_the_way

NEST = """
    MOV R0, R1
outer:
    @P0 BRA `(join)
    MOV R1, R2
inner:
    MOV R2, R3
    @P1 BRA `(inner)
join:
    @P2 BRA `(outer)
    EXIT
"""


def numbers(program: str):
    """Each loop as first instruction -> instructions of its blocks, by their numbers."""
    flow = graph(assemble(program))
    return {
        flow.start(loop.header) // 16: sorted(
            line.address // 16 for block in loop.blocks for line in flow.blocks[block]
        )
        for loop in natural_loops(flow)
    }


def test_blocks():
    flow = graph(assemble(NEST))
    assert [[line.address // 16 for line in block] for block in flow.blocks] == [[0], [1], [2], [3, 4], [5], [6]]
    assert flow.successors == ((1,), (2, 4), (3,), (3, 4), (1, 5), ())


def test_dominators_of_a_diamond():
    # 0 to 1 and 2, both to 3; 4 is not reached
    assert dominated([(1, 2), (3,), (3,), (), (3,)]) == {
        0: frozenset({0, 1, 2, 3}),
        1: frozenset({1}),
        2: frozenset({2}),
        3: frozenset({3}),
    }


def test_loops_in_loops():
    assert numbers(NEST) == {1: [1, 2, 3, 4, 5], 3: [3, 4]}


def test_what_every_iteration_runs():
    flow = graph(assemble(NEST))
    outer, inner = natural_loops(flow)
    assert outer.always == {1, 4}
    assert inner.always == {3}


def test_loops_with_one_header_are_one():
    program = """
    head:
        @P0 BRA `(second)
        BRA `(head)
    second:
        @P1 BRA `(head)
        EXIT
    """
    flow = graph(assemble(program))
    (loop,) = natural_loops(flow)
    assert (loop.latches, loop.always) == ({1, 2}, {0})


def test_a_cycle_with_two_entries_is_no_natural_loop():
    program = """
        @P0 BRA `(second)
    first:
        MOV R0, R1
    second:
        @P1 BRA `(first)
        EXIT
    """
    assert numbers(program) == {}


def test_code_that_nothing_reaches_has_no_loops():
    assert numbers("EXIT\n self:\n MOV R0, R1\n @P0 BRA `(self)\n EXIT") == {}


def test_the_way_through_an_inner_loop_leaves_other_roles_out():
    program = """
    task:
        @P0 BRA `(other)
        MOV R0, R1
    inner:
        @P1 BRA `(inner)
        MOV R2, R3
        BRA `(next)
    other:
        MOV R4, R5
    next:
        @P2 BRA `(task)
        EXIT
    """
    flow = graph(assemble(program))
    outer, inner = natural_loops(flow)
    found = sorted(line.address // 16 for block in on_the_way(flow, outer, inner) for line in flow.blocks[block])
    assert found == [0, 1, 2, 3, 4, 6]
