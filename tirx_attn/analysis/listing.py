"""A kernel's instructions with what its control flow and its figures need: where each leads, how long it stalls."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tirx_attn.analysis.control import ENCODING_BYTES, Control, decode
from tirx_attn.runtime import sass
from tirx_attn.runtime.errors import CompileError

_JUMPS = ("BRA", "JMP")
_INDEXED_JUMPS = ("BRX", "BRXU")
_ENDS = ("EXIT", "RET")

_TARGET = re.compile(r"`\((?P<label>[^)]+)\)")
_TARGET_TABLE = re.compile(r"BRANCH_TARGETS (?P<labels>[^\"]+)")


@dataclass(frozen=True)
class Line:
    """One instruction in its kernel.

    Attributes:
        instruction: what nvdisasm says of it.
        control: its control field.
        targets: addresses that it may jump to. A call comes back, so it has none.
        falls_through: whether the next instruction may follow.
    """

    instruction: sass.Instruction
    control: Control
    targets: tuple[int, ...]
    falls_through: bool

    @property
    def address(self) -> int:
        """Of its first byte, from the start of the kernel."""
        return self.instruction.address

    @property
    def name(self) -> str:
        """Opcode without its modifiers."""
        return self.instruction.name

    @property
    def opcode(self) -> str:
        """Opcode with its modifiers."""
        return self.instruction.opcode


def listing(text: str, kernel: str, code: bytes) -> list[Line]:
    """Instructions of a kernel in address order, without the padding behind the last of them.

    Args:
        text: what nvdisasm prints for the cubin.
        kernel: name of the kernel.
        code: its encoded instructions.

    Raises:
        CompileError: text and code do not tell of the same instructions.
    """
    found = sass.instructions(text, kernel)
    if not found or len(found) * ENCODING_BYTES != len(code):
        raise CompileError(f"{kernel}: {len(found)} instructions in the disassembly, {len(code)} bytes of code")
    labels = sass.labels(text, kernel)
    lines = []
    for instruction in found:
        control = decode(code[instruction.address : instruction.address + ENCODING_BYTES])
        targets = _targets(instruction, labels)
        lines.append(Line(instruction, control, targets, _falls_through(instruction)))
    while lines and _is_padding(lines[-1]):
        lines.pop()
    return lines


def _targets(instruction: sass.Instruction, labels: dict[str, int]) -> tuple[int, ...]:
    names: list[str] = []
    if instruction.name in _JUMPS + _INDEXED_JUMPS:
        names += _TARGET.findall(instruction.operands)
        if table := _TARGET_TABLE.search(instruction.operands):
            names += re.split(r"[\s,]+", table["labels"].strip())
    return tuple(labels[name] for name in names if name in labels)


def _falls_through(instruction: sass.Instruction) -> bool:
    if instruction.guard:
        return True
    if instruction.name in _JUMPS:
        # A condition may also stand before the target, as in BRA.U !UP0, `(.L_x_1).
        return not instruction.operands.startswith("`")
    return instruction.name not in _INDEXED_JUMPS + _ENDS


def _is_padding(line: Line) -> bool:
    return line.name == "NOP" or line.targets == (line.address,)
