"""The kernel: who exists, what is allocated, who does what. Roles are in roles/, waits in barriers/protocol.py."""

from __future__ import annotations

from typing import Literal

from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from tirx_attn.barriers.protocol import protocol
from tirx_attn.barriers.render import declaration
from tirx_attn.config import AttentionConfig
from tirx_attn.roles.context import Context
from tirx_attn.roles.correction import correction_role
from tirx_attn.roles.epilogue import store_role
from tirx_attn.roles.load import load_role
from tirx_attn.roles.mma import mma_role
from tirx_attn.roles.parameters import Parameters
from tirx_attn.roles.softmax import softmax_role
from tirx_attn.roles.storage import clear_unused_rows
from tirx_attn.schedule.plan import Q_STAGES, Plan, make_plan
from tirx_attn.schedule.schedule import Schedule
from tirx_attn.tracing import finish, turn


def get_flash_attention4_kernel(
    B: int | None,
    Sq: int | None,
    Skv: int | None,
    Hq: int,
    Hkv: int,
    D: int,
    is_causal: bool = False,
    *,
    dtype: str = "float16",
    scale: float | Literal["runtime"] | None = None,
    return_lse: bool = False,
    schedule: Schedule | None = None,
) -> PrimFunc:
    """FlashAttention-4 forward for NVIDIA Blackwell as a TIRx PrimFunc.

    The PrimFunc computes O = softmax(Q·Kᵀ·scale)·V. Its parameters are, in this order, Q [B, Sq, Hq, D],
    K [B, Skv, Hkv, D], V [B, Skv, Hkv, D] and the output O [B, Sq, Hq, D] in `dtype`; with `return_lse` the output
    LSE [B, Hq, Sq] in fp32 (natural logarithm; −inf for a row without a key); with scale="runtime" the factor as a
    float32. Q, K, V and O may have any strides that are multiples of 16 bytes, with a contiguous last dimension and a
    base aligned to 16 bytes; LSE is compact. Compile it with
    `tvm.compile(tvm.IRModule({"main": kernel}), target=target, tir_pipeline="tirx")`.

    Results are the same bits from run to run, whatever else is in the batch. A launch with a size of 0 is a ValueError
    of the host code: callers answer it without a launch.

    Args:
        B, Sq, Skv: sizes, or None for sizes that are read from the tensors at run time.
        Hq, Hkv, D, is_causal, dtype, scale, return_lse: the problem; see AttentionConfig.
        schedule: how to run it; None takes the tuning table's row.

    Raises:
        TypeError, ValueError: naming the argument, its value and the allowed values, before any TVM work.
    """
    config = AttentionConfig(B, Sq, Skv, Hq, Hkv, D, is_causal, dtype=dtype, scale=scale, return_lse=return_lse)
    return build_kernel(make_plan(config, schedule))


def build_kernel(plan: Plan) -> PrimFunc:
    """The PrimFunc of a plan. Threads take turns."""
    with turn():
        return _trace(plan)


def _trace(plan: Plan) -> PrimFunc:
    config = plan.config
    SOFTMAX, CORRECTION, MMA, LOAD, STORE = plan.warps.roles
    tensors = Parameters(plan)
    q_layout, o_layout = (tensors.layout(name, tensors.queries) for name in "qo")
    k_layout, v_layout = (tensors.layout(name, tensors.keys) for name in "kv")

    @T.prim_func
    def flash_attention4(q: T.handle, k: T.handle, v: T.handle, o: T.handle, lse: T.handle, scale: T.float32):
        Q = T.match_buffer(q, tensors.queries, config.dtype, **q_layout)
        K = T.match_buffer(k, tensors.keys, config.dtype, **k_layout)
        V = T.match_buffer(v, tensors.keys, config.dtype, **v_layout)
        O = T.match_buffer(o, tensors.queries, config.dtype, **o_layout)
        LSE = T.match_buffer(lse, tensors.lse, "float32")
        tensors.refuse_misfits(scale)
        counts = T.meta_var(tensors.counts())
        T.device_entry()
        # One CTA per SM; without this bound ptxas drops setmaxnreg.
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        ctx = Context(plan, counts, Q, K, V, O, LSE, scale)
        ctx.tmem.commit()
        T.ptx.fence.mbarrier_init.release.cluster()
        clear_unused_rows(ctx, Q_STAGES)
        T.cuda.cta_sync()

        if ctx.warpgroup <= SOFTMAX.warpgroups[-1]:
            T.ptx["setmaxnreg.inc.sync.aligned.u32"](SOFTMAX.registers)
            softmax_role(ctx)
        elif ctx.warpgroup == CORRECTION.warpgroups[0]:
            T.ptx["setmaxnreg.dec.sync.aligned.u32"](CORRECTION.registers)
            correction_role(ctx)
        else:
            T.ptx["setmaxnreg.dec.sync.aligned.u32"](MMA.registers)
            if ctx.warp == MMA.warp:
                mma_role(ctx)
            elif ctx.warp == LOAD.warp:
                load_role(ctx)
            elif ctx.warp == STORE.warp:
                store_role(ctx)

        # No tcgen05 fence: each role has published its last access to TMEM before its last arrival.
        T.cuda.cta_sync()
        ctx.tmem.dealloc()

    return finish(flash_attention4, config, declaration(plan.warps, protocol(plan), plan.target))
