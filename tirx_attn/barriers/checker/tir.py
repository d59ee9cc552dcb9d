"""Reading a PrimFunc: which statements are synchronisation or memory events, and of what.

Works on the PrimFunc as generated, before TVM lowers its tile primitives. Knows TIRx's operators, nothing of this
project's protocol. Names come from the buffers, source positions from the spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

BARRIER_BUFFER = re.compile(r"^ctx_barriers_(?P<name>\w+)_buf$")
TMEM_CELL_COLUMNS = 16
TMEM_QUARTERS = 4
"""A warp reaches the 32 TMEM lanes of its place in the warpgroup only."""

WARP = 32
MAX_WARPS = 16
"""Warps that a clock has room for. How many a CTA has follows from the PrimFunc: `warps_of`."""

_BINARY = {
    "Add": "({} + {})", "Sub": "({} - {})", "Mul": "({} * {})", "FloorDiv": "({} // {})", "FloorMod": "({} % {})",
    "Min": "min({}, {})", "Max": "max({}, {})", "EQ": "({} == {})", "NE": "({} != {})", "LT": "({} < {})",
    "LE": "({} <= {})", "GT": "({} > {})", "GE": "({} >= {})", "And": "({} and {})", "Or": "({} or {})",
    "BitwiseXor": "({} ^ {})", "BitwiseAnd": "({} & {})", "BitwiseOr": "({} | {})",
}  # fmt: skip

# kernel→cta, cta→warpgroup, cta→warp, warpgroup→warp, warp→thread, warpgroup→thread; threads by their warp's lane 0.
SCOPE_IDS = {1: "cta", 3: "warp // 4", 4: "warp", 5: "warp % 4", 6: "0", 8: "warp % 4 * 32"}
GRID_SCOPE = 1
WARP_LANE_SCOPE = 6
LANE_SCOPES = (WARP_LANE_SCOPE, 8)
WARPS_PER_SCOPE = {3: 4, 4: 1}
"""Scopes whose extent says how many warps a CTA has, with the warps of one of theirs."""


class Unsupported(ValueError):
    """The PrimFunc does something whose synchronisation the translator does not understand."""


class DataDependent(Exception):
    """An expression needs a value that only data can give."""


@dataclass(frozen=True)
class Site:
    """A statement of the PrimFunc.

    Attributes:
        text: what it does, in words.
        where: source position, "roles/mma.py:42".
    """

    text: str
    where: str

    def __str__(self) -> str:
        return f"{self.text} ({self.where})" if self.where else self.text


@dataclass(frozen=True)
class Region:
    """Bytes of a shared-memory buffer that one access touches, as cells of a grid laid over the buffer.

    Attributes:
        buffer: name of the buffer.
        shape: its logical shape.
        strides: (extent, stride) pairs of its tile layout, outermost first, in elements.
        offset: first element of the buffer in shared memory.
        item: bytes of an element.
        extents: extents of the access, one for each dimension.
        fine: bytes of a cell of this memory where they are fewer than usual, or 0.
    """

    buffer: str
    shape: tuple[int, ...]
    strides: tuple[tuple[int, int], ...]
    offset: int
    item: int
    extents: tuple[int, ...]
    fine: int = 0

    @property
    def cell(self) -> int:
        """Bytes of a cell."""
        size = int(np.prod(self.shape)) * self.item
        return self.fine or (TILE_CELL_BYTES if size >= TILE_CELL_BYTES else CELL_BYTES)

    @property
    def bytes(self) -> int:
        return int(np.prod(self.extents)) * self.item

    def cells(self, starts: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
        """Numbers of the touched cells. A swizzle permutes bytes inside a cell, so it does not matter here."""
        return _cells(self, starts)

    def first_byte(self, starts: tuple[int, ...]) -> int:
        """Where in shared memory the access begins."""
        return int(_addresses(self, starts).min())


CELL_BYTES = 128
PANEL_ROW_BYTES = 128
TILE_CELL_BYTES = 32 * PANEL_ROW_BYTES
"""32 rows of a panel: what one warp of a warpgroup writes of a tile of 128 rows."""


@lru_cache(maxsize=4096)
def _cells(region: Region, starts: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    return tuple(("s", int(c) * region.cell) for c in np.unique(_addresses(region, starts) // region.cell))


def _addresses(region: Region, starts: tuple[int, ...]) -> Any:
    """Byte address of each element."""
    grid = np.meshgrid(
        *(np.arange(start, start + extent) for start, extent in zip(starts, region.extents, strict=True)), indexing="ij"
    )
    linear = np.zeros(region.extents, dtype=np.int64)
    for index, extent in zip(grid, region.shape, strict=True):
        linear = linear * extent + index
    offset = np.zeros_like(linear)
    for extent, stride in reversed(region.strides):
        offset += (linear % extent) * stride
        linear //= extent
    return (region.offset + offset) * region.item


def shared_region(buffer: Any, extents: tuple[int, ...], fine: int = 0) -> Region:
    """Region of an access to a buffer in shared memory."""
    shape = tuple(int(n) for n in buffer.shape)
    layout = buffer.layout
    tile = getattr(layout, "tile_layout", layout)
    shard = getattr(tile, "shard", None)
    if shard:
        strides = tuple((int(it.extent), int(it.stride)) for it in shard)
    else:
        strides, stride = (), 1
        for extent in reversed(shape):
            strides, stride = ((extent, stride), *strides), stride * extent
    return Region(buffer.name, shape, strides, int(buffer.elem_offset), element_bits(buffer) // 8, extents, fine)


def first_byte(buffer: Any) -> int:
    """Where a buffer in shared memory begins."""
    return int(buffer.elem_offset) * element_bits(buffer) // 8


def element_bits(buffer: Any) -> int:
    """Bits of a buffer's element, from its dtype."""
    match = re.search(r"(\d+)(?!.*\d)", str(buffer.dtype))
    if match is None:
        raise ValueError(f"buffer {buffer.name} has dtype {buffer.dtype}: no width")
    return int(match.group(1))


