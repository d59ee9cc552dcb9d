"""TIRx operators that synchronise or touch shared or tensor memory, as events of the skeleton."""

from __future__ import annotations

from typing import Any

from tirx_attn.barriers.checker import wgmma
from tirx_attn.barriers.checker.tir import WARP, Unsupported, edge_of, first_byte, key, loads, shared_region

# Operators whose only effect is on registers.
_ARITHMETIC = ("mov_", "fma", "add", "sub", "mul", "ex2", "max", "bmsk", "cvt", "shl", "lg2")


def call_event(t: Any, statement: Any, call: Any, lanes: int) -> None:
    """Translate `Evaluate(call)`."""
    name = call.op.name.removeprefix("tirx.").removeprefix("cuda.").removeprefix("ptx.")
    handler = _CALLS.get(name)
    if handler is not None:
        handler(t, statement, call, lanes)
    elif wgmma.is_product(name):
        wgmma.product(t, statement, call, lanes)
    elif name.startswith(_ARITHMETIC):
        # Volatile asm. The first operands are destinations; reading too many registers is safe here, too few is not.
        targets = 2 if name == "mov_unpack_b32x2" else 1
        for argument in call.args[targets:]:
            t.uses(statement, argument, is_asm=True)
        for argument in call.args[:targets]:
            for load in loads(argument):
                t.sets(statement, load.source, is_asm=True)
    elif name not in _NO_EVENT:
        raise Unsupported(f"operator {call.op.name}: no translation")


_NO_EVENT = {"warp_sync", "tcgen05_relinquish_alloc_permit"}


def _mbarrier(t: Any, node: Any) -> tuple[str, str]:
    """Edge name and slot text of the address of an mbarrier word."""
    while type(node).__name__ == "Call":
        node = node.args[0]
    name = edge_of(node.source)
    if name is None:
        raise Unsupported(f"{node.source.name} is used as an mbarrier: no edge has this name")
    return name, t.expression(node.indices[0])


def _wait(t: Any, s: Any, call: Any, lanes: int) -> None:
    edge, slot = _mbarrier(t, call.args[0])
    site = t.site(f"wait on {edge}", s)
    t.emit(f"while not m.wait(warp, {edge!r}, {slot}, {t.expression(call.args[1])}, {site}): yield")


def _arrive(t: Any, s: Any, call: Any, lanes: int) -> None:
    edge, slot = _mbarrier(t, call.args[0])
    site = t.site(f"arrive on {edge}", s)
    t.emit(f"if m.arrive(warp, {edge!r}, {slot}, {lanes} * {t.expression(call.args[1])}, {site}): yield")


def _expect(t: Any, s: Any, call: Any, lanes: int) -> None:
    edge, slot = _mbarrier(t, call.args[0])
    site = t.site(f"expect-tx arrive on {edge}", s)
    t.emit(f"if m.expect(warp, {edge!r}, {slot}, {lanes}, {t.expression(call.args[1])}, {site}): yield")


def _init(t: Any, s: Any, call: Any, lanes: int) -> None:
    edge, slot = _mbarrier(t, call.args[0])
    t.emit(f"m.init(warp, {edge!r}, {slot}, {t.expression(call.args[1])})")


def _commit(t: Any, s: Any, call: Any, lanes: int) -> None:
    edge, slot = _mbarrier(t, call.args[0])
    elected = lanes == 1 or "elect_sync" in str(call)
    site = t.site(f"commit to {edge}", s)
    t.emit(f"if m.commit(warp, {edge!r}, {slot}, {1 if elected else WARP}, {site}): yield")


def _named(method: str) -> Any:
    def emit(t: Any, s: Any, call: Any, lanes: int) -> None:
        number, threads = t.expression(call.args[0]), t.expression(call.args[1])
        site = t.site(f"bar.{'sync' if method == 'bar_sync' else 'arrive'}", s)
        if method == "bar_sync":
            t.emit(f"m.bar_arrive(warp, {number}, {threads}, {lanes}, {site}, True)")
            t.emit(f"while not m.bar_passed(warp, {number}, {site}): yield")
        else:
            t.emit(f"if m.bar_arrive(warp, {number}, {threads}, {lanes}, {site}, False): yield")

    return emit


