"""Kernel and plan agree: every number in the generated CUDA comes from the plan, and none is left over."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from tests.cases import VARIED
from tests.cuda_text import Kernel, evaluate
from tests.kernel_facts import (
    ARRIVALS,
    WAITS,
    offsets,
    planned_mbarriers,
    planned_named_barriers,
    planned_registers,
    planned_tmem,
    role_of,
    written_edges,
    written_inits,
    written_named_barriers,
    written_registers,
    written_tmem,
)
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.barriers.protocol import Kind, protocol
from tirx_attn.runtime import dynamic_smem_bytes, generate_cuda
from tirx_attn.schedule import make_plan

FULL = AttentionConfig(1, 300, 384, 2, 1, 128)
CAUSAL = AttentionConfig(2, 384, 512, 8, 2, 128, True)

PLANS = {
    "full": make_plan(FULL),
    "causal": make_plan(CAUSAL),
    "full_other_knobs": make_plan(
        FULL,
        Schedule(
            epilogue_owner="softmax",
            statistics="collective",
            stagger=True,
            pv_split=(64, 64),
            kv_stages=2,
            emulated_pairs=(0, 1, 2, 3),
            rescale_columns=32,
            persistent_ctas=2,
        ),
    ),
    "causal_other_registers": make_plan(
        CAUSAL,
        Schedule(
            softmax_registers=184,
            correction_registers=88,
            issue_registers=56,
            pv_split=(32, 96),
            emulated_pairs=(4, 4, 4, 4),
        ),
    ),
    "full_variants": make_plan(FULL, Schedule(**VARIED)),
    "causal_variants": make_plan(
        CAUSAL, Schedule(statistics="tmem", pv_split=(32, 64, 32), o_stages=1, epilogue_owner="softmax")
    ),
}

TENSORS = {"Q": "q_load.full", "K": "kv_load.full", "V": "kv_load.full"}
PANEL_BYTES = 128 * 64 * 2
KERNEL_TO_CTA = 1
"""ScopeBinding of the ids that number the CTAs of a launch."""


@cache
def prim_func(name: str):
    from tirx_attn.kernel import build_kernel

    return build_kernel(PLANS[name])


@cache
def cuda(name: str) -> Kernel:
    return Kernel(generate_cuda(prim_func(name)))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in PLANS if name != "full"]


@pytest.fixture(scope="module", params=["full", *SLOW])
def name(request) -> str:
    return request.param


# The comparisons ---------------------------------------------------------------------------------------------------


def test_parameters(name):
    config, func = PLANS[name].config, prim_func(name)
    q, kv = (config.B, config.Sq, config.Hq, 128), (config.B, config.Skv, config.Hkv, 128)
    parameters = [(p.name, tuple(int(n) for n in p.shape), str(p.dtype)) for p in func.params]
    assert parameters == [("Q", q, "float16"), ("K", kv, "float16"), ("V", kv, "float16"), ("O", q, "float16")]


def test_launch(name):
    plan, func = PLANS[name], prim_func(name)
    scopes = [getattr(s, "def") for s in statements(func.body) if type(s).__name__ == "ScopeIdDefStmt"]
    (grid,) = (scope.extents for scope in scopes if scope.scope == KERNEL_TO_CTA)
    assert [int(extent) for extent in grid] == [plan.grid]
    assert cuda(name).launch_bounds == (plan.warps.threads, 1) == (512, 1)
    assert dynamic_smem_bytes(func) == plan.smem.size


def statements(node):
    """The statements of the kernel's outermost scope."""
    for inner in getattr(node, "seq", None) or [getattr(node, "body", None)]:
        if inner is not None:
            yield inner
            if type(inner).__name__ in ("SeqStmt", "AttrStmt"):
                yield from statements(inner)


def test_registers(name):
    assert written_registers(cuda(name)) == planned_registers(PLANS[name])


def test_mbarriers(name):
    plan, kernel = PLANS[name], cuda(name)
    words = planned_mbarriers(plan)
    assert written_inits(kernel, plan) == [(offset, count) for offset, _, count in words]
    table = [edge for edge in protocol(plan).edges if edge.kind is not Kind.NAMED]
    assert written_edges(kernel, plan, WAITS) == {edge.name: set(edge.consumers) for edge in table}
    arrivals = written_edges(kernel, plan, ARRIVALS)
    assert arrivals == {edge.name: {p.role for p in edge.producers} | ({edge.credit} - {None}) for edge in table}
    sizes = {evaluate(call.arguments[1], {}) for call in kernel.calls(r"expect_tx")}
    assert sizes == {plan.tile_bytes}


