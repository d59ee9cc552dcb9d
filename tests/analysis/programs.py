"""Little programs for the analysis: one instruction a line, `name:` for a label."""

from __future__ import annotations

from tirx_attn.analysis.control import ENCODING_BYTES
from tirx_attn.analysis.listing import Line, listing


def encoding(stall: int = 0, yield_bit: int = 0, write: int = 7, read: int = 7, waits: int = 0) -> bytes:
    """16 bytes with a control field and nothing else."""
    fields = stall | yield_bit << 4 | write << 5 | read << 8 | waits << 11
    return (fields << 105).to_bytes(ENCODING_BYTES, "little")


def disassembly(program: str) -> tuple[str, int]:
    """What nvdisasm would print for a program, and its number of instructions."""
    text = ['\t.section\t.text.k,"ax",@progbits', ".text.k:"]
    count = 0
    for line in filter(None, map(str.strip, program.splitlines())):
        if line.endswith(":"):
            text.append(line)
        else:
            text.append(f"        /*{count * ENCODING_BYTES:04x}*/                   {line} ;")
            count += 1
    return "\n".join(text), count


def assemble(program: str, stall: int = 1) -> list[Line]:
    """The listing of a program; each instruction stalls for `stall` cycles."""
    text, count = disassembly(program)
    return listing(text, "k", encoding(stall) * count)
