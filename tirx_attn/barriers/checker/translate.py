"""From a PrimFunc to a runnable skeleton: what each warp waits for, arrives on, reads and writes, in program order.

The PrimFunc's control flow is translated to one Python generator per warp. Integer scalars (phases, slots, task and
block indices) are computed; floating-point work is dropped, but for the note that it reads registers a tcgen05.ld
fills. Where a branch depends on data, the machine that plays the skeleton chooses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tirx_attn.barriers.checker.operators import call_event, tile_event
from tirx_attn.barriers.checker.tir import (
    GRID_SCOPE,
    LANE_SCOPES,
    SCOPE_IDS,
    TMEM_CELL_COLUMNS,
    WARP,
    WARPGROUP_SCOPE,
    WARPS,
    DataDependent,
    Region,
    Site,
    Unsupported,
    edge_of,
    element_bits,
    integer_expression,
    key,
    loads,
    shared_region,
    walk,
    where_of,
)


@dataclass(frozen=True)
class Skeleton:
    """A translated PrimFunc.

    Attributes:
        program: `program(machine, warp, cta)` is a generator; it yields while a wait is not satisfied.
        sites: every event's statement.
        regions: shared-memory regions, by number.
        barriers: edge attribute name -> slots, in order of declaration.
        grid: CTAs of the launch.
        source: the generated Python text.
    """

    program: Callable[[Any, int, int], Iterator[None]]
    sites: tuple[Site, ...]
    regions: tuple[Region, ...]
    barriers: dict[str, int]
    grid: int
    source: str

    @property
    def branches(self) -> list[int]:
        """Sites of the branches that depend on data."""
        return sorted({int(site) for site in re.findall(r"m\.choose\(warp, (\d+)\)", self.source)})


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
        source,
    )


class _Translator:
    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.lane_names: set[str] = set()
        self.roots: dict[int, int] = {}
        self.root_names: dict[int, str] = {}
        self.fragments: set[int] = set()
        self.sites: list[Site] = []
        self.regions: list[Region] = []
        self.barriers: dict[str, int] = {}
        self.lines: list[str] = []
        self.grid: list[str] = ["    return 1"]
        self.depth = 1
        self.sequence = 0

    def bind_sizes(self, func: Any, sizes: Mapping[str, int]) -> None:
        """Give the symbolic sizes of the parameters their values."""
        symbols = {extent.name: extent for parameter in func.params for extent in getattr(parameter, "shape", ())
                   if hasattr(extent, "name")}  # fmt: skip
        if set(symbols) != set(sizes):
            wanted = ", ".join(symbols) or "none, all sizes are baked in"
            raise ValueError(f"sizes={dict(sizes)}: allowed is a value for each of {wanted}")
        for name, symbol in symbols.items():
            self.names[key(symbol)] = self._fresh(name)
            self.emit(f"{self.names[key(symbol)]} = {int(sizes[name])}")

    # -- first pass -------------------------------------------------------------------------------------------------

    def scan(self, node: Any) -> None:
        """Find scalars that control flow may use, aliases of registers, and registers that tcgen05.ld fills."""
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
            if type(statement).__name__ == "TilePrimitiveCall" and statement.op.name == "tirx.tile.copy_async":
                target, source = statement.args[0].source, statement.args[1].source
                if source.scope() == "tmem" and target.scope() == "local":
                    self.fragments.add(self.roots[key(target)])

    def _declare(self, buffer: Any, source: Any) -> None:
        root = self.roots.get(key(source), key(buffer))
        self.roots[key(buffer)] = root
        self.root_names[root] = self.root_names.get(root) or source.name or buffer.name
        scalar = [int(n) for n in buffer.shape] == [1] if len(buffer.shape) == 1 else False
        if buffer.scope() == "local" and scalar and str(buffer.dtype) == "int32":
            self.names[key(buffer)] = self._fresh(buffer.name)

    def _fresh(self, name: str) -> str:
        self.sequence += 1
        return f"{name}_{self.sequence}"

    # -- expressions ------------------------------------------------------------------------------------------------

    def expression(self, node: Any) -> str:
        """Python text of an integer expression."""
        return integer_expression(node, self.names)

    def _is_lane_dependent(self, text: str) -> bool:
        return any(name in text for name in self.lane_names)

    # -- statements -------------------------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        line = "    " * self.depth + text
        if not (text.startswith("m.use(") and self.lines and self.lines[-1] == line):
            self.lines.append(line)

    def block(self, header: str, body: Callable[[], None]) -> bool:
        """Emit `header` and an indented body; nothing where the body is empty. True where something was emitted."""
        start = len(self.lines)
        self.emit(header)
        self.depth += 1
        body()
        self.depth -= 1
        inner = [line.lstrip() for line in self.lines[start + 1 :]]
        reads_only = bool(inner) and all(line.startswith("m.use(") for line in inner)
        if not inner or reads_only:
            # Registers that are read many times, or perhaps, count as read once.
            del self.lines[start:]
            for line in dict.fromkeys(inner):
                self.emit(line)
        return bool(inner) and not reads_only

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
            name = self.names[key(definition.def_ids[0])] = self._fresh("id")
            if definition.scope == WARPGROUP_SCOPE and int(definition.extents[0]) != WARPS // 4:
                raise Unsupported(f"a CTA of {int(definition.extents[0])} warpgroups: allowed are {WARPS // 4}")
            if definition.scope in LANE_SCOPES:
                self.lane_names.add(name)
            if definition.scope == GRID_SCOPE:
                self.grid = [*self.lines, f"    return {self.expression(definition.extents[0])}"]
            self.emit(f"{name} = {SCOPE_IDS[definition.scope]}")
        elif kind == "For":
            name = self.names[key(node.loop_var)] = self._fresh(node.loop_var.name)
            extent = self.expression(node.extent)
            self.block(f"for {name} in range({extent}):", lambda: self.statement(node.body, lanes))
        elif kind == "While":
            self.block(f"while {self.expression(node.condition)}:", lambda: self.statement(node.body, lanes))
        elif kind == "IfThenElse":
            self._branch(node, lanes)
        else:
            self._leaf(node, kind, lanes)

    def _branch(self, node: Any, lanes: int) -> None:
        condition = node.condition
        kind = type(condition).__name__
        if "elect_sync" in str(condition):
            if kind != "Call" or node.else_case is not None:
                raise Unsupported(f"elect_sync in a larger branch at {where_of(node)}: no translation")
            self.statement(node.then_case, 1)
            return
        if "thread_rank" in str(condition):
            if kind != "EQ" or str(condition.b) != "0" or node.else_case is not None:
                raise Unsupported(f"branch on {condition} at {where_of(node)}: allowed is thread_rank() == 0")
            self.block("if warp == 0:", lambda: self.statement(node.then_case, 1))
            return
        self._uses(node, condition)
        try:
            text = self.expression(condition)
            if self._is_lane_dependent(text):
                raise DataDependent(text)
        except DataDependent:
            text = f"m.choose(warp, {self.site('branch on data', node)})"
        took = self.block(f"if {text}:", lambda: self.statement(node.then_case, lanes))
        if node.else_case is not None:
            if took:
                self.block("else:", lambda: self.statement(node.else_case, lanes))
            else:
                self.block(f"if not ({text}):", lambda: self.statement(node.else_case, lanes))

    def _leaf(self, node: Any, kind: str, lanes: int) -> None:
        if kind == "Bind":
            self._uses(node, node.value)
            try:
                text = self.expression(node.value)
            except DataDependent:
                return
            name = self.names[key(node.var)] = self._fresh(node.var.name)
            self.emit(f"{name} = {text}")
        elif kind == "BufferStore":
            self._uses(node, node.value)
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

    def _uses(self, statement: Any, expression: Any) -> None:
        read = {self.roots.get(key(load.source)) for load in loads(expression)} & self.fragments
        self.use(statement, read)
        self.shared_reads(statement, expression)

    def use(self, statement: Any, read: set[Any]) -> None:
        """Note that registers which a tcgen05.ld fills are read."""
        for root in sorted(read):
            self.emit(f"m.use(warp, {self.root_names[root]!r}, {where_of(statement)!r})")

    def shared_reads(self, statement: Any, expression: Any) -> None:
        """Note the reads of shared memory in an expression."""
        for load in loads(expression):
            if load.source.scope().startswith("shared"):
                self._shared_access(statement, "read", load.source, load.indices)

    def _shared_access(self, statement: Any, access: str, buffer: Any, indices: Any) -> None:
        starts = [self.expression(index) for index in indices]
        extents = tuple(WARP if self._is_lane_dependent(text) else 1 for text in starts)
        number = self.region(shared_region(buffer, extents))
        site = self.site(f"{access} of {buffer.name}", statement)
        self.emit(f"m.{access}(warp, {number}, ({', '.join(starts)},), {site})")

    def region(self, region: Region) -> int:
        if region not in self.regions:
            self.regions.append(region)
        return self.regions.index(region)

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
