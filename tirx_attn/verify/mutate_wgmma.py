"""Mutants that are particular to WGMMA: groups, waits for them, fences of registers, operands, arrivals of one lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tirx_attn.barriers.checker.rewrite import Edit, Leaf, with_argument
from tirx_attn.barriers.checker.tir import key, loads, walk
from tirx_attn.barriers.checker.wgmma import UNIT, is_product

COMMIT_GROUP, WAIT_GROUP, REGISTER_FENCE = "wgmma_commit_group", "wgmma_wait_group", "func_call"
WGMMA_EVENTS = ("wgmma_fence", COMMIT_GROUP, WAIT_GROUP)

Add = Callable[..., None]


def single_faults(leaf: Leaf) -> Iterator[tuple[str, Edit]]:
    """Edits of one statement."""
    if leaf.operator == COMMIT_GROUP:
        yield "drop commit", lambda _: []
    if leaf.operator == REGISTER_FENCE:
        yield "drop register fence", lambda _: []
    if leaf.operator == WAIT_GROUP:
        yield "drop wait_group", lambda _: []
        yield "wait_group + 1", lambda s: [with_argument(s, 0, lambda left: left + 1)]
        if int(leaf.statement.value.args[0]) > 0:
            yield "wait_group - 1", lambda s: [with_argument(s, 0, lambda left: left - 1)]


def moved_faults(func: Any, found: list[Leaf], add: Add) -> None:
    """Edits of several statements, and of branches."""
    _late_waits(found, add)
    _late_tile_waits(found, add)
    _wrong_operands(found, add)
    _one_lane_arrivals(func, found, add)


def _late_waits(found: list[Leaf], add: Add) -> None:
    """Wait for a group only behind the first use of registers that follows."""
    for place, leaf in enumerate(found):
        if leaf.operator == WAIT_GROUP:
            uses = (other for other in found[place + 1 :] if _is_arithmetic(other))
            use = next(uses, None)
            if use is not None:
                edits: dict[int, Edit] = {leaf.index: lambda _: [], use.index: _behind(leaf.statement)}
                add("late wait_group", leaf, edits)


def _is_arithmetic(leaf: Leaf) -> bool:
    kind = type(leaf.statement).__name__
    return leaf.operator.startswith("cvt") or (kind == "BufferStore" and any(True for _ in loads(leaf.statement.value)))


def _late_tile_waits(found: list[Leaf], add: Add) -> None:
    """Issue products ahead of the wait for the tile that they read."""
    for leaf in found:
        if leaf.operator == "mbarrier_wait" and leaf.edge == "kv_load_full":
            same = (other for other in found if other.block == leaf.block and other.index > leaf.index)
            commit = next((other for other in same if other.operator == COMMIT_GROUP), None)
            if commit is not None:
                add("late wait", leaf, {leaf.index: lambda _: [], commit.index: _behind(leaf.statement)})


def _wrong_operands(found: list[Leaf], add: Add) -> None:
    """Read an operand from the slot behind the right one."""
    from tvm import tirx

    buffers: dict[int, Any] = {}
    for leaf in found:
        if leaf.operator == "wgmma_encode_matrix_descriptor":
            (descriptor,), (tile,) = (list(loads(argument)) for argument in leaf.statement.value.args[:2])
            buffers[key(descriptor.source)] = tile.source
        if not is_product(leaf.operator):
            continue
        for position, argument in enumerate(leaf.statement.value.args):
            tiles = [buffers[key(load.source)] for load in loads(argument) if key(load.source) in buffers]
            if tiles:
                rows, columns = (int(extent) for extent in tiles[0].shape[1:])
                units = tirx.IntImm("uint64", rows * columns * 2 // UNIT)
                add("wrong slot of an operand", leaf, {leaf.index: _further(position, units)}, label=tiles[0].name)


def _one_lane_arrivals(func: Any, found: list[Leaf], add: Add) -> None:
    """Let all lanes arrive, or let the one arrive before the products that an arrival speaks of are complete."""
    from tvm import tirx

    branches = [statement for statement in walk(func.body) if type(statement).__name__ == "IfThenElse"]
    counters = {key(statement.loop_var) for statement in walk(func.body) if type(statement).__name__ == "For"}
    for number, branch in enumerate(branches):
        leaf = next((x for x in found if key(x.statement) == key(branch.then_case)), None)
        if leaf is None or leaf.operator != "mbarrier_arrive" or not _is_lane(branch.condition, counters):
            continue
        add("all lanes arrive", leaf, {}, {number: lambda _: tirx.IntImm("bool", 1)})
        place = found.index(leaf)
        before = [x for x in found[:place] if x.operator != REGISTER_FENCE]
        if before[-1].operator == WAIT_GROUP:
            add("early release", leaf, {before[-1].index: _ahead(branch), leaf.index: lambda _: []})
        elif leaf.edge == "q_load_empty":
            wait = next(x for x in found if x.edge == "q_load_full" and x.operator == "mbarrier_wait")
            add("early release", leaf, {wait.index: _behind(branch), leaf.index: lambda _: []})


def _is_lane(condition: Any, counters: set[int]) -> bool:
    """A comparison with a variable that no loop counts."""
    return (
        type(condition).__name__ == "EQ" and type(condition.a).__name__ == "Var" and key(condition.a) not in counters
    )


def _behind(statement: Any) -> Edit:
    return lambda s: [s, statement]


def _ahead(statement: Any) -> Edit:
    return lambda s: [statement, s]


def _further(position: int, units: Any) -> Edit:
    return lambda s: [with_argument(s, position, lambda address: address + units)]