def _cta_sync(t: Any, s: Any, call: Any, lanes: int) -> None:
    site = t.site("CTA sync", s)
    t.emit(f"m.bar_arrive(warp, 0, m.threads, {lanes}, {site}, True)")
    t.emit(f"while not m.bar_passed(warp, 0, {site}): yield")


def _tcgen05_wait(t: Any, s: Any, call: Any, lanes: int) -> None:
    t.emit(f"m.wait_{'ld' if 'wait::ld' in str(call) else 'st'}(warp)")


def _tcgen05_fence(t: Any, s: Any, call: Any, lanes: int) -> None:
    t.emit(f"m.fence_{'before' if 'before' in str(call) else 'after'}(warp)")


def _setmaxnreg(t: Any, s: Any, call: Any, lanes: int) -> None:
    t.emit(f"m.setmaxnreg(warp, {t.expression(call.args[0])})")


def _fence_proxy(t: Any, s: Any, call: Any, lanes: int) -> None:
    words = [str(argument).strip('"') for argument in call.args]
    if "async" not in words or "shared::cta" not in words:
        raise Unsupported(f"fence.{'.'.join(filter(None, words))}: allowed is fence.proxy.async.shared::cta")
    t.emit("m.fence_async(warp)")


def _wait_group(t: Any, s: Any, call: Any, lanes: int) -> None:
    t.emit(f"m.wait_stores(warp, {t.expression(call.args[0])})")


def _tmem(method: str) -> Any:
    def emit(t: Any, s: Any, call: Any, lanes: int) -> None:
        site = t.site(f"tcgen05.{method}", s)
        t.emit(f"m.{method}(warp, {t.expression(call.args[1])}, {site})")

    return emit


_CALLS = {
    "break_loop": lambda t, s, call, lanes: t.emit("break"),
    "mbarrier_wait": _wait,
    "mbarrier_arrive": _arrive,
    "mbarrier_arrive_expect_tx": _expect,
    "mbarrier_init": _init,
    "tcgen05_commit": _commit,
    "bar_arrive": _named("bar_arrive"),
    "bar_sync_count": _named("bar_sync"),
    "cta_sync": _cta_sync,
    "tcgen05_wait": _tcgen05_wait,
    "tcgen05_fence": _tcgen05_fence,
    "fence_proxy": _fence_proxy,
    "fence_mbarrier_init": lambda t, s, call, lanes: t.emit("m.fence_init(warp)"),
    "cp_async_bulk_commit_group": lambda t, s, call, lanes: t.emit("m.commit_stores(warp)"),
    "cp_async_bulk_wait_group": _wait_group,
    "setmaxnreg": _setmaxnreg,
    "wgmma_encode_matrix_descriptor": wgmma.encode,
    "wgmma_fence": lambda t, s, call, lanes: t.emit("m.wgmma_fence(warp)"),
    "wgmma_commit_group": lambda t, s, call, lanes: t.emit("m.commit_group(warp)"),
    "wgmma_wait_group": wgmma.wait_group,
    "func_call": wgmma.register_fence,
    "tcgen05_alloc": _tmem("alloc"),
    "tcgen05_dealloc": _tmem("dealloc"),
}