def test_named_barriers(name):
    plan = PLANS[name]
    uses = written_named_barriers(cuda(name))
    assert uses == planned_named_barriers(plan)
    assert {barrier for used in uses.values() for barrier, _ in used} == set(
        range(1, 1 + protocol(plan).named_barriers)
    )


def test_tensor_memory(name):
    plan, kernel = PLANS[name], cuda(name)
    assert written_tmem(kernel, plan) == planned_tmem(plan)
    for call in kernel.calls(r"tcgen05\.(alloc|dealloc)\b"):
        assert evaluate(call.arguments[1], {}) == plan.tmem.columns
        assert call.warps() == {4 * plan.warps.mma.warpgroups[0] + plan.warps.mma.warp}


def test_tma_tiles(name):
    """Where TMA puts Q, K and V and takes O from: whole panels of 64 columns of each planned tile, and no others."""
    plan, kernel = PLANS[name], cuda(name)
    edge_at = {offset: edge for offset, edge, _ in planned_mbarriers(plan)}
    places: dict[str, set[int]] = {}
    for call in kernel.calls(r"cp\.async\.bulk\.tensor"):
        (tensor,) = (match[1] for argument in call.arguments if (match := re.search(r"&\((\w)_tensormap", argument)))
        tile, *barrier = (argument for argument in call.arguments if "pool_buf_ptr" in argument)
        ((warp, offsets_of_tile),) = offsets(plan, call, tile).items()
        assert role_of(plan, warp) == ("store" if tensor == "O" else "load")
        places.setdefault(tensor, set()).update(offsets_of_tile)
        for argument in barrier:
            assert {edge_at[offset] for offset in offsets(plan, call, argument)[warp]} == {TENSORS[tensor]}
    smem = plan.smem
    regions = {"Q": smem.q, "K": smem.kv, "V": smem.kv, "O": smem.o}
    assert places == {tensor: set(range(r.start, r.end, PANEL_BYTES)) for tensor, r in regions.items()}


def test_exponentials(name):
    """MUFU exponentials: all 128 of a row and one of acc_scale in a careful block; in the steady loop, which moves no
    reference, those that are not emulated."""
    steady = 128 - PLANS[name].schedule.emulated_exponentials
    assert len(cuda(name).calls(r"ex2\.approx")) == 128 + 1 + steady


def test_p_is_handed_over_in_the_planned_parts(name):
    """The PV MMAs between the waits for the first and the second part of P: 16 keys each."""
    plan, kernel = PLANS[name], cuda(name)
    edge_at = {offset: edge for offset, edge, _ in planned_mbarriers(plan)}
    parts: list[tuple[str, int]] = []
    for call in kernel.calls(r"mbarrier\.try_wait|tcgen05\.mma|tcgen05\.commit"):
        if "try_wait" in call.ptx:
            places = next(iter(offsets(plan, call, call.arguments[0]).values()))
            parts.append((edge_at[min(places)], 0))
        elif "[%0], [%1]," in call.ptx:
            parts[-1] = (parts[-1][0], parts[-1][1] + 16)
    pv = [part for part in parts if part[1]]
    edges = ("p_o_rescale", "p_ready_2", "p_ready_3", "p_ready_4")
    assert pv == list(zip(edges, plan.schedule.pv_split, strict=False)) * 3  # the loop, and the two last tiles


def test_every_role_walks_the_same_blocks(name):
    """Softmax, correction, MMA and load compute one range of key blocks, that of the plan's tiles."""
    plan, kernel = PLANS[name], cuda(name)
    assert len(kernel.definitions("key_blocks")) == 4
    for m_block in range(plan.tiles.m_blocks):
        values = {f"task_m_block_idx_ptr{suffix}": m_block for suffix in ("", "_1", "_2", "_3", "_4")}
        walked = {evaluate(text, values) for text in kernel.definitions("key_blocks")}
        assert walked == {plan.tiles.key_blocks(m_block)}
        for stage in (0, 1):
            (text,) = kernel.definitions("unmasked")
            assert evaluate(text, values | {"warp_id_in_cta": 4 * stage}) == plan.tiles.unmasked_blocks(m_block, stage)


