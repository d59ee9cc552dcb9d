"""Where machine-code figures put the work of a role."""

from __future__ import annotations

import pytest

from tirx_attn.analysis.timeline import trace as t
from tirx_attn.analysis.timeline.figures import Body, Work, blackwell, hopper

FIGURES = blackwell(
    "by hand", scores=200, parts=(650, 1080), loop=1230, mufu=105, mufu_span=(200, 1070), instructions=527,
    masked_extra=390, masked_mufu=129, correction=50, mma=200, load=100, epilogue=700,
)  # fmt: skip
TILE_FLOPS = 4 * 128**3


def block(stage: int, number: int) -> list[t.Step]:
    return [
        t.Step(t.WAIT, "s_ready", stage, number),
        t.Step(t.READ_WAIT),
        *([t.Step(t.SIGNAL, "stats.full", 1, number, 32)] if number else []),
        t.Step(t.ARRIVE, "p_o_rescale", stage, amount=128),
        t.Step(t.ARRIVE, "p_ready_2", stage, amount=128),
    ]


def stalls(role: str, steps: list[t.Step], blocks: list[tuple[int, int]]) -> list[float]:
    return [work.stalls for work, _ in FIGURES.program(t.Actor(role, 4, tuple(steps)), blocks, TILE_FLOPS)]


def test_a_softmax_block_is_cut_at_its_marks():
    steps = [step for number in range(3) for step in block(0, number)]
    careful, steady = stalls("softmax 0", steps, [(3, 1)])[:4], stalls("softmax 0", steps, [(3, 1)])[9:14]
    assert careful == [0.0, 0.0, 650.0 + 390.0, 430.0]
    # what follows the last part of P in the block before, nothing, to the scale, to the first part, to the last
    assert steady == [150.0, 0.0, 200.0, 450.0, 430.0]


def test_the_tail_of_the_last_block_comes_before_what_follows_it():
    steps = [*block(0, 0), t.Step(t.WAIT, "o_ready", 0, 0), t.Step(t.ARRIVE, "o_staged.full", 0, amount=128)]
    assert stalls("softmax 0", steps, [(1, 1)])[-2:] == [150.0, 700.0]


def test_all_stalls_and_exponentials_of_the_loop_are_spent():
    steps = [step for number in range(10) for step in block(1, number)]
    program = FIGURES.program(t.Actor("softmax 1", 4, tuple(steps)), [(10, 1)], TILE_FLOPS)
    assert sum(work.stalls for work, _ in program) == pytest.approx(1230 + 390 + 9 * 1230 - 150)
    assert sum(work.mufu for work, _ in program) == pytest.approx(129 + 9 * 105)


def test_products_share_the_cycles_of_their_warp_by_flops():
    steps = [t.Step(t.PRODUCT, "s", amount=2 * 128**3), t.Step(t.PRODUCT, "o", amount=2 * 128 * 128 * 96)]
    assert stalls("mma", steps, []) == [100.0, 75.0]


def test_a_wait_that_the_assembler_moved_counts_where_it_stands():
    marks = (("wait kv_load.full", 38.0), ("product rows_s", 75.0), ("group wait 1", 204.0), ("group wait 0", 402.0))
    figures = hopper(
        "by hand", marks=marks, loop=946, instructions=468, mufu=66, mufu_span=(375, 930), masked_extra=0, load=99,
        epilogue=350,
    )  # fmt: skip
    steps = (
        t.Step(t.WAIT, "kv_load.full"),
        t.Step(t.PRODUCT, "rows_s", amount=1),
        t.Step(t.PRODUCT, "rows_s", amount=1),
        t.Step(t.GROUP_WAIT, "1", amount=1),
        t.Step(t.GROUP_WAIT, "0"),
        t.Step(t.WAIT, "kv_load.full"),
    )
    work = [w.stalls for w, _ in figures.program(t.Actor("consumer 0", 4, steps), [(2, 1)], TILE_FLOPS)]
    assert work == [38.0, 37.0, 0.0, 129.0, 198.0, 946.0 - 402.0 + 38.0]


def test_work_between_two_positions():
    body = Body((("wait s", 0.0),), 1000.0, 500.0, 80.0, (200.0, 1000.0))
    assert body.between(100.0, 400.0) == Work(300.0, 20.0, 150.0)
    assert body.between(400.0, 400.0) == Work()
    assert body.later(100.0).between(0.0, 1100.0) == Work(1100.0, 80.0, 550.0)


def test_turns_have_marks_of_their_own():
    figures = blackwell(
        "by hand", scores=200, parts=(650, 1080), loop=1230, mufu=105, mufu_span=(200, 1070), instructions=527,
        masked_extra=0, masked_mufu=129, correction=50, mma=200, load=100, epilogue=700, turn=(200, 1060),
    )  # fmt: skip
    steps = block(0, 1)
    steps.insert(3, t.Step(t.WAIT, "exp_turn", 0, 0))
    steps.insert(5, t.Step(t.ARRIVE, "exp_turn", 1, amount=128))
    work = [w.stalls for w, _ in figures.program(t.Actor("softmax 0", 4, tuple(steps)), [(1, 1)], TILE_FLOPS)]
    assert work == [0.0, 0.0, 200.0, 0.0, 450.0, 410.0, 20.0]


def test_each_part_of_p_has_a_mark_of_its_own():
    figures = blackwell(
        "by hand", scores=200, parts=(345, 545, 765, 973), loop=990, mufu=105, mufu_span=(200, 970), instructions=480,
        masked_extra=0, masked_mufu=129, correction=50, mma=200, load=100, epilogue=700, turn=(210, 960),
    )  # fmt: skip
    assert figures.roles["softmax"].steady.marks == (
        ("wait s_ready", 0.0), ("signal stats.full", 200), ("wait exp_turn", 210), ("arrive p_o_rescale", 345),
        ("arrive p_ready_2", 545), ("arrive p_ready_3", 765), ("arrive exp_turn", 960), ("arrive p_ready_4", 973),
    )  # fmt: skip
