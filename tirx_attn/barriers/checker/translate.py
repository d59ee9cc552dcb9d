"""From a PrimFunc to a runnable skeleton: what each warp waits for, arrives on, reads and writes, in program order.

The PrimFunc's control flow is translated to one Python generator per warp. Integer scalars (phases, slots, task and
block indices) are computed; floating-point work is dropped, but for the note that it uses registers of a tcgen05.ld or
a WGMMA. Where a branch depends on data, the machine that plays the skeleton chooses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tirx_attn.barriers.checker import control, wgmma
from tirx_attn.barriers.checker.declarations import Declarations
from tirx_attn.barriers.checker.operators import call_event, tile_event
from tirx_attn.barriers.checker.tir import (
    GRID_SCOPE,
    LANE_SCOPES,
    SCOPE_IDS,
    TMEM_CELL_COLUMNS,
    WARP,
    WARP_LANE_SCOPE,
    DataDependent,
    Region,
    Site,
    Unsupported,
    element_bits,
    integer_expression,
    key,
    loads,
    shared_region,
    warps_of,
    where_of,
)


@dataclass(frozen=True)
class Skeleton:
    """A translated PrimFunc.

    Attributes:
        program: `program(machine, warp, cta)` is a generator; it yields while a wait is not satisfied.
        sites: every event's statement.
        regions: shared-memory regions, by number.
        operands: what WGMMAs read through descriptors, by number.
        fills: where a buffer in shared memory begins -> edge on which its TMA loads complete.
        barriers: edge attribute name -> slots, in order of declaration.
        grid: CTAs of the launch.
        warps: warps of a CTA.
        source: the generated Python text.
    """

    program: Callable[[Any, int, int], Iterator[None]]
    sites: tuple[Site, ...]
    regions: tuple[Region, ...]
    barriers: dict[str, int]
    grid: int
    warps: int
    source: str
    operands: tuple[wgmma.Operand, ...] = ()
    fills: Mapping[int, str] = field(default_factory=dict)

    @property
    def branches(self) -> list[int]:
        """Sites of the branches that depend on data."""
        return self._sites("choose")

    @property
    def conditions(self) -> list[int]:
        """Sites of the branches and loops that do not go the same way in every launch."""
        return self._sites("choose|went|loop")

    def _sites(self, methods: str) -> list[int]:
        return sorted({int(site) for site in re.findall(rf"m\.(?:{methods})\(warp, (\d+)[,)]", self.source)})


def extract(func: Any, sizes: Mapping[str, int] | None = None) -> Skeleton:
    """Translate a PrimFunc.

    Args:
        func: the PrimFunc.
        sizes: a value for each size that the PrimFunc leaves to run time, by name.

    Raises:
        Unsupported: naming the statement that has no translation.
        ValueError: a size without a value, or a value without such a size.
    """
    translator = _Translator()
    translator.bind_sizes(func, sizes or {})
    translator.scan(func.body)
    try:
        translator.statement(func.body, lanes=WARP)
    except DataDependent as error:
        raise Unsupported(f"control flow or an index needs a value that only data gives: {error}") from None
    body = "\n".join(translator.lines)
    source = f"def program(m, warp, cta):\n    if False:\n        yield\n{body}\n"
    head = "\n".join(["def grid():", *translator.grid])
    namespace: dict[str, Any] = {}
    exec(compile(f"{source}\n{head}\n", "<skeleton>", "exec"), namespace)
    return Skeleton(
        namespace["program"],
        tuple(translator.sites),
        tuple(translator.regions),
        translator.barriers,
        namespace["grid"](),
        warps_of(func),
        source,
        tuple(translator.operands),
        translator.fills,
    )


_REGISTERS = ("m.use(", "m.set(", "m.pin(")
"""Events of registers alone."""


class _Translator(Declarations):
    def __init__(self) -> None:
        super().__init__()
        self.lane_names: set[str] = set()
        self.operands: list[wgmma.Operand] = []
        self.fills: dict[int, str] = {}
        self.warp_lanes: set[int] = set()
        self.bound: set[str] = set()
        self.sites: list[Site] = []
        self.regions: list[Region] = []
        self.lines: list[str] = []
        self.grid: list[str] = ["    return 1"]
        self.depth = 1

    def bind_sizes(self, func: Any, sizes: Mapping[str, int]) -> None:
        """Give the symbolic sizes of the parameters their values."""
        symbols = {extent.name: extent for parameter in func.params for extent in getattr(parameter, "shape", ())
                   if hasattr(extent, "name")}  # fmt: skip
        if set(symbols) != set(sizes):
            wanted = ", ".join(symbols) or "none, all sizes are baked in"
            raise ValueError(f"sizes={dict(sizes)}: allowed is a value for each of {wanted}")
        for name, symbol in symbols.items():
            self.names[key(symbol)] = self.fresh(name)
            self.emit(f"{self.names[key(symbol)]} = {int(sizes[name])}")

    # -- expressions ------------------------------------------------------------------------------------------------

    def expression(self, node: Any) -> str:
        """Python text of an integer expression."""
        return integer_expression(node, self.names)

    def is_lane_dependent(self, text: str) -> bool:
        return not self.lane_names.isdisjoint(re.findall(r"\w+", text))

    # -- statements -------------------------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        line = "    " * self.depth + text
        if not (text.startswith(_REGISTERS) and self.lines and self.lines[-1] == line):
            self.lines.append(line)

    def block(self, header: str, body: Callable[[], None]) -> bool:
        """Emit `header` and an indented body, unless that does nothing. True where something was emitted."""
        start = len(self.lines)
        self.emit(header)
        self.depth += 1
        body()
        self.depth -= 1
        inner = [line.lstrip() for line in self.lines[start + 1 :]]
        registers = [line for line in inner if line.startswith(_REGISTERS)]
        names = [line for line in inner if line.partition(" = ")[0] in self.bound]
        if len(registers) + len(names) < len(inner):
            return True
        # Registers that are used many times, or perhaps, count as used once. No name leaves its block.
        del self.lines[start:]
        for line in dict.fromkeys(registers):
            self.emit(line)
        return False

    def site(self, text: str, statement: Any) -> int:
        self.sites.append(Site(text, where_of(statement)))
        return len(self.sites) - 1

    def statement(self, node: Any, lanes: int) -> None:
        kind = type(node).__name__
        if kind == "SeqStmt":
            for child in node.seq:
                self.statement(child, lanes)
        elif kind == "AttrStmt":
            self.statement(node.body, lanes)
        elif kind == "ScopeIdDefStmt":
            definition = getattr(node, "def")
            name = self.names[key(definition.def_ids[0])] = self.fresh("id")
            if definition.scope in LANE_SCOPES:
                self.lane_names.add(name)
            if definition.scope == WARP_LANE_SCOPE:
                self.warp_lanes.add(key(definition.def_ids[0]))
            if definition.scope == GRID_SCOPE:
                self.grid = [*self.lines, f"    return {self.expression(definition.extents[0])}"]
            else:
                self.same.add(name)
            self.emit(f"{name} = {SCOPE_IDS[definition.scope]}")
        elif kind == "For":
            control.loop(self, node, lanes)
        elif kind == "While":
            self.block(f"while {self.expression(node.condition)}:", lambda: self.statement(node.body, lanes))
        elif kind == "IfThenElse":
            control.branch(self, node, lanes)
        else:
            self._leaf(node, kind, lanes)

    def _leaf(self, node: Any, kind: str, lanes: int) -> None:
        if kind == "Bind":
            self.uses(node, node.value)
            try:
                text = self.expression(node.value)
            except DataDependent:
                return
            name = self.names[key(node.var)] = self.fresh(node.var.name)
            self.bound.add(name)
            if self.is_same(text):
                self.same.add(name)
            self.emit(f"{name} = {text}")
        elif kind == "BufferStore":
            self.uses(node, node.value)
            self.sets(node, node.buffer)
            if key(node.buffer) in self.descriptors:
                wgmma.check_store(self, node)
            if key(node.buffer) in self.names:
                self.emit(f"{self.names[key(node.buffer)]} = {self.expression(node.value)}")
            elif node.buffer.scope().startswith("shared"):
                self._shared_access(node, "write", node.buffer, node.indices)
        elif kind == "Evaluate":
            if hasattr(node.value, "op"):
                call_event(self, node, node.value, lanes)
        elif kind == "TilePrimitiveCall":
            tile_event(self, node, lanes)
        elif kind not in ("AllocBuffer", "DeclBuffer", "ScopeIdDefStmt", "AssertStmt"):
            raise Unsupported(f"statement {kind} at {where_of(node)}: no translation")

    # -- pieces of events -------------------------------------------------------------------------------------------

    def uses(self, statement: Any, expression: Any, is_asm: bool = False) -> None:
        """Note what an expression reads of shared memory, and of registers that a tcgen05.ld or a WGMMA has."""
        sources = {self.roots.get(key(load.source)): load.source for load in loads(expression)}
        for source in sources.values():
            self.use(statement, source, is_asm)
        for load in loads(expression):
            if load.source.scope().startswith("shared"):
                self._shared_access(statement, "read", load.source, load.indices)

    def use(self, statement: Any, buffer: Any, is_asm: bool = False) -> None:
        """Note a read of registers that a tcgen05.ld fills or a WGMMA has."""
        root = self.roots.get(key(buffer))
        if root in self.fragments or root in self.accumulators or root in self.inputs:
            self.emit(f"m.use(warp, {self.root_names[root]!r}, {where_of(statement)!r}{', True' * is_asm})")

    def sets(self, statement: Any, buffer: Any, is_asm: bool = False) -> None:
        """Note a write to registers that a WGMMA has."""
        root = self.roots.get(key(buffer))
        if root in self.accumulators or root in self.inputs:
            self.emit(f"m.set(warp, {self.root_names[root]!r}, {where_of(statement)!r}{', True' * is_asm})")

    def _shared_access(self, statement: Any, access: str, buffer: Any, indices: Any) -> None:
        starts = [self.expression(index) for index in indices]
        extents = tuple(WARP if self.is_lane_dependent(text) else 1 for text in starts)
        number = self.region(shared_region(buffer, extents, self.fine_cell(buffer)))
        site = self.site(f"{access} of {buffer.name}", statement)
        self.emit(f"m.{access}(warp, {number}, ({', '.join(starts)},), {site})")

    def region(self, region: Region) -> int:
        if region not in self.regions:
            self.regions.append(region)
        return self.regions.index(region)

    def operand(self, operand: wgmma.Operand) -> int:
        if operand not in self.operands:
            self.operands.append(operand)
        return self.operands.index(operand)

    def starts(self, region: Any) -> str:
        """Python text of the first index in each dimension of a buffer region."""
        return "(" + "".join(f"{self.expression(axis.min)}, " for axis in region.region) + ")"

    def tmem_columns(self, region: Any) -> tuple[str, int]:
        """First cell and number of cells, along the columns, of a TMEM region."""
        bits = element_bits(region.source)
        axis = region.region[-1]
        base = int(region.source.allocated_addr[0])
        first = f"({base} + {self.expression(axis.min)} * {bits} // 32) // {TMEM_CELL_COLUMNS}"
        return first, max(1, int(axis.extent) * bits // 32 // TMEM_CELL_COLUMNS)