@pytest.mark.slow
def test_a_second_build_is_the_same_text():
    from tirx_attn.kernel import build_kernel

    assert generate_cuda(build_kernel(PLANS["full"])) == cuda("full").source


# Each changes one number of the CUDA as a kernel that does not follow its plan would have it.
MUTATIONS = {
    "registers of a role": (r"u32 48;", "u32 56;"),
    "registers of another role": (r"u32 192;", "u32 200;"),
    "arrival count": (r"\(uint\)256\);", "(uint)255);"),
    "a barrier word": (r"arrive_shared_b64(.*warp_id_in_cta >> 2\) \+ 289)42\)", r"arrive_shared_b64\g<1>44)"),
    "threads of a named barrier": (r"\(uint\)64\);", "(uint)96);"),
    "number of a named barrier": (r"\(uint\)\(warp_id_in_cta \+ 1\)", "(uint)(warp_id_in_cta + 2)"),
    "columns of S": (r"\(\(uint\)0, 0, (.{1,40}) \+ 64\)", r"((uint)0, 0, \g<1> + 80)"),
    "base of O": (r"\(uint\)256, 0, \(\(stage", "(uint)272, 0, ((stage"),
    "accumulator of an MMA": (r"f16\(\(uint\)128, ", "f16((uint)136, "),
    "P of an MMA": (r"\(uint\)72, ", "(uint)68, "),
    "warp of a role": (r"warp_id_in_cta <= 7", "warp_id_in_cta <= 3"),
}


@pytest.mark.parametrize("change", MUTATIONS)
def test_the_comparison_sees(change):
    plan, kernel = PLANS["full"], cuda("full")
    pattern, text = MUTATIONS[change]
    source, changes = re.subn(pattern, text, kernel.source)
    assert changes
    mutant = Kernel(source)
    try:
        same = (
            written_registers(mutant) == written_registers(kernel)
            and written_inits(mutant, plan) == written_inits(kernel, plan)
            and written_edges(mutant, plan, WAITS) == written_edges(kernel, plan, WAITS)
            and written_edges(mutant, plan, ARRIVALS) == written_edges(kernel, plan, ARRIVALS)
            and written_named_barriers(mutant) == written_named_barriers(kernel)
            and written_tmem(mutant, plan) == written_tmem(kernel, plan)
        )
    except KeyError:  # an mbarrier word that the plan does not have
        same = False
    assert not same


def test_modular_and_flat_form_are_the_same_bytes():
    """Classes, inlined roles and a protocol table cost nothing: the CUDA equals that of the kernel written by hand."""
    from tests.pipeline_kernels import flat, modular

    text = generate_cuda(modular())
    assert text.encode() == generate_cuda(flat()).encode()
    counts = [evaluate(call.arguments[1], {}) for call in Kernel(text).calls(r"mbarrier\.init")]
    assert counts == [1, 1, 128, 128]
    assert generate_cuda(modular()) == text


@pytest.mark.simulator
@pytest.mark.slow
@pytest.mark.recorded("tests/pipeline_kernels.py", "tirx_attn/barriers/device.py")
def test_the_small_kernel_copies():
    """What is compared byte by byte is a kernel that works."""
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")
    from tests.pipeline_kernels import SHAPE, modular
    from tirx_attn import verify

    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float16)
    run = verify.run(modular(), {"X": x}, time_limit=600)
    assert run.verdict == "clean"
    assert np.array_equal(run.outputs["Y"], x)


@pytest.mark.slow
def test_threads_generate_what_one_thread_does():
    """Two lengths at once against one after the other."""
    from tirx_attn import get_flash_attention4_kernel

    def text(sq: int) -> str:
        return generate_cuda(get_flash_attention4_kernel(1, sq, 256, 1, 1, 128))

    lengths = (257, 1024)
    with ThreadPoolExecutor(len(lengths)) as pool:
        together = list(pool.map(text, lengths))
    assert together == [text(sq) for sq in lengths]
    assert len(set(together)) == len(lengths)
