"""Integer TIR as Python runs it: expressions by substitution, and PrimFuncs of scalars, loops and one result."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def _analyzer() -> Any:
    from tvm.sym import Analyzer

    return Analyzer()


def evaluate(expression: Any, **values: int) -> int:
    """Value of an integer expression once its variables, by name, have these values."""
    if isinstance(expression, int):
        return expression
    from tvm import tirx
    from tvm_ffi import structural_map

    def value(variable: Any) -> Any:
        return tirx.IntImm("int32", values[variable.name])

    return int(_analyzer().simplify(structural_map(expression, (tirx.Var, value))))


class Thread:
    """One thread of a PrimFunc whose buffers are int32 scalars, but for the results named in `arrays`."""

    def __init__(self, cta: int, arrays: dict[str, np.ndarray]):
        self.cta, self.arrays = cta, arrays
        self.scalars: dict[Any, int] = {}

    def run(self, statement: Any) -> None:
        getattr(self, "_" + type(statement).__name__)(statement)

    def value(self, expression: Any) -> int:
        from tvm import tirx
        from tvm.ir import TensorLoad
        from tvm_ffi import structural_map

        def scalar(node: Any) -> Any:
            return tirx.IntImm("int32", self.scalars[node])

        def load(node: Any) -> Any:
            return tirx.IntImm("int32", self.scalars[node.source])

        replaced = structural_map(expression, [(TensorLoad, load)], order="pre")
        return int(_analyzer().simplify(structural_map(replaced, [(tirx.Var, scalar)])))

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
