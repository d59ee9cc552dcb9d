"""Editing a PrimFunc statement by statement: for the mutants, and for whoever tries a protocol change on the IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tirx_attn.barriers.checker.tir import (
    SCOPE_IDS,
    DataDependent,
    children,
    edge_of,
    integer_expression,
    key,
    loads,
    warps_of,
    where_of,
)


@dataclass(frozen=True)
class Leaf:
    """A statement without statements below it.

    Attributes:
        index: its number in program order; `edit` refers to it by this.
        statement: the TIR statement.
        operator: name of the operator it calls, "" for others ("mbarrier_wait", "tile.copy_async", ...).
        edge: attribute name of the edge whose mbarrier it uses, or "".
        warps: warps that can reach it.
        where: position in the package's source.
        slots: slots of that edge, 0 without one.
        block: number of the statement sequence it stands in.
        inside: what encloses it, outermost first: "for", "while", "branch" (on data), "if".
    """

    index: int
    statement: Any
    operator: str
    edge: str
    warps: tuple[int, ...]
    where: str
    slots: int
    block: int
    inside: tuple[str, ...]


def leaves(func: Any) -> list[Leaf]:
    """All leaves of a PrimFunc, in program order. A leaf that no warp can reach has no warps."""
    found: list[Leaf] = []
    ids: dict[int, str] = {}
    blocks = iter(range(1 << 30))

    def visit(node: Any, warps: tuple[int, ...], inside: tuple[str, ...], block: int) -> None:
        kind = type(node).__name__
        if kind == "ScopeIdDefStmt":
            definition = getattr(node, "def")
            ids[key(definition.def_ids[0])] = SCOPE_IDS[definition.scope]
        if kind == "Bind" and type(node.value).__name__ == "IntImm":
            ids[key(node.var)] = str(int(node.value))
        if kind == "IfThenElse":
            yes, no, name = _split(node.condition, warps, ids)
            visit(node.then_case, yes, (*inside, name), next(blocks))
            if node.else_case is not None:
                visit(node.else_case, no, (*inside, name), next(blocks))
        elif children(node):
            loop = [kind.lower()] if kind in ("For", "While") else []
            if loop:
                block = next(blocks)
            for child in children(node):
                visit(child, warps, (*inside, *loop), block)
        else:
            edge, slots = _edge(node)
            found.append(
                Leaf(len(found), node, _operator(node), edge, warps, where_of(node), slots, block, inside)
            )  # fmt: skip

    visit(func.body, tuple(range(warps_of(func))), (), next(blocks))
    return found


def _split(condition: Any, warps: tuple[int, ...], ids: dict[int, str]) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Warps that take a branch and those that do not; both where it does not depend on the warp alone."""
    try:
        text = integer_expression(condition, ids)
        yes = tuple(w for w in warps if eval(text, {"warp": w, "cta": 0, "min": min, "max": max}))
        return yes, tuple(w for w in warps if w not in yes), "if"
    except DataDependent:
        text = str(condition)
        if "thread_rank" in text:
            return (0,), warps, "if"
        if "elect_sync" in text:
            return warps, (), "if"
        return warps, warps, "branch" if "any_sync" in text else "if"


def _operator(node: Any) -> str:
    if type(node).__name__ == "TilePrimitiveCall":
        return str(node.op.name).removeprefix("tirx.")
    value = getattr(node, "value", None)
    if type(node).__name__ == "Evaluate" and value is not None and hasattr(value, "op"):
        return str(value.op.name).removeprefix("tirx.").removeprefix("cuda.").removeprefix("ptx.")
    return ""


def _edge(node: Any) -> tuple[str, int]:
    if type(node).__name__ == "Evaluate":
        for load in loads(node.value):
            edge = edge_of(load.source)
            if edge:
                return edge, int(load.source.shape[0])
    return "", 0


Edit = Callable[[Any], Sequence[Any]]
"""Takes a leaf's statement, returns the statements that replace it (none drops it)."""


def edit(func: Any, edits: dict[int, Edit], branches: dict[int, Callable[[Any], Any]] | None = None) -> Any:
    """A copy of a PrimFunc with some leaves replaced, and some branch conditions, both by number in program order."""
    from tvm import tirx

    counter, branch_counter = iter(range(1 << 30)), iter(range(1 << 30))

    def rebuild(node: Any) -> list[Any]:
        kind = type(node).__name__
        if kind == "SeqStmt":
            return [new for child in node.seq for new in rebuild(child)]
        if kind == "For":
            return [
                tirx.For(node.loop_var, node.min, node.extent, node.kind, _join(rebuild(node.body)),
                         node.thread_binding, node.annotations, node.step, node.span)
            ]  # fmt: skip
        if kind == "While":
            return [tirx.While(node.condition, _join(rebuild(node.body)), node.span)]
        if kind == "AttrStmt":
            return [tirx.AttrStmt(node.node, node.attr_key, node.value, _join(rebuild(node.body)), node.span)]
        if kind == "IfThenElse":
            new_condition = (branches or {}).get(next(branch_counter))
            condition = new_condition(node.condition) if new_condition else node.condition
            yes = _join(rebuild(node.then_case))
            no = _join(rebuild(node.else_case)) if node.else_case is not None else None
            return [tirx.IfThenElse(condition, yes, no, node.span)]
        change = edits.get(next(counter))
        return list(change(node)) if change else [node]

    return func.with_body(_join(rebuild(func.body)))


def _join(statements: list[Any]) -> Any:
    from tvm import tirx

    if not statements:
        return tirx.Evaluate(0)
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def with_argument(statement: Any, position: int, change: Callable[[Any], Any]) -> Any:
    """An `Evaluate(call)` with one argument of the call changed."""
    from tvm import tirx

    return tirx.Evaluate(_with_argument(statement.value, position, change), statement.span)


def with_slot(statement: Any, position: int, change: Callable[[Any], Any]) -> Any:
    """An `Evaluate(call)` whose argument at `position` addresses another slot of the same mbarrier buffer."""

    def address(node: Any) -> Any:
        if type(node).__name__ == "Call":
            return _with_argument(node, 0, address)
        return node.source[change(node.indices[0])]

    return with_argument(statement, position, address)


def _with_argument(call: Any, position: int, change: Callable[[Any], Any]) -> Any:
    import tvm

    arguments = list(call.args)
    arguments[position] = change(arguments[position])
    return tvm.ir.Call(call.op, arguments, call.attrs, call.ty_args, call.span, call.ty)
