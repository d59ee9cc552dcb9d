"""The same facts twice: what a plan says, and what the CUDA generated from it does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.cuda_text import WARPS, Call, Kernel, arguments_of, evaluate
from tirx_attn.barriers.protocol import Kind, protocol
from tirx_attn.schedule import Plan
from tirx_attn.schedule.parts import Region

MMA_K_COLUMNS = 8
"""32-bit TMEM columns of the 16 fp16 values of A that one MMA reads."""

UNIT = 16
"""Moves between tensor memory and registers are compared in pieces of this many columns."""

# What the plan says ------------------------------------------------------------------------------------------------


def role_of(plan: Plan, warp: int) -> str:
    """Role that a warp of the CTA plays."""
    for role in plan.warps.roles:
        if warp // 4 in role.warpgroups and role.warp in (None, warp % 4):
            return role.name
    return "none"


def planned_registers(plan: Plan) -> dict[int, set[tuple[str, int]]]:
    at_launch = 65536 // plan.warps.threads
    return {
        warp: {("inc" if registers > at_launch else "dec", registers)}
        for warp in range(WARPS)
        for registers in [plan.warps.registers[warp // 4]]
    }


def planned_mbarriers(plan: Plan) -> list[tuple[int, str, int]]:
    """(byte offset, edge, count) of every mbarrier word."""
    words = [(edge.name, edge.count) for edge in protocol(plan).edges if edge.kind is not Kind.NAMED
             for _ in range(edge.stages)]  # fmt: skip
    return [(plan.smem.control.start + 8 * i, *word) for i, word in enumerate(words)]


def planned_named_barriers(plan: Plan) -> dict[tuple[str, int], set[tuple[int, int]]]:
    """(instruction, warp) -> (barrier, threads): a softmax warp tells the correction warp of the same rows."""
    edge = protocol(plan)["stats.full"]
    per_stage = edge.stages // 2
    uses: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for stage in (0, 1):
        for warp in range(4):
            barrier = (1 + stage * per_stage + warp % per_stage, edge.count)
            uses[("arrive", 4 * stage + warp)] = {barrier}
            uses.setdefault(("sync", 8 + warp), set()).add(barrier)
    return uses


Spans = set[tuple[int, int]]
"""(first column, columns) of accesses to tensor memory."""


def planned_tmem(plan: Plan) -> dict[tuple[str, int, str], Spans]:
    """(role, warpgroup, access) -> the spans it must use, each whole and nothing else."""
    s, p, o = plan.tmem.s, plan.tmem.p, plan.tmem.o
    uses: dict[tuple[str, int, str], Spans] = {
        ("mma", 3, "mma D"): {(region.start, region.size) for region in (*s, *o)},
        ("mma", 3, "mma A"): pieces(p, MMA_K_COLUMNS),
        ("correction", 2, "ld"): pieces(o, UNIT) | statistics(plan, (0, 1)),
        ("correction", 2, "st"): pieces(o, UNIT),
    }
    for stage in (0, 1):
        reads = (s[stage], o[stage]) if plan.epilogue.name == "softmax" else (s[stage],)
        uses["softmax", stage, "ld"] = pieces(reads, UNIT)
        uses["softmax", stage, "st"] = pieces((p[stage],), UNIT) | statistics(plan, (stage,))
    return uses


def statistics(plan: Plan, stages: tuple[int, ...]) -> Spans:
    """Where acc_scale and row_sum of some stages lie, in tensor memory."""
    regions = [region[stage] for region in (plan.tmem.acc_scale, plan.tmem.row_sum) if region for stage in stages]
    return {(region.start, region.size) for region in regions}


def pieces(regions: tuple[Region, ...], columns: int) -> Spans:
    return {(start, columns) for region in regions for start in range(region.start, region.end, columns)}


# What the CUDA does ------------------------------------------------------------------------------------------------


WAITS = r"mbarrier\.try_wait"
ARRIVALS = r"mbarrier\.arrive\.shared|mbarrier\.arrive\.expect_tx|tcgen05\.commit"


def slots(plan: Plan, *expressions: str) -> dict[str, int]:
    """Extents of the variables that hold a slot of the K/V ring."""
    names = {name for text in expressions for name in re.findall(r"\b\w*(?:_stage|v_slot)_ptr(?:_\d+)?", text)}
    return dict.fromkeys(names, plan.schedule.kv_stages)


def offsets(plan: Plan, call: Call, argument: str) -> dict[int, set[int]]:
    """Warp -> bytes from the start of shared memory at which `argument` may point."""
    element, index = re.search(r"\(\((\w+)\*\)\w*pool_buf_ptr\)\[(.*)\]", argument).groups()
    size = {"uint64_t": 8, "half": 2, "uint": 4}[element]
    found: dict[int, set[int]] = {}
    for values in call.cases(**slots(plan, index)):
        found.setdefault(values["warp_id_in_cta"], set()).add(size * evaluate(index, values))
    return found


def written_registers(kernel: Kernel) -> dict[int, set[tuple[str, int]]]:
    found: dict[int, set[tuple[str, int]]] = {warp: set() for warp in range(WARPS)}
    for call in kernel.calls(r"\bsetmaxnreg\b"):
        kind, value = re.search(r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32 (\d+);", call.ptx).groups()
        for warp in call.warps():
            found[warp].add((kind, int(value)))
    return found


def written_inits(kernel: Kernel, plan: Plan) -> list[tuple[int, int]]:
    calls = kernel.calls(r"mbarrier\.init")
    return [(offsets(plan, call, call.arguments[0])[0].pop(), evaluate(call.arguments[1], {})) for call in calls]


def written_edges(kernel: Kernel, plan: Plan, instructions: str) -> dict[str, set[str]]:
    """Edge -> roles that run one of `instructions` on its mbarriers."""
    edge_at = {offset: edge for offset, edge, _ in planned_mbarriers(plan)}
    found: dict[str, set[str]] = {}
    for call in kernel.calls(instructions):
        for warp, places in offsets(plan, call, call.arguments[0]).items():
            for place in places:
                found.setdefault(edge_at[place], set()).add(role_of(plan, warp))
    return found


def written_named_barriers(kernel: Kernel) -> dict[tuple[str, int], set[tuple[int, int]]]:
    found: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for call in kernel.calls(r"\bbar(rier)?\."):
        instruction = re.match(r"bar\.(sync|arrive) %0, %1;$", call.ptx)[1]
        for values in call.cases():
            barrier = tuple(evaluate(argument, values) for argument in call.arguments)
            found.setdefault((instruction, values["warp_id_in_cta"]), set()).add(barrier)
    return found


def tmem_spans(call: Call) -> Iterator[tuple[str, str, int]]:
    """(access, C expression of the first column, columns) of a call that touches tensor memory."""
    if move := re.match(r"tcgen05\.(ld|st)\.sync\.aligned\.32x32b\.x(\d+)\.b32 ", call.ptx):
        address = call.arguments[-1 if move[1] == "ld" else 0]
        base, _, column = arguments_of(address)
        yield move[1], f"{base} + {column}", int(move[2])
    else:
        descriptor = evaluate(call.arguments[3], {})
        yield "mma D", call.arguments[0], 8 * (descriptor >> 17 & 0x3F)  # bits 17 to 22 hold N / 8
        if "[%0], [%1]," in call.ptx:
            yield "mma A", call.arguments[1], MMA_K_COLUMNS


def written_tmem(kernel: Kernel, plan: Plan) -> dict[tuple[str, int, str], Spans]:
    found: dict[tuple[str, int, str], Spans] = {}
    for call in kernel.calls(r"tcgen05\.(ld|st|mma|cp|shift)\b"):
        for access, first, columns in tmem_spans(call):
            for values in call.cases():
                warp = values["warp_id_in_cta"]
                spans = found.setdefault((role_of(plan, warp), warp // 4, access), set())
                start, size = evaluate(first, values), columns if access.startswith("mma") else min(columns, UNIT)
                spans.update((column, size) for column in range(start, start + columns, size))
    return found
