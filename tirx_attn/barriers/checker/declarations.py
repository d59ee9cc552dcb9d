"""First pass over a PrimFunc: the scalars that control flow may use, and what the names of memory stand for."""

from __future__ import annotations

import re
from typing import Any

from tirx_attn.barriers.checker import wgmma
from tirx_attn.barriers.checker.operators import warp_rows
from tirx_attn.barriers.checker.tir import PANEL_ROW_BYTES, TILE_CELL_BYTES, edge_of, first_byte, key, walk

_WORDS = {"warp", "min", "max", "if", "else", "not", "and", "or"}


class Declarations:
    """What a PrimFunc declares.

    Attributes:
        names: variable or scalar -> its name in the skeleton.
        roots, root_names: registers -> the array that they are a view of; array -> its name.
        fragments: arrays that a tcgen05.ld fills.
        accumulators, inputs: arrays that WGMMAs accumulate in, and take A from.
        descriptors: scalars that hold a matrix descriptor.
        fine_cells: where a shared buffer begins -> bytes of its cells, where they are fewer than usual.
        barriers: edge attribute name -> slots.
        same: names in the skeleton whose values do not depend on the task, the lengths or data: ids, counters of loops
            with constant bounds, constants.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.roots: dict[int, int] = {}
        self.root_names: dict[int, str] = {}
        self.fragments: set[int] = set()
        self.accumulators: set[int] = set()
        self.inputs: set[int] = set()
        self.descriptors: dict[int, wgmma.Descriptor] = {}
        self.fine_cells: dict[int, int] = {}
        self.barriers: dict[str, int] = {}
        self.same: set[str] = set()
        self.sequence = 0

    def scan(self, node: Any) -> None:
        """Find scalars that control flow may use, aliases of registers, and registers that a unit fills or reads."""
        for statement in walk(node):
            kind = type(statement).__name__
            if kind == "AllocBuffer":
                self._declare(statement.buffer, statement.buffer)
            elif kind == "DeclBuffer":
                source = getattr(statement.data, "args", [None])[0]
                self._declare(statement.buffer, source if hasattr(source, "scope") else statement.buffer)
                name = edge_of(statement.buffer)
                if name is not None:
                    self.barriers[name] = int(statement.buffer.shape[0])
        for statement in walk(node):
            if type(statement).__name__ == "TilePrimitiveCall":
                self._scan_tile(statement)
            elif type(statement).__name__ == "Evaluate" and hasattr(statement.value, "op"):
                wgmma.scan(self, statement.value)

    def _scan_tile(self, statement: Any) -> None:
        if not statement.op.name.startswith("tirx.tile.copy"):
            return
        target, source = statement.args[:2]
        scopes = [region.source.scope().split(".")[0] for region in (target, source)]
        if scopes == ["local", "tmem"]:
            self.fragments.add(self.roots[key(target.source)])
        elif scopes == ["shared", "local"]:
            cell = warp_rows(target, source)[1] * PANEL_ROW_BYTES
            if cell < TILE_CELL_BYTES:
                self.fine_cells[first_byte(target.source)] = cell

    def _declare(self, buffer: Any, source: Any) -> None:
        root = self.roots.get(key(source), key(buffer))
        self.roots[key(buffer)] = root
        self.root_names[root] = self.root_names.get(root) or source.name or buffer.name
        scalar = [int(n) for n in buffer.shape] == [1] if len(buffer.shape) == 1 else False
        if buffer.scope() == "local" and scalar and str(buffer.dtype) == "int32":
            self.declare_scalar(buffer)

    def declare_scalar(self, buffer: Any) -> None:
        """Compute with a scalar from here on."""
        self.names[key(buffer)] = self.fresh(buffer.name)

    def fine_cell(self, buffer: Any) -> int:
        """Bytes of a cell of a buffer of which a warp writes less than a usual one, or 0."""
        return self.fine_cells.get(first_byte(buffer), 0)

    def is_same(self, text: str) -> bool:
        """Whether an expression of the skeleton has the same values in every launch."""
        return set(re.findall(r"[A-Za-z_]\w*", text)) <= self.same | _WORDS

    def fresh(self, name: str) -> str:
        self.sequence += 1
        return f"{name}_{self.sequence}"
