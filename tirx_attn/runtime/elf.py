"""The parts of a cubin's ELF file that tell what a kernel needs."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from tirx_attn.runtime.errors import CompileError

# Attribute codes of .nv.info sections, with the kinds of their values.
_FRAME_SIZE = 0x11
_REGISTERS = 0x2F
_BARRIERS = 0x4C
_SIZED_VALUE = 4

SYSTEM_SMEM = 1024
"""Bytes that the system keeps at the start of every CTA's shared memory; .nv.shared sections count them."""

_NVIDIA_GPU = 190
"""Machine number in the ELF header of a cubin."""

_NOBITS = 8
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True)
class Section:
    """One ELF section: its name, its bytes (none where the file holds none) and its size in memory."""

    name: str
    data: bytes
    size: int


@dataclass(frozen=True)
class KernelFacts:
    """What the ELF file says about one kernel. Sizes in bytes; `frame` is local memory per thread."""

    name: str
    registers: int
    frame: int
    barriers: int
    static_smem: int
    code: int


def sections(image: bytes) -> list[Section]:
    """All sections of a GPU's 64-bit little-endian ELF file.

    Raises:
        CompileError: `image` is no such file or is cut short.
    """
    if image[:6] != b"\x7fELF\x02\x01":
        raise CompileError("the machine code is not a 64-bit ELF file")
    if int.from_bytes(image[0x12:0x14], "little") != _NVIDIA_GPU:
        raise CompileError("the machine code is not for an NVIDIA GPU")
    try:
        (table,) = struct.unpack_from("<Q", image, 0x28)
        count, names = struct.unpack_from("<HH", image, 0x3C)
        headers = [_SECTION_HEADER.unpack_from(image, table + i * _SECTION_HEADER.size) for i in range(count)]
        found = []
        for name, kind, _, _, offset, size, *_ in headers:
            data = b"" if kind == _NOBITS else image[offset : offset + size]
            if kind != _NOBITS and len(data) != size:
                raise CompileError("the machine code is cut short")
            start = headers[names][4] + name
            found.append(Section(image[start : image.index(b"\0", start)].decode(), data, size))
    except (struct.error, IndexError, ValueError) as error:
        raise CompileError(f"the machine code is not a readable ELF file: {error}") from error
    return found


def kernels(image: bytes) -> list[KernelFacts]:
    """One entry per kernel of a cubin, in file order."""
    table = {section.name: section for section in sections(image)}
    names = _symbol_names(table)
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    for code, value in _attributes(table.get(".nv.info")):
        if code in (_REGISTERS, _FRAME_SIZE):
            symbol, number = struct.unpack("<II", value)
            (registers if code == _REGISTERS else frames)[names[symbol]] = number
    found = []
    for section in table.values():
        if not section.name.startswith(".text."):
            continue
        name = section.name[len(".text.") :]
        own = table.get(f".nv.info.{name}")
        if own is None:
            continue  # a device function, not a kernel
        barriers = [value[0] for code, value in _attributes(own) if code == _BARRIERS]
        shared = table.get(f".nv.shared.{name}")
        found.append(
            KernelFacts(
                name=name,
                registers=registers[name],
                frame=frames.get(name, 0),
                barriers=barriers[0] if barriers else 0,
                static_smem=max(0, shared.size - SYSTEM_SMEM) if shared else 0,
                code=section.size,
            )
        )
    return found


def assembler_version(image: bytes) -> str:
    """Release of the assembler that made the code, such as 13.2.78; empty where the file does not tell."""
    return _assembler_note(image, rb"release [\d.]+, V([\d.]+)")


def architecture(image: bytes) -> str:
    """Architecture that the assembler was told, such as sm_100a; empty where the file does not tell."""
    return _assembler_note(image, rb"-arch[ =]+(sm_\w+)")


def code(image: bytes, kernel: str) -> bytes:
    """Encoded instructions of one kernel; empty where there is no such kernel."""
    return next((section.data for section in sections(image) if section.name == f".text.{kernel}"), b"")


def _assembler_note(image: bytes, pattern: bytes) -> str:
    for section in sections(image):
        if section.name == ".note.nv.tkinfo":
            match = re.search(pattern, section.data)
            return match.group(1).decode() if match else ""
    return ""


def _symbol_names(table: dict[str, Section]) -> list[str]:
    text = table[".strtab"].data
    names = []
    for name, *_ in _SYMBOL.iter_unpack(table[".symtab"].data):
        names.append(text[name : text.index(b"\0", name)].decode())
    return names


def _attributes(section: Section | None) -> list[tuple[int, bytes]]:
    """Code and value of each attribute: two inline bytes, or a sized value padded to four."""
    found: list[tuple[int, bytes]] = []
    data = section.data if section else b""
    position = 0
    while position + 4 <= len(data):
        kind, code, short = struct.unpack_from("<BBH", data, position)
        value = data[position + 2 : position + 4]
        position += 4
        if kind == _SIZED_VALUE:
            value = data[position : position + short]
            position += -(-short // 4) * 4
        found.append((code, value))
    return found
