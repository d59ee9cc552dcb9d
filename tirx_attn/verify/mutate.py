"""Mutants of the real kernel: one synchronisation fault each, made by editing its PrimFunc.

They measure the checkers: a fault that nothing sees is a hole in a checker, or no fault at all, and then a sentence
says why. Families are systematic: every statement of a kind is mutated in every way of the family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import tvm_ffi

from tirx_attn.barriers.checker.declared import Declared
from tirx_attn.barriers.checker.rewrite import Edit, Leaf, edit, leaves, with_argument, with_slot
from tirx_attn.barriers.checker.tir import walk
from tirx_attn.verify import mutate_end, mutate_wgmma

WAIT, ARRIVE, EXPECT, COMMIT = "mbarrier_wait", "mbarrier_arrive", "mbarrier_arrive_expect_tx", "tcgen05_commit"
BAR_ARRIVE, BAR_SYNC = "bar_arrive", "bar_sync_count"
DEALLOC = "tcgen05_dealloc"
FENCES = ("tcgen05_fence", "wgmma_fence", "fence_proxy", "fence_mbarrier_init")
ARRIVALS = (ARRIVE, EXPECT, COMMIT, BAR_ARRIVE)
EVENTS = (
    WAIT, *ARRIVALS, BAR_SYNC, *FENCES, "tcgen05_wait", "cta_sync", "cp_async_bulk_commit_group",
    "cp_async_bulk_wait_group", "tile.copy_async", "tile.gemm_async", "tile.copy",
    *mutate_wgmma.WGMMA_EVENTS,
)  # fmt: skip
"""Operators whose order among each other matters."""

ACCESSES = ("tile.copy_async", "tile.gemm_async", "tile.copy")


@dataclass(frozen=True)
class Mutant:
    """A kernel with one fault.

    Attributes:
        id: family, label, source position, and a number where several statements share them.
        family: kind of edit.
        label: edge, or operator where no edge is touched; of a swap, both statements.
        edge: edge that the edit touches, or "".
        role: roles that execute the edited statement.
    """

    id: str
    family: str
    label: str
    edge: str
    role: str
    edits: dict[int, Edit] = field(repr=False)
    branches: dict[int, Callable[[Any], Any]] = field(repr=False, default_factory=dict)

    def apply(self, func: Any) -> Any:
        """The mutated PrimFunc."""
        return edit(func, self.edits, self.branches)


def mutants(func: Any) -> list[Mutant]:
    """All mutants of a PrimFunc, in program order of the edited statement."""
    from tvm import tirx

    found = [leaf for leaf in leaves(func) if leaf.warps]
    declared = Declared(func)
    made: list[Mutant] = []
    taken: dict[str, int] = {}

    def add(family: str, leaf: Leaf, edits: dict[int, Edit], branches: Any = None, label: str = "") -> None:
        edited = edit(func, edits, branches)
        if tvm_ffi.structural_equal(edited, func):
            return  # slot 0 made slot 0
        if family == "early release" and not tirx.analysis.verify_well_formed(edited, assert_mode=False):
            return  # moved out of the loop whose variable it uses
        edge = _edge(leaf, declared)
        label = label or edge or leaf.operator
        roles = dict.fromkeys(declared.role_of(warp).split()[0] for warp in leaf.warps)
        role = next(iter(roles)) if len(roles) == 1 else "all"
        base = f"{family}:{label}:{leaf.where}"
        taken[base] = taken.get(base, 0) + 1
        number = f"#{taken[base]}" if taken[base] > 1 else ""
        made.append(Mutant(base + number, family, label, edge, role, edits, branches or {}))

    # Tensor memory is freed behind the last CTA sync.
    syncs = [leaf.index for leaf in found if leaf.operator == "cta_sync"]
    freeing = syncs[-1] if any(leaf.operator == DEALLOC for leaf in found) else None
    for leaf in found:
        singles = (*_single(leaf), *mutate_wgmma.single_faults(leaf), *mutate_end.single_faults(leaf))
        for family, change in singles:
            add("TMEM freed early" if leaf.index == freeing else family, leaf, {leaf.index: change})
    for first, second in pairwise(found):
        if _may_swap(first, second):
            a, b = first.statement, second.statement
            names = [_edge(leaf, declared) or leaf.operator for leaf in (first, second)]
            add("swap", first, {first.index: _const(b), second.index: _const(a)}, label=" <-> ".join(names))
    _releases(found, add)
    _early_scores(found, add)
    _skipped_arrival(found, add)
    _wrong_split(func, found, add)
    mutate_wgmma.moved_faults(func, found, add)
    mutate_end.moved_faults(func, found, add)
    return made


def _edge(leaf: Leaf, declared: Declared) -> str:
    if leaf.edge:
        return declared.edge_name(leaf.edge)
    if leaf.operator in (BAR_ARRIVE, BAR_SYNC):
        return declared.barrier_name(1).split("[")[0]
    return ""


def _const(statement: Any) -> Edit:
    return lambda _: [statement]


def _const_all(statements: list[Any]) -> Edit:
    return lambda _: statements


def _drop(_: Any) -> list[Any]:
    return []


def _double(statement: Any) -> list[Any]:
    return [statement, statement]


def _argument(position: int, change: Callable[[Any], Any]) -> Edit:
    return lambda statement: [with_argument(statement, position, change)]


def _single(leaf: Leaf) -> Iterator[tuple[str, Edit]]:
    """Edits of one statement."""
    operator = leaf.operator
    slots = int(leaf.slots)
    if operator == WAIT:
        yield "drop wait", _drop
        yield "double wait", _double
        yield "flip phase", _argument(1, lambda phase: phase ^ 1)
    if operator in ARRIVALS:
        is_credit = "while" not in leaf.inside
        yield "drop initial credit" if is_credit else "drop arrival", _drop
        yield "double arrival", _double
    if operator in (WAIT, ARRIVE, EXPECT, COMMIT) and slots > 1:
        # A permutation of the stages could be harmless where a loop visits all of them; a constant is not.
        yield "wrong stage", lambda statement: [with_slot(statement, 0, lambda slot: slot * 0)]
    if operator == "mbarrier_init":
        yield "count + 1", _argument(1, lambda count: count + 1)
        if int(leaf.statement.value.args[1]) > 1:
            yield "count - 1", _argument(1, lambda count: count - 1)
    if operator in FENCES:
        yield "drop fence", _drop
    if operator == "tcgen05_wait":
        yield "drop wait::ld" if "wait::ld" in str(leaf.statement) else "drop wait::st", _drop
    if operator == "cp_async_bulk_commit_group":
        yield "drop commit group", _drop
    if operator == "cp_async_bulk_wait_group":
        yield "drop wait", _drop
    if operator in (BAR_ARRIVE, BAR_SYNC):
        yield "wrong barrier", _argument(0, lambda number: number + 1)
        yield "count + 1", _argument(1, lambda threads: threads + 32)
    if operator == BAR_SYNC:
        yield "drop wait", _drop
        yield "double wait", _double
    if operator == "cta_sync":
        yield "drop CTA sync", _drop
    if operator == EXPECT:
        yield "wrong byte count", _argument(1, lambda size: size + size)
        yield "wrong byte count", _argument(1, lambda size: size // 2)
    if operator == "setmaxnreg":
        yield "wrong register value", _argument(0, lambda registers: registers + 8)
        yield "wrong register value", _argument(0, lambda registers: registers - 8)
    if operator == DEALLOC:
        yield "drop dealloc", _drop


def _may_swap(first: Leaf, second: Leaf) -> bool:
    return (
        first.block == second.block
        and first.operator in EVENTS
        and second.operator in EVENTS
        and first.operator != second.operator
    )


def _releases(found: list[Leaf], add: Callable[..., None]) -> None:
    """Arrive before the last access that an arrival releases, or only after the next wait. Swaps do the neighbours."""
    for place, leaf in enumerate(found):
        if leaf.operator not in (ARRIVE, COMMIT):
            continue
        same = [other for other in found[:place] if other.warps == leaf.warps and other.operator in ACCESSES]
        if same and same[-1] is not found[place - 1]:
            early = _const_all([leaf.statement, same[-1].statement])
            add("early release", leaf, {same[-1].index: early, leaf.index: _drop})
        waits = [other for other in found[place + 2 :] if other.block == leaf.block and other.operator == WAIT]
        if waits:
            late = _const_all([waits[0].statement, leaf.statement])
            add("late release", leaf, {waits[0].index: late, leaf.index: _drop})


def _early_scores(found: list[Leaf], add: Callable[..., None]) -> None:
    """Issue the next block's QKᵀ before the wait that says the last block's S has been read."""
    products = [leaf for leaf in found if leaf.operator == "tile.gemm_async"]
    for scores in (leaf for leaf in products if "s_tmem" in leaf.statement.args[0].source.name):
        waits = [x for x in found if x.block == scores.block and x.operator == WAIT and x.index < scores.index]
        if len(waits) < 3:
            continue  # the first block of a task, which has no block before it
        moved = [waits[-1].statement, scores.statement]
        early = _const_all([*moved, waits[0].statement])
        add("S overwritten early", waits[0], {waits[0].index: early, scores.index: _drop})


def _skipped_arrival(found: list[Leaf], add: Callable[..., None]) -> None:
    """Arrive on p_o_rescale only where the rescale is not skipped."""
    for leaf in found:
        inside = [other for other in found if "branch" in other.inside and other.index < leaf.index]
        if leaf.operator == ARRIVE and inside and inside[-1].index == leaf.index - 1:
            last = inside[-1]
            add(
                "skip arrival with rescale",
                leaf,
                {leaf.index: _drop, last.index: lambda s, moved=leaf.statement: [s, moved]},
            )


def _wrong_split(func: Any, found: list[Leaf], add: Callable[..., None]) -> None:
    """Hand the first part of P over one piece too early, or too late."""
    from tvm import tirx

    hand_over = next((x for x in found if x.operator == ARRIVE and x.edge == "p_o_rescale"), None)
    conditions = [s.condition for s in walk(func.body) if type(s).__name__ == "IfThenElse"]
    for number, condition in enumerate(conditions if hand_over else ()):
        if type(condition).__name__ == "EQ" and str(condition.a) == "piece":
            for family, step in (("wrong split, early", -1), ("wrong split, late", 1)):
                add(family, hand_over, {}, {number: lambda c, d=step: tirx.EQ(c.a, c.b + d)})
