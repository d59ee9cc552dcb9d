"""WGMMA as events: which bytes of shared memory an instruction reads, and which registers it holds until its wait.

A matrix descriptor is an address in units of 16 bytes, with the distances between swizzle atoms beside it. In the
skeleton a descriptor is that address; what stands beside it is known where the descriptor was encoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tirx_attn.barriers.checker.tir import (
    WARP,
    Unsupported,
    element_bits,
    first_byte,
    key,
    loads,
    shared_region,
    where_of,
)

UNIT = 16
"""Bytes that the address field of a descriptor counts in."""

ATOM_ROWS = 8
ATOM_ROW_BYTES = 128
ATOM_BYTES = ATOM_ROWS * ATOM_ROW_BYTES
"""A swizzle permutes 16-byte pieces inside an atom: 8 rows of 128 bytes."""

SWIZZLE_128B = 3
ROWS = 64
DEPTH = 16
"""M and K of an instruction on 16-bit elements."""

_NAME = re.compile(r"wgmma_\w+_(ss|rs)")
_SHAPE = re.compile(rf"m{ROWS}n(\d+)k{DEPTH}")
_REGISTER_FENCE = re.compile(
    r"\s*__forceinline__ __device__ void fence_register\(float& r\) "
    r'\{\s+asm volatile\("" : "\+f"\(r\) :: "memory"\);\s+\}\s*'
)


@dataclass(frozen=True)
class Operand:
    """What an instruction reads through a descriptor.

    Attributes:
        buffer: name of the buffer that the descriptor was encoded for.
        first, end: its bytes in shared memory.
        cell: bytes of a cell of that buffer.
        atoms: byte offsets of the swizzle atoms from the one that the descriptor points into.
        inside: how far into an atom the descriptor may point: into its first row where rows hold the K dimension.
    """

    buffer: str
    first: int
    end: int
    cell: int
    atoms: tuple[int, ...]
    inside: int

    def cells(self, address: int) -> tuple[tuple[str, int], ...] | None:
        """Numbers of the cells that are read; None where they do not lie in the buffer, or where no atom begins."""
        return _cells(self, address)


@lru_cache(maxsize=4096)
def _cells(operand: Operand, address: int) -> tuple[tuple[str, int], ...] | None:
    at = address * UNIT
    base = at // ATOM_BYTES * ATOM_BYTES
    starts = [base + offset for offset in operand.atoms]
    if at - base > operand.inside or min(starts) < operand.first or max(starts) + ATOM_BYTES > operand.end:
        return None
    return tuple(("s", number * operand.cell) for number in sorted({start // operand.cell for start in starts}))


@dataclass(frozen=True)
class Descriptor:
    """What a descriptor holds beside its address: the buffer, and the distances between atoms in bytes."""

    buffer: Any
    leading: int
    stride: int


@dataclass(frozen=True)
class _Instruction:
    """An mma_async: its accumulators, A in registers or None, descriptors with the operands that they stand for."""

    accumulators: list[Any]
    a: list[Any]
    operands: list[tuple[Any, int, bool]]


def scan(t: Any, call: Any) -> None:
    """First pass: note descriptors and the registers of products."""
    name = _name(call)
    if name == "wgmma_encode_matrix_descriptor":
        target, source = (_address_of(argument) for argument in call.args[:2])
        leading, stride, swizzle = (int(argument) for argument in call.args[2:5])
        found = Descriptor(source.source, leading * UNIT, stride * UNIT)
        if swizzle != SWIZZLE_128B or not source.source.scope().startswith("shared"):
            raise Unsupported(f"descriptor of {source.source.name}, swizzle {swizzle}: allowed is shared memory, 128B")
        if t.descriptors.setdefault(key(target.source), found) != found:
            raise Unsupported(f"{target.source.name} is encoded twice: allowed is once")
        t.declare_scalar(target.source)
    elif _NAME.fullmatch(name):
        parts = _parse(call)
        t.accumulators.add(_root(t, parts.accumulators))
        if parts.a:
            t.inputs.add(_root(t, parts.a))


def encode(t: Any, s: Any, call: Any, lanes: int) -> None:
    target, source = (_address_of(argument) for argument in call.args[:2])
    number = t.region(shared_region(source.source, (1,) * len(source.indices)))
    starts = ", ".join(t.expression(index) for index in source.indices)
    t.emit(f"{t.names[key(target.source)]} = m.address({number}, ({starts},))")


def check_store(t: Any, statement: Any) -> None:
    """Raise Unsupported unless a descriptor is set to itself plus an offset."""
    if _descriptor(t, statement.value) != key(statement.buffer):
        raise Unsupported(f"{statement.buffer.name} at {where_of(statement)}: allowed is to add an offset to it")


def is_product(name: str) -> bool:
    """Whether an operator is an mma_async."""
    return _NAME.fullmatch(name) is not None


def product(t: Any, s: Any, call: Any, lanes: int) -> None:
    """Translate an mma_async."""
    if lanes != WARP:
        raise Unsupported(f"wgmma at {where_of(s)} by one thread: allowed are whole warps")
    parts = _parse(call)
    registers = [_root(t, parts.accumulators)] + ([_root(t, parts.a)] if parts.a else [])
    names = [t.root_names[root] for root in registers]
    reads, sources = [], names[1:]
    for node, extent, by_rows in parts.operands:
        descriptor = t.descriptors[_descriptor(t, node)]
        sources.append(descriptor.buffer.name)
        reads.append(f"({t.expression(node)}, {t.operand(_operand(t, descriptor, extent, by_rows))})")
    site = t.site(f"WGMMA {names[0]} from {' and '.join(sources)}", s)
    t.emit(f"m.wgmma(warp, {tuple(names)!r}, ({', '.join(reads)},), {site})")


def register_fence(t: Any, s: Any, call: Any, lanes: int) -> None:
    """Translate the one function that may be called: an empty asm that names a register."""
    name, register, source = (call.args[0].value, call.args[1], call.args[-1].value)
    if name != "fence_register" or len(call.args) != 3 or not _REGISTER_FENCE.fullmatch(source):
        raise Unsupported(f"call of function {name}: allowed is fence_register, an empty asm")
    root = t.roots.get(key(register.source))
    if root in t.accumulators:
        t.emit(f"m.pin(warp, {t.root_names[root]!r}, {where_of(s)!r})")


def wait_group(t: Any, s: Any, call: Any, lanes: int) -> None:
    t.emit(f"m.wait_group(warp, {t.expression(call.args[0])})")


def _name(call: Any) -> str:
    return str(call.op.name).removeprefix("tirx.").removeprefix("cuda.").removeprefix("ptx.")


def _address_of(node: Any) -> Any:
    """The load whose address is taken."""
    (load,) = loads(node)
    return load


def _root(t: Any, registers: list[Any]) -> int:
    roots = {t.roots.get(key(register.source)) for register in registers if type(register).__name__ == "TensorLoad"}
    if len(roots) != 1 or None in roots:
        raise Unsupported("wgmma on registers of several arrays: allowed is one array")
    return int(roots.pop())


def _parse(call: Any) -> _Instruction:
    words = [argument.value for argument in call.args if type(argument).__name__ == "StringImm"]
    shape = next((match for word in words if (match := _SHAPE.fullmatch(word))), None)
    if shape is None or "f32" not in words or not {"f16", "bf16"} & set(words):
        raise Unsupported(f"wgmma {'.'.join(words)}: allowed are 16-bit elements and f32 accumulators")
    columns = int(shape[1])
    registers, rest = list(call.args[: columns // 2]), list(call.args[columns // 2 :])
    # Behind the operands: scale-d, two signs, then which operands in shared memory are transposed.
    if _name(call).endswith("_ss"):
        a_turned, b_turned = (int(argument) for argument in rest[5:7])
        return _Instruction(registers, [], [(rest[0], ROWS, not a_turned), (rest[1], columns, not b_turned)])
    return _Instruction(registers, rest[:4], [(rest[4], columns, not int(rest[8]))])


def _descriptor(t: Any, node: Any) -> int | None:
    """The descriptor that an expression adds offsets to."""
    if type(node).__name__ == "Add":
        found = {_descriptor(t, part) for part in (node.a, node.b)} - {None}
        if len(found) != 1:
            raise Unsupported(f"descriptor {node}: allowed is a descriptor and offsets that are added")
        return found.pop()
    if type(node).__name__ == "TensorLoad" and key(node.source) in t.descriptors:
        return key(node.source)
    if any(key(load.source) in t.descriptors for load in loads(node)):
        raise Unsupported(f"descriptor {node}: allowed is a descriptor and offsets that are added")
    return None


def _operand(t: Any, descriptor: Descriptor, extent: int, by_rows: bool) -> Operand:
    """An operand of `extent` rows or columns. By rows: each holds a step of K; else each row of K holds columns."""
    buffer = descriptor.buffer
    region = shared_region(buffer, tuple(int(n) for n in buffer.shape), t.fine_cell(buffer))
    if by_rows:
        atoms = [group * descriptor.stride for group in range(extent // ATOM_ROWS)]
        inside = ATOM_ROW_BYTES - DEPTH * element_bits(buffer) // 8
    else:
        panels = -(-extent * element_bits(buffer) // 8 // ATOM_ROW_BYTES)
        groups = range(DEPTH // ATOM_ROWS)
        atoms = [panel * descriptor.leading + group * descriptor.stride for panel in range(panels) for group in groups]
        inside = 0
    first = first_byte(buffer)
    return Operand(buffer.name, first, first + region.bytes, region.cell, tuple(atoms), inside)
