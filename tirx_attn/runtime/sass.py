"""Reads nvdisasm's text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FUNCTION = re.compile(r"^\.text\.(?P<name>\S+):\s*$")
_INSTRUCTION = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:@!?U?P[T0-9]\s+)?(?P<opcode>[A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)"
    r"\s*(?P<operands>[^;]*);"
)


@dataclass(frozen=True)
class Instruction:
    """One machine instruction; the guard predicate is left out of `opcode` and `operands`."""

    address: int
    opcode: str
    operands: str

    @property
    def name(self) -> str:
        """Opcode without its modifiers: LDL of LDL.LU.64."""
        return self.opcode.partition(".")[0]


def instructions(text: str, kernel: str) -> list[Instruction]:
    """Instructions of one kernel in address order."""
    found: list[Instruction] = []
    inside = False
    for line in text.splitlines():
        if function := _FUNCTION.match(line):
            inside = function["name"] == kernel
        elif inside and (match := _INSTRUCTION.match(line)):
            found.append(Instruction(int(match["address"], 16), match["opcode"], match["operands"].strip()))
    return found


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
