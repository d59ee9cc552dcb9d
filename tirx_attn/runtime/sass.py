"""Reads nvdisasm's text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FUNCTION = re.compile(r"^\.text\.(?P<name>\S+):\s*$")
_LABEL = re.compile(r"^(?P<name>\.?[$\w]+(?:\.[$\w]+)*):\s*$")
_INSTRUCTION = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:@(?P<guard>!?U?P[T0-9])\s+)?"
    r"(?P<opcode>[A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)\s*(?P<operands>[^;]*);"
)


@dataclass(frozen=True)
class Instruction:
    """One machine instruction.

    Attributes:
        address: of its first byte, from the start of the kernel.
        opcode: with its modifiers, such as MUFU.EX2.
        operands: as nvdisasm writes them.
        guard: predicate under which it takes effect, such as !P0; empty where it always does.
    """

    address: int
    opcode: str
    operands: str
    guard: str = ""

    @property
    def name(self) -> str:
        """Opcode without its modifiers: LDL of LDL.LU.64."""
        return self.opcode.partition(".")[0]


def instructions(text: str, kernel: str) -> list[Instruction]:
    """Instructions of one kernel in address order."""
    return [
        Instruction(int(found["address"], 16), found["opcode"], found["operands"].strip(), found["guard"] or "")
        for line in _lines(text, kernel)
        if (found := _INSTRUCTION.match(line))
    ]


def labels(text: str, kernel: str) -> dict[str, int]:
    """Address of each label of one kernel; one behind the last instruction has none."""
    found: dict[str, int] = {}
    open_names: list[str] = []
    for line in _lines(text, kernel):
        if label := _LABEL.match(line):
            open_names.append(label["name"])
        elif instruction := _INSTRUCTION.match(line):
            found |= dict.fromkeys(open_names, int(instruction["address"], 16))
            open_names.clear()
    return found


def _lines(text: str, kernel: str) -> Iterator[str]:
    inside = False
    for line in text.splitlines():
        if function := _FUNCTION.match(line):
            inside = function["name"] == kernel
        elif inside:
            yield line


def spill_instructions(code: list[Instruction]) -> int:
    """Accesses to local memory: register spills, and arrays that could not be kept in registers."""
    return sum(instruction.name in ("LDL", "STL") for instruction in code)


def register_requests(code: list[Instruction]) -> tuple[int, ...]:
    """Registers per thread that each setmaxnreg asks for, in address order; none where ptxas dropped them."""
    values = []
    for instruction in code:
        if instruction.name == "USETMAXREG":
            number = re.search(r"0x[0-9a-f]+|\b\d+\b", instruction.operands)
            if number:
                values.append(int(number.group(), 0))
    return tuple(values)