def tile_event(t: Any, statement: Any, lanes: int) -> None:
    """Translate a tile primitive."""
    name = statement.op.name.removeprefix("tirx.tile.")
    regions = [argument for argument in statement.args if type(argument).__name__ == "TensorRegion"]
    scopes = [region.source.scope().split(".")[0] for region in regions]
    for region in regions[1:]:
        t.use(statement, region.source)
    if scopes[0] == "local":
        t.sets(statement, regions[0].source)
    if name == "gemm_async":
        _mma(t, statement, regions, scopes)
    elif scopes == ["shared", "global"] and "mbar" in statement.config:
        _tma_load(t, statement, regions[0])
    elif scopes == ["global", "shared"] and name == "copy_async":
        number = t.region(_whole(t, regions[1]))
        site = t.site(f"TMA store from {regions[1].source.name}", statement)
        t.emit(f"m.tma_store(warp, {number}, {t.starts(regions[1])}, {site})")
    elif scopes == ["local", "tmem"]:
        first, count = t.tmem_columns(regions[1])
        site = t.site(f"tcgen05.ld of {regions[1].source.name}", statement)
        registers = t.root_names[t.roots[key(regions[0].source)]]
        t.emit(f"m.ld(warp, {first}, {count}, {registers!r}, {site})")
    elif scopes == ["tmem", "local"]:
        first, count = t.tmem_columns(regions[0])
        site = t.site(f"tcgen05.st to {regions[0].source.name}", statement)
        t.emit(f"m.st(warp, {first}, {count}, {site})")
    elif scopes == ["shared", "local"]:
        _stage(t, statement, *regions)
    elif any(scope != "local" for scope in scopes):
        raise Unsupported(f"tile primitive {name} on {', '.join(scopes)}: no translation")


def _whole(t: Any, region: Any) -> Any:
    extents = tuple(int(axis.extent) for axis in region.region)
    return shared_region(region.source, extents, t.fine_cell(region.source))


def _mma(t: Any, statement: Any, regions: list[Any], scopes: list[str]) -> None:
    target, a, b = regions
    column, count = t.tmem_columns(target)
    reads = []
    for region, scope in ((a, scopes[1]), (b, scopes[2])):
        if scope == "tmem":
            first, cells = t.tmem_columns(region)
            reads.append(f"('tmem', {first}, {cells})")
        else:
            reads.append(f"('shared', {t.region(_whole(t, region))}, {t.starts(region)})")
    site = t.site(f"MMA {target.source.name} from {a.source.name} and {b.source.name}", statement)
    t.emit(f"m.mma(warp, {column}, {count}, ({', '.join(reads)},), {site})")


def _tma_load(t: Any, statement: Any, target: Any) -> None:
    edge, slot = _mbarrier(t, statement.config["mbar"])
    region = _whole(t, target)
    t.fills[first_byte(target.source)] = edge
    site = t.site(f"TMA load to {target.source.name}", statement)
    t.emit(f"m.tma_load(warp, {t.region(region)}, {t.starts(target)}, {edge!r}, {slot}, {region.bytes}, {site})")


def warp_rows(target: Any, source: Any) -> tuple[int, int]:
    """Axis of the rows of a warpgroup's copy from registers, and how many of them each warp writes."""
    axis = next(number for number, axis in enumerate(target.region) if int(axis.extent) > 1)
    rows = int(target.region[axis].extent)
    outermost = source.source.layout.shard[0]
    if (outermost.axis.name, int(outermost.extent)) not in (("wid_in_wg", 4), ("tid_in_wg", 4 * WARP)):
        raise Unsupported(f"copy from {source.source.name}: allowed is that a warp has a quarter of the rows")
    return axis, rows // 4


def _stage(t: Any, statement: Any, target: Any, source: Any) -> None:
    """A warpgroup's copy from registers: each warp writes its quarter of the rows."""
    axis, rows = warp_rows(target, source)
    extents = tuple(rows if i == axis else int(part.extent) for i, part in enumerate(target.region))
    starts = [t.expression(part.min) for part in target.region]
    starts[axis] += f" + warp % 4 * {rows}"
    number = t.region(shared_region(target.source, extents, t.fine_cell(target.source)))
    site = t.site(f"write of {target.source.name}", statement)
    t.emit(f"m.write(warp, {number}, ({', '.join(starts)},), {site})")
