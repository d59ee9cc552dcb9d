"""Integer TIR as Python runs it: expressions of variables, and PrimFuncs of scalars, loops and one result."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Min": min,
    "Max": max,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
    "And": operator.and_,
    "Or": operator.or_,
}


@cache
def _analyzer() -> Any:
    from tvm.sym import Analyzer

    return Analyzer()


def simplify(expression: Any) -> Any:
    """The expression as a TVM pass may rewrite it."""
    return expression if isinstance(expression, int) else _analyzer().simplify(expression)


def evaluate(expression: Any, **values: int) -> int:
    """Value of an integer expression once its variables, by name, have these values.

    Raises:
        OverflowError: int32 arithmetic of some part of it wraps, which C leaves undefined. That of uint32 may wrap.
    """
    return expression if isinstance(expression, int) else _value(expression, lambda variable: values[variable.name])


def _value(node: Any, scalar: Callable[[Any], int]) -> int:
    """Value of a node; `scalar` has those of variables and of buffers that hold one scalar."""
    kind = type(node).__name__
    if kind == "IntImm":
        return int(node.value)
    if kind == "Var":
        return scalar(node)
    if kind == "TensorLoad":
        return scalar(node.source)
    if kind == "Cast":
        return _wrapped(_value(node.value, scalar), str(node.ty))
    if kind == "Select":
        return _value(node.true_value if _value(node.condition, scalar) else node.false_value, scalar)
    if kind == "Not":
        return not _value(node.a, scalar)
    value = OPERATIONS[kind](_value(node.a, scalar), _value(node.b, scalar))
    wrapped = _wrapped(value, str(node.ty))
    if wrapped != value and str(node.ty) == "int32":
        raise OverflowError(f"{node} is {value}")
    return wrapped


def _wrapped(value: int, kind: str) -> int:
    low, size = {"int32": (-(2**31), 2**32), "uint32": (0, 2**32), "bool": (0, 2)}[kind]
    return (value - low) % size + low


class Thread:
    """One thread of a PrimFunc whose buffers are int32 scalars, but for the results named in `arrays`."""

    def __init__(self, cta: int, arrays: dict[str, np.ndarray]):
        self.cta, self.arrays = cta, arrays
        self.scalars: dict[Any, int] = {}

    def run(self, statement: Any) -> None:
        getattr(self, "_" + type(statement).__name__)(statement)

    def value(self, expression: Any) -> int:
        return _value(expression, self.scalars.__getitem__)

    def _AttrStmt(self, s: Any) -> None:
        self.run(s.body)

    def _SeqStmt(self, s: Any) -> None:
        for statement in s.seq:
            self.run(statement)

    def _ScopeIdDefStmt(self, s: Any) -> None:
        scope = getattr(s, "def")  # a reserved word as an attribute
        is_cta = scope.def_ids[0].name == "cta"
        self.scalars[scope.def_ids[0]] = self.cta if is_cta else 0

    def _AllocBuffer(self, s: Any) -> None:
        pass

    def _Bind(self, s: Any) -> None:
        self.scalars[s.var] = self.value(s.value)

    def _BufferStore(self, s: Any) -> None:
        value = self.value(s.value)
        if s.buffer.name in self.arrays:
            self.arrays[s.buffer.name][tuple(self.value(index) for index in s.indices)] = value
        else:
            self.scalars[s.buffer] = value

    def _While(self, s: Any) -> None:
        while self.value(s.condition):
            self.run(s.body)

    def _IfThenElse(self, s: Any) -> None:
        if self.value(s.condition):
            self.run(s.then_case)
        elif s.else_case is not None:
            self.run(s.else_case)
