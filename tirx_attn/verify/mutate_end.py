"""Mutants that leave something in flight when a CTA ends: a store, a load or a product that nobody waits for then.

Each is right until the last turn of a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tirx_attn.barriers.checker.rewrite import Edit, Leaf, with_argument, with_slot
from tirx_attn.barriers.checker.tir import children, key, loads
from tirx_attn.barriers.checker.wgmma import is_product

WAIT, ARRIVE, EXPECT = "mbarrier_wait", "mbarrier_arrive", "mbarrier_arrive_expect_tx"
WAIT_STORES = "cp_async_bulk_wait_group"

Add = Callable[..., None]


def single_faults(leaf: Leaf) -> Iterator[tuple[str, Edit]]:
    """Edits of one statement."""
    if leaf.operator == WAIT_STORES:
        yield "wait_group + 1", lambda s: [with_argument(s, 0, lambda left: left + 1)]


def moved_faults(func: Any, found: list[Leaf], add: Add) -> None:
    """Edits of several statements."""
    _late_store_wait(func, found, add)
    _load_too_many(func, found, add)
    _unused_product(found, add)


def _late_store_wait(func: Any, found: list[Leaf], add: Add) -> None:
    """Wait for a store, and say so, only in the next turn of the store role."""
    from tvm import tirx

    for place, leaf in enumerate(found):
        if leaf.operator != WAIT_STORES:
            continue
        begin = next(x for x in reversed(found[:place]) if x.operator == WAIT)
        freed = next(x for x in found[place:] if x.operator == ARRIVE)
        start = next(x for x in reversed(found[:place]) if "while" not in x.inside)
        pending = tirx.decl_buffer((1,), "int32", "pending", scope="local")
        elected = tirx.IfThenElse(_elected(func, leaf).condition, leaf.statement, None)
        late = tirx.SeqStmt([elected, with_slot(freed.statement, 0, _slot_before(freed.slots))])
        edits: dict[int, Edit] = {
            start.index: _then(tirx.AllocBuffer(pending), tirx.BufferStore(pending, 0, [0])),
            begin.index: _first(tirx.IfThenElse(pending[0] != 0, late, None)),
            leaf.index: lambda _: [],
            freed.index: _instead(tirx.BufferStore(pending, 1, [0])),
        }
        add("late wait for a store", leaf, edits)


def _slot_before(slots: int) -> Callable[[Any], Any]:
    """The slot of the turn before: a role takes its slots by turns."""
    return lambda slot: slots - 1 - slot


def _load_too_many(func: Any, found: list[Leaf], add: Add) -> None:
    """Fill the slot of the last K or V tile of all once more."""
    from tvm import tirx

    expects = [leaf for leaf in found if leaf.operator == EXPECT and leaf.edge == "kv_load_full"]
    if not expects:
        return
    last = expects[-1]
    wait = next(leaf for leaf in reversed(found[: found.index(last)]) if leaf.operator == WAIT)
    released = with_argument(wait.statement, 1, lambda phase: phase ^ 1)
    again = tirx.SeqStmt([released, _renewed(_elected(func, last))])
    following = found[found.index(last) + 1]
    is_last = _is_last(_path(func.body, last.statement), found)
    add("load too many", last, {following.index: _first(tirx.IfThenElse(is_last, again, None))})


def _is_last(path: list[Any], found: list[Leaf]) -> Any:
    """Whether a statement of a role's loop over its tasks is executed for the last time."""
    from tvm import tirx

    tasks = next(node for node in path if type(node).__name__ == "While")
    (counter,) = loads(tasks.condition.a)
    stores = [leaf.statement for leaf in found if type(leaf.statement).__name__ == "BufferStore"]
    steps = [store.value for store in stores if key(store.buffer) == key(counter.source)]
    condition = tirx.GE(steps[-1], tasks.condition.b)
    for node in path[path.index(tasks) :]:
        if type(node).__name__ == "For":
            condition = tirx.And(condition, tirx.EQ(node.loop_var, node.min + node.extent - 1))
    return condition


def _unused_product(found: list[Leaf], add: Add) -> None:
    """Drop the wait for a role's last product, and all that uses its accumulators after it."""
    products = [leaf for leaf in found if is_product(leaf.operator)]
    if not products:
        return
    last = products[-1]
    name = next(iter(loads(last.statement.value.args[0]))).source.name
    wait = next(leaf for leaf in found if leaf.index > last.index and leaf.operator == "wgmma_wait_group")
    uses = [leaf.index for leaf in found if leaf.index > wait.index and name in str(leaf.statement)]
    add("product that nobody waits for", wait, {index: lambda _: [] for index in (wait.index, *uses)})


def _elected(func: Any, leaf: Leaf) -> Any:
    """The branch of one elected lane around a statement."""
    path = _path(func.body, leaf.statement)
    return next(node for node in reversed(path) if "elect_sync" in str(getattr(node, "condition", "")))


def _path(node: Any, statement: Any) -> list[Any]:
    """The nodes around a statement, outermost first; empty where it is not below `node`."""
    if key(node) == key(statement):
        return [node]
    for child in children(node):
        below = _path(child, statement)
        if below:
            return [node, *below]
    return []


def _renewed(statement: Any) -> Any:
    """A copy of a statement whose loops count in variables of their own."""
    import tvm
    from tvm import tirx

    twice = tirx.PrimFunc([], tirx.SeqStmt([statement, statement]))
    return tirx.transform.ConvertSSA()(tvm.IRModule({"main": twice}))["main"].body.seq[1]


def _first(statement: Any) -> Edit:
    return lambda s: [statement, s]


def _instead(statement: Any) -> Edit:
    return lambda _: [statement]


def _then(*statements: Any) -> Edit:
    return lambda s: [s, *statements]
