"""Reads the CUDA that TVM generates: which PTX runs on which warps, with which integer operands.

Helper functions in front of the kernel wrap one PTX instruction each; the kernel calls them. `Kernel.calls` finds
the calls of an instruction, and `Call.cases` the operands for every warp and loop index that can reach it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType

WARPS = 16
_HELPER = re.compile(r"__device__ [\w\s*&]*?\b(\w+)\([^{;]*\)\s*\{(.*?)\n\}", re.DOTALL)
_ASM = re.compile(r"""asm(?: volatile)?\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)""")
_LOOP = re.compile(r"for \(int (\w+) = 0; \1 < (\d+); \+\+\1\) \{$")
_IF = re.compile(r"if \((.*)\) \{$")
_NAME = re.compile(r"[A-Za-z_]\w*")


class Unknown(Exception):
    """An expression needs a value that only running the kernel gives."""


def evaluate(expression: str, values: dict[str, int]) -> int:
    """Value of a C integer expression over `values`; casts are dropped, `min` and `max` known.

    Raises:
        Unknown: it reads something that `values` does not hold.
    """
    code, names = _compile(expression)
    if names - values.keys():
        raise Unknown(expression)
    return int(eval(code, {"__builtins__": {}, "min": min, "max": max}, values))


@cache
def _compile(expression: str) -> tuple[CodeType, frozenset[str]]:
    """The expression as Python, and the variables that it reads."""
    text = re.sub(r"\(\(int\)(threadIdx|blockIdx)\.x\)", r"\1", expression)
    text = re.sub(r"\((?:uint|int|bool|uint32_t)\)", "", text)
    text = re.sub(r"\b(\w+_ptr(?:_\d+)?)\[0\]", r"\1", text)
    text = text.replace("&&", " and ").replace("||", " or ").replace("/", "//")
    text = re.sub(r"!(?!=)", " not ", text)
    if not re.fullmatch(r"[\w\s()+\-*/%<>=!&|^,~]*", text):
        raise Unknown(expression)
    names = frozenset(_NAME.findall(text)) - {"and", "or", "not", "min", "max"}
    return compile(text.strip(), expression, "eval"), names


@dataclass(frozen=True)
class Call:
    """One call of a PTX helper.

    Attributes:
        ptx: the instruction it wraps, with its operands as % numbers.
        arguments: C expressions, in order.
        conditions: (C expression, wanted outcome) of the branches around the call.
        loops: variables of the loops around the call and how often they run.
    """

    ptx: str
    arguments: tuple[str, ...]
    conditions: tuple[tuple[str, bool], ...]
    loops: tuple[tuple[str, int], ...]

    def cases(self, **ranges: int) -> Iterator[dict[str, int]]:
        """Variables of each warp and loop turn that may make the call.

        A branch on something unknown may go either way. `ranges` gives further variables, with their extents.
        """
        free = [*dict(self.loops).items(), *ranges.items()]
        for warp in range(WARPS):
            for turn in itertools.product(*(range(extent) for _, extent in free)):
                values = {"warp_id_in_cta": warp, **dict(zip((name for name, _ in free), turn, strict=True))}
                if all(_may_be(condition, wanted, values) for condition, wanted in self.conditions):
                    yield values

    def warps(self) -> set[int]:
        """The warps that may make the call."""
        return {values["warp_id_in_cta"] for values in self.cases()}


def _may_be(condition: str, wanted: bool, values: dict[str, int]) -> bool:
    try:
        return bool(evaluate(condition, values)) == wanted
    except Unknown:
        return True


class Kernel:
    """The one `__global__` function of a CUDA source."""

    def __init__(self, source: str):
        self.source = source
        start = source.rindex('extern "C" __global__')
        head, _, self.body = source[start:].partition("{\n")
        bounds = re.search(r"__launch_bounds__\(([^)]*)\)", head)
        self.launch_bounds = tuple(int(n) for n in bounds[1].split(",")) if bounds else ()
        self._ptx = {
            name: " ".join(re.findall(r'"(.*?)"', asm[1]))
            for name, body in _HELPER.findall(source[:start])
            if (asm := _ASM.search(body))
        }
        self._calls = list(self._read())

    def calls(self, instruction: str) -> list[Call]:
        """The calls of helpers whose PTX holds `instruction` (a regular expression), in program order."""
        return [call for call in self._calls if re.search(instruction, call.ptx)]

    def definitions(self, variable: str) -> list[str]:
        """The expressions that int variables of this name, or of it with a number behind it, are initialised with."""
        return re.findall(rf"\bint {variable}(?:_\d+)? = (.*);", self.body)

    def _read(self) -> Iterator[Call]:
        blocks: list[tuple[str, object]] = []
        for line in map(str.strip, self.body.splitlines()):
            closed = blocks.pop() if line.startswith("}") and blocks else None
            if line.endswith("{"):
                if loop := _LOOP.match(line):
                    blocks.append(("loop", (loop[1], int(loop[2]))))
                elif condition := _IF.match(line):
                    blocks.append(("if", (condition[1], True)))
                elif line == "} else {" and closed is not None:
                    blocks.append(("if", (closed[1][0], False)))
                else:
                    blocks.append(("block", None))
            for name, arguments in _helper_calls(line, self._ptx):
                yield Call(
                    self._ptx[name],
                    arguments,
                    tuple(fact for kind, fact in blocks if kind == "if"),
                    tuple(fact for kind, fact in blocks if kind == "loop"),
                )


def _helper_calls(line: str, helpers: dict[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for match in _NAME.finditer(line):
        if match[0] in helpers and line[match.end() : match.end() + 1] == "(":
            yield match[0], _arguments(line, match.end() + 1)


def _arguments(line: str, start: int) -> tuple[str, ...]:
    """The comma-separated arguments of a call whose parenthesis opens right before `start`."""
    parts, depth = [""], 1
    for character in line[start:]:
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return tuple(part.strip() for part in parts)
        if character == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += character
    raise ValueError(f"no end of the call in {line!r}")


def arguments_of(expression: str) -> tuple[str, ...]:
    """The arguments of the call that `expression` is."""
    return _arguments(expression, expression.index("(") + 1)
