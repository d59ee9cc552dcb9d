"""The kernel: who exists, what is allocated, who does what. Roles are in roles/, waits in barriers/protocol.py."""

from __future__ import annotations

from tvm.script import tirx as T

from tirx_attn.barriers import PROTOCOL_ATTRIBUTE
from tirx_attn.barriers.render import declaration
from tirx_attn.config import AttentionConfig
from tirx_attn.roles.context import DTYPE, Context
from tirx_attn.roles.correction import correction_role
from tirx_attn.roles.epilogue import store_role
from tirx_attn.roles.load import load_role
from tirx_attn.roles.mma import mma_role
from tirx_attn.roles.softmax import softmax_role
from tirx_attn.schedule.plan import Plan, make_plan
from tirx_attn.schedule.schedule import Schedule


def get_flash_attention4_kernel(
    B: int,
    Sq: int,
    Skv: int,
    Hq: int,
    Hkv: int,
    D: int,
    is_causal: bool = False,
    *,
    schedule: Schedule | None = None,
):
    """FlashAttention-4 forward for NVIDIA Blackwell as a TIRx PrimFunc.

    The PrimFunc computes O = softmax(Q·Kᵀ/sqrt(D))·V. Its parameters are contiguous fp16 tensors
    Q [B, Sq, Hq, D], K [B, Skv, Hkv, D], V [B, Skv, Hkv, D] and the output O [B, Sq, Hq, D]. Compile it with
    `tvm.compile(tvm.IRModule({"main": kernel}), target=target, tir_pipeline="tirx")`.

    Args:
        B, Sq, Skv, Hq, Hkv, D, is_causal: the problem; see AttentionConfig for ranges and mask alignment.
        schedule: how to run it; None takes the tuning table's row.

    Raises:
        TypeError, ValueError: naming the argument, its value and the allowed values, before any TVM work.
    """
    return build_kernel(make_plan(AttentionConfig(B, Sq, Skv, Hq, Hkv, D, is_causal), schedule))


def build_kernel(plan: Plan):
    """The PrimFunc of a plan."""
    config = plan.config
    SOFTMAX, CORRECTION, MMA, LOAD, STORE = plan.warps.roles

    @T.prim_func
    def flash_attention4(q: T.handle, k: T.handle, v: T.handle, o: T.handle):
        Q = T.match_buffer(q, (config.B, config.Sq, config.Hq, config.D), DTYPE)
        K = T.match_buffer(k, (config.B, config.Skv, config.Hkv, config.D), DTYPE)
        V = T.match_buffer(v, (config.B, config.Skv, config.Hkv, config.D), DTYPE)
        O = T.match_buffer(o, (config.B, config.Sq, config.Hq, config.D), DTYPE)
        T.device_entry()
        # One CTA per SM; without this bound ptxas drops setmaxnreg.
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        ctx = Context(plan, Q, K, V, O)
        ctx.tmem.commit()
        T.ptx.fence.mbarrier_init.release.cluster()
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

    return flash_attention4.with_attr(PROTOCOL_ATTRIBUTE, declaration(plan))
