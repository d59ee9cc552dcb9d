"""Editing a PrimFunc statement by statement: for the mutants, and for whoever tries a protocol change on the IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tirx_attn.barriers.checker.memory import WARPS
from tirx_attn.barriers.checker.tir import (
    SCOPE_IDS,
    DataDependent,
    children,
    edge_of,
    integer_expression,
    key,
    loads,
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
        inside: what encloses it, outermost first: "for", "while", "branch" (on data), "if".
    """

    index: int
    statement: Any
    operator: str
    edge: str
    warps: tuple[int, ...]
    where: str
    inside: tuple[str, ...]


def leaves(func: Any) -> list[Leaf]:
    """All leaves of a PrimFunc, in program order."""
    found: list[Leaf] = []
    ids: dict[int, str] = {}

    def visit(node: Any, warps: tuple[int, ...], inside: tuple[str, ...]) -> None:
        kind = type(node).__name__
        if kind == "ScopeIdDefStmt":
            definition = getattr(node, "def")
            ids[key(definition.def_ids[0])] = SCOPE_IDS[definition.scope]
        if kind == "IfThenElse":
            yes, no, name = _split(node.condition, warps, ids)
            visit(node.then_case, yes, (*inside, name))
            if node.else_case is not None:
                visit(node.else_case, no, (*inside, name))
        elif children(node):
            loop = [kind.lower()] if kind in ("For", "While") else []
            for child in children(node):
                visit(child, warps, (*inside, *loop))
        else:
            found.append(Leaf(len(found), node, _operator(node), _edge(node), warps, where_of(node), inside))

    visit(func.body, tuple(range(WARPS)), ())
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
        return warps, warps, "branch" if "any_sync" in text else "if"


def _operator(node: Any) -> str:
    if type(node).__name__ == "TilePrimitiveCall":
        return str(node.op.name).removeprefix("tirx.")
    value = getattr(node, "value", None)
    if type(node).__name__ == "Evaluate" and value is not None and hasattr(value, "op"):
        return str(value.op.name).removeprefix("tirx.").removeprefix("cuda.").removeprefix("ptx.")
    return ""


def _edge(node: Any) -> str:
    if type(node).__name__ != "Evaluate":
        return ""
    return next((edge for load in loads(node.value) if (edge := edge_of(load.source))), "")


Edit = Callable[[Any], Sequence[Any]]
"""Takes a leaf's statement, returns the statements that replace it (none drops it)."""


def edit(func: Any, edits: dict[int, Edit]) -> Any:
    """A copy of a PrimFunc with some leaves replaced, by leaf index."""
    from tvm import tirx

    counter = iter(range(1 << 30))

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
            yes = _join(rebuild(node.then_case))
            no = _join(rebuild(node.else_case)) if node.else_case is not None else None
            return [tirx.IfThenElse(node.condition, yes, no, node.span)]
        change = edits.get(next(counter))
        return list(change(node)) if change else [node]

    return func.with_body(_join(rebuild(func.body)))


def _join(statements: list[Any]) -> Any:
    from tvm import tirx

    if not statements:
        return tirx.Evaluate(0)
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def replace_call(statement: Any, position: int, change: Callable[[Any], Any]) -> Any:
    """An `Evaluate(call)` with one argument of the call changed."""
    import tvm
    from tvm import tirx

    call = statement.value
    arguments = list(call.args)
    arguments[position] = change(arguments[position])
    return tirx.Evaluate(tvm.ir.Call(call.ty, call.op, arguments, call.attrs, call.ty_args, call.span), statement.span)