def edge_of(buffer: Any) -> str | None:
    """Attribute name of the edge whose mbarriers a buffer holds, or None."""
    match = BARRIER_BUFFER.match(buffer.name)
    return match["name"] if match else None


def where_of(statement: Any) -> str:
    """Position of a statement in the package's source: the innermost frame that lies in it."""
    span = getattr(statement, "span", None)
    if span is None:
        return ""
    frames = [frame for frame in getattr(span, "spans", [span]) if "tirx_attn/" in str(frame.source_name.name)]
    if not frames:
        return ""
    frame = frames[-1]
    return f"{str(frame.source_name.name).rsplit('tirx_attn/', 1)[-1]}:{int(frame.line)}"


def key(node: Any) -> int:
    """Identity of a TVM object."""
    return int(node.id_)


def walk(node: Any) -> Iterator[Any]:
    """All statements below a statement, in program order."""
    yield node
    for child in children(node):
        yield from walk(child)


def warps_of(func: Any) -> int:
    """Warps of a CTA, from the extent of the warpgroup or warp ids.

    Raises:
        Unsupported: there are no such ids, or more warps than a clock has room for.
    """
    for statement in walk(func.body):
        if type(statement).__name__ == "ScopeIdDefStmt":
            definition = getattr(statement, "def")
            if definition.scope in WARPS_PER_SCOPE:
                warps = int(definition.extents[0]) * WARPS_PER_SCOPE[definition.scope]
                if warps > MAX_WARPS:
                    raise Unsupported(f"a CTA of {warps} warps: allowed are at most {MAX_WARPS}")
                return warps
    raise Unsupported("the CTA names neither its warpgroups nor its warps: how many there are is not known")


def children(node: Any) -> list[Any]:
    """Statements directly below a statement."""
    kind = type(node).__name__
    if kind == "SeqStmt":
        return list(node.seq)
    if kind in ("AttrStmt", "For", "While"):
        return [node.body]
    if kind == "IfThenElse":
        return [node.then_case] + ([node.else_case] if node.else_case is not None else [])
    return []


_OPERANDS = ("a", "b", "value", "condition", "true_value", "false_value")


def loads(node: Any) -> Iterator[Any]:
    """All buffer loads in an expression."""
    kind = type(node).__name__
    if kind == "TensorLoad":
        yield node
        for index in node.indices:
            yield from loads(index)
    elif kind == "Call":
        for argument in node.args:
            yield from loads(argument)
    elif kind not in ("IntImm", "FloatImm", "StringImm", "Var", "str", "int", "bool", "float", "NoneType"):
        for name in _OPERANDS:
            child = getattr(node, name, None)
            if child is not None:
                yield from loads(child)


def integer_expression(node: Any, names: Mapping[int, str]) -> str:
    """Python text of an integer expression over named variables and scalars.

    Raises:
        DataDependent: it reads anything else, such as registers that hold data.
    """
    kind = type(node).__name__
    if kind in _BINARY:
        return _BINARY[kind].format(integer_expression(node.a, names), integer_expression(node.b, names))
    if kind in ("IntImm", "bool", "int"):
        return str(int(getattr(node, "value", node)))
    if kind == "Var" and key(node) in names:
        return names[key(node)]
    if kind == "TensorLoad" and key(node.source) in names:
        return names[key(node.source)]
    if kind == "Cast":
        return integer_expression(node.value, names)
    if kind == "Not":
        return f"(not {integer_expression(node.a, names)})"
    if kind == "Select":
        condition, yes, no = node.condition, node.true_value, node.false_value
    elif kind == "Call" and node.op.name.endswith("if_then_else"):
        condition, yes, no = node.args
    else:
        raise DataDependent(str(node))
    yes, condition, no = (integer_expression(part, names) for part in (yes, condition, no))
    return f"({yes} if {condition} else {no})"
