"""Accesses and proxies: each story is fine as a whole, and a race without any one of its parts."""

from __future__ import annotations

import re

import pytest

from tests.barriers.checker.skeletons import TILE, Steps, Warp, kinds, run

SOFTMAX, MMA, LOAD, STORE = 1, 5, 6, 7
LANES = 128
"""TMEM columns 0 to 127 are cells 0 to 7."""


def played(counts, programs, without: str = ""):
    """Play programs whose steps are skipped where they are `without`."""

    def wrap(program):
        return lambda warp: program(warp, lambda step: step != without)

    return run(counts, {number: wrap(program) for number, program in programs.items()})


def read_then_overwrite_s():
    """Softmax reads S; the MMA writes the next S."""

    def softmax(w: Warp, has) -> Steps:
        w.m.ld(w.number, 0, 8, "s_reg", w.site("tcgen05.ld of s"))
        if has("wait::ld"):
            w.m.wait_ld(w.number)
        if has("fence before"):
            w.m.fence_before(w.number)
        if has("arrive and wait"):
            yield from w.arrive("read")

    def mma(w: Warp, has) -> Steps:
        if has("arrive and wait"):
            yield from w.wait("read", 0)
        if has("fence after"):
            w.m.fence_after(w.number)
        w.m.mma(w.number, 0, 8, (), w.site("MMA s"))

    return {"read": 32}, {SOFTMAX: softmax, MMA: mma}


def write_then_read_p():
    """Softmax stores P; the MMA reads it as its operand."""

    def softmax(w: Warp, has) -> Steps:
        w.m.st(w.number, 0, 4, w.site("tcgen05.st to p"))
        if has("wait::st"):
            w.m.wait_st(w.number)
        if has("fence before"):
            w.m.fence_before(w.number)
        yield from w.arrive("ready")

    def mma(w: Warp, has) -> Steps:
        if has("wait"):
            yield from w.wait("ready", 0)
        if has("fence after"):
            w.m.fence_after(w.number)
        w.m.mma(w.number, 16, 8, (("tmem", 0, 4),), w.site("MMA o from p"))

    return {"ready": 32}, {SOFTMAX: softmax, MMA: mma}


def multiply_then_read():
    """The MMA writes S and commits; softmax reads it."""

    def mma(w: Warp, has) -> Steps:
        w.m.mma(w.number, 0, 8, (), w.site("MMA s"))
        yield from (w.commit("s_ready") if has("commit") else w.arrive("s_ready", lanes=1))

    def softmax(w: Warp, has) -> Steps:
        if has("wait"):
            yield from w.wait("s_ready", 0)
        if has("fence after"):
            w.m.fence_after(w.number)
        w.m.ld(w.number, 0, 8, "s_reg", w.site("tcgen05.ld of s"))
        w.m.wait_ld(w.number)

    return {"s_ready": 1}, {MMA: mma, SOFTMAX: softmax}


def load_twice():
    """TMA fills a tile, the MMA reads it and releases it, TMA fills it again. No fence: both are the async proxy."""

    def load(w: Warp, has) -> Steps:
        yield from w.load_tile("full")
        if has("release"):
            yield from w.wait("empty", 0)
        yield from w.load_tile("full")

    def mma(w: Warp, has) -> Steps:
        if has("full"):
            yield from w.wait("full", 0)
        w.m.mma(w.number, 0, 8, (("shared", 0, (0, 0)),), w.site("MMA s from tile"))
        yield from (w.commit("empty") if has("commit") else w.arrive("empty", lanes=1))

    return {"full": 1, "empty": 1}, {LOAD: load, MMA: mma}


def stage_and_store():
    """A warp writes a tile, TMA stores it, the warp writes it again."""

    def write(w: Warp, has) -> Steps:
        w.m.write(w.number, 0, (0, 0), w.site("write of tile"))
        if has("async fence"):
            w.m.fence_async(w.number)
        yield from w.arrive("staged")
        yield from w.wait("read", 0)
        w.m.write(w.number, 0, (0, 0), w.site("second write of tile"))

    def store(w: Warp, has) -> Steps:
        if has("wait"):
            yield from w.wait("staged", 0)
        w.m.tma_store(w.number, 0, (0, 0), w.site("TMA store from tile"))
        if has("commit_group"):
            w.m.commit_stores(w.number)
        if has("wait_group"):
            w.m.wait_stores(w.number)
        yield from w.arrive("read")

    return {"staged": 32, "read": 32}, {SOFTMAX: write, STORE: store}


STORIES = {
    read_then_overwrite_s: ("wait::ld", "fence before", "arrive and wait", "fence after"),
    write_then_read_p: ("wait::st", "fence before", "wait", "fence after"),
    multiply_then_read: ("commit", "wait", "fence after"),
    load_twice: ("release", "full", "commit"),
    stage_and_store: ("async fence", "wait", "commit_group", "wait_group"),
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_whole_story_is_fine(story):
    machine = played(*story())
    assert machine.ended
    assert machine.findings == []


@pytest.mark.parametrize(("story", "part"), [(s, p) for s, parts in STORIES.items() for p in parts])
def test_each_part_is_needed(story, part):
    machine = played(*story(), without=part)
    assert "race" in kinds(machine)


def test_a_race_names_both_accesses_and_their_positions():
    machine = played(*read_then_overwrite_s(), without="fence after")
    (finding,) = machine.findings
    assert re.fullmatch(
        r"tcgen05\.ld of s by warp 1, then MMA s by warp 5, not ordered, at TMEM column 0 "
        r"\(warp1\.py:\d+; warp5\.py:\d+\)",
        finding.message,
    )
    assert finding.roles == ("warp 1", "warp 5")


def test_warps_reach_their_own_lanes_of_tensor_memory_only():
    """Warp 1 of a warpgroup has lanes 32 to 63, warp 2 lanes 64 to 95: the same columns are not the same cells."""

    def access(w: Warp) -> Steps:
        w.m.st(w.number, 0, 8, w.site("tcgen05.st"))
        yield

    assert run({}, {1: access, 2: access}).findings == []
    assert kinds(run({}, {1: access, 5: access})) == {"race"}


def test_registers_of_a_load_are_not_there_before_its_wait():
    def early(w: Warp) -> Steps:
        w.m.ld(w.number, 0, 8, "x", w.site("tcgen05.ld"))
        w.m.use(w.number, "y", "a.py:1")
        w.m.use(w.number, "x", "a.py:2")
        w.m.wait_ld(w.number)
        w.m.use(w.number, "x", "a.py:3")
        yield

    (finding,) = run({}, {1: early}).findings
    assert finding.kind == "registers"
    assert finding.message == "warp 1 reads registers x of a tcgen05.ld before its tcgen05.wait::ld (a.py:2)"


def test_tensor_memory_is_used_after_it_is_freed():
    def free(w: Warp) -> Steps:
        w.m.dealloc(w.number, 512, w.site("tcgen05.dealloc"))
        w.m.ld(w.number, 0, 8, "x", w.site("tcgen05.ld"))
        yield

    assert [f.message.split(" (")[0] for f in run({}, {0: free}).findings] == [
        "tensor memory is not known to be allocated: tcgen05.ld"
    ]


def test_cells_of_a_region():
    """A tile of 16 KiB has cells of 4 KiB: 32 rows of a 128-byte panel."""
    assert TILE.bytes == 16384
    assert TILE.cells((0, 0)) == tuple(("s", 4096 * number) for number in range(4))
