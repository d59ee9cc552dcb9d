"""WGMMA in the machine, on programs of a warp or two: groups, waits, fences, registers, what may be overwritten."""

from __future__ import annotations

import pytest

from tests.barriers.checker.skeletons import Steps, Warp, kinds, run
from tirx_attn.barriers.checker.wgmma import Operand

LOAD, MULTIPLY = 1, 2
TILE = Operand("tile", 0, 16384, 4096, tuple(1024 * group for group in range(8)), 96)
"""64 rows of a panel of 128 rows, at the start of shared memory."""

COUNTS = {"full": 1, "empty": 1}
PARTS = ("full", "wgmma.fence", "commit", "wait_group", "register fence", "empty")


def overwrite(without: str = "", left: int = 0):
    """A tile is loaded twice, and multiplied in between. `left`: groups that the wait leaves."""

    def load(w: Warp) -> Steps:
        yield from w.load_tile("full")
        if without != "empty":
            yield from w.wait("empty", 0)
        yield from w.load_tile("full")

    def multiply(w: Warp) -> Steps:
        if without != "full":
            yield from w.wait("full", 0)
        w.m.set(w.number, "s", "a.py:1", True)
        if without != "wgmma.fence":
            w.m.wgmma_fence(w.number)
        w.m.wgmma(w.number, ("s", "p"), ((0, 0),), w.site("WGMMA s from p and tile"))
        if without != "commit":
            w.m.commit_group(w.number)
        if without != "wait_group":
            w.m.wait_group(w.number, left)
        if without != "register fence":
            w.m.pin(w.number, "s", "a.py:2")
        yield from w.arrive("empty", lanes=1)
        w.m.use(w.number, "s", "a.py:3")
        w.m.set(w.number, "p", "a.py:4", True)

    return run(COUNTS, {LOAD: load, MULTIPLY: multiply}, operands=(TILE,))


def test_the_whole_story_is_fine():
    machine = overwrite()
    assert machine.ended
    assert machine.findings == []


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("full", "race"),
        ("empty", "race"),
        ("wgmma.fence", "registers"),
        ("commit", "registers"),
        ("wait_group", "registers"),
        ("register fence", "registers"),
    ],
)
def test_each_part_is_needed(part, kind):
    assert kind in kinds(overwrite(part))


@pytest.mark.parametrize("part", ["commit", "wait_group"])
def test_a_product_that_is_not_known_to_be_complete_still_reads(part):
    assert "race" in kinds(overwrite(part))


def test_a_wait_that_leaves_the_group_is_none():
    assert {"race", "registers"} <= kinds(overwrite(left=1))


def messages(*steps) -> list[str]:
    """Findings of one warp that calls these methods of the machine."""

    def program(w: Warp) -> Steps:
        for name, *arguments in steps:
            getattr(w.m, name)(w.number, *arguments)
        yield

    return [f.message for f in run({}, {MULTIPLY: program}, operands=(TILE,)).findings]


S, O = ("wgmma", ("s",), (), 0), ("wgmma", ("o", "p"), (), 0)
FENCE, COMMIT = ("wgmma_fence",), ("commit_group",)


class TestGroups:
    """wait_group(n) leaves the last n groups."""

    STEPS = (FENCE, S, COMMIT, O, COMMIT, ("wait_group", 1))

    def test_the_older_group_is_complete(self):
        assert messages(*self.STEPS, ("pin", "s", "a"), ("use", "s", "b")) == []

    @pytest.mark.parametrize(("verb", "name"), [("use", "o"), ("set", "o"), ("set", "p"), ("pin", "o")])
    def test_the_last_one_is_not(self, verb, name):
        words = {"use": "reads", "set": "writes", "pin": "fences"}[verb]
        assert messages(*self.STEPS, (verb, name, "a.py:1")) == [
            f"warp 2 {words} registers {name} of a WGMMA before the wait_group that completes it (a.py:1)"
        ]

    def test_registers_belong_to_the_last_group_that_has_them(self):
        assert len(messages(FENCE, S, COMMIT, S, COMMIT, ("wait_group", 1), ("set", "s", "a.py:1"))) == 1


class TestFences:
    def test_the_first_product_needs_one(self):
        assert "registers s not behind a wgmma.fence" in messages(S)[0]

    @pytest.mark.parametrize("is_asm", [True, False])
    def test_only_asm_stays_ahead_of_it(self, is_asm):
        """The compiler may move other uses behind it."""
        assert len(messages(FENCE, ("set", "s", "a", is_asm), FENCE, S)) == (0 if is_asm else 1)

    def test_a_register_fence_holds_the_others(self):
        assert messages(FENCE, ("set", "s", "a"), ("pin", "s", "b"), FENCE, S) == []

    def test_products_of_the_same_accumulators_need_none_between_them(self):
        assert messages(FENCE, S, S, COMMIT, S, COMMIT) == []


class TestOperands:
    @pytest.mark.parametrize(("byte", "cells"), [(0, (0, 4096)), (96, (0, 4096)), (8192, (8192, 12288))])
    def test_cells(self, byte, cells):
        assert TILE.cells(byte // 16) == tuple(("s", cell) for cell in cells)

    @pytest.mark.parametrize("byte", [112, 128, 8192 + 1024, 16384])
    def test_outside(self, byte):
        """Past the step's place in the row; not in the first row of an atom; rows beyond the end of the buffer."""
        assert TILE.cells(byte // 16) is None
        found = messages(FENCE, ("wgmma", ("s",), ((byte // 16, 0),), 0))
        assert f"reads from byte {byte}, where no operand of tile lies (bytes 0 to 16384)" in found[0]
