"""The sm_90a kernel: who exists, what is allocated, who does what."""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from tirx_attn.barriers.render import declaration
from tirx_attn.hopper.consumer import consumer_role
from tirx_attn.hopper.context import HopperContext
from tirx_attn.hopper.plan import HopperPlan
from tirx_attn.hopper.protocol import hopper_protocol
from tirx_attn.hopper.transfer import load_role, store_role
from tirx_attn.roles.parameters import Parameters
from tirx_attn.roles.storage import clear_unused_rows
from tirx_attn.tracing import finish, turn


def build_hopper_kernel(plan: HopperPlan) -> PrimFunc:
    """The PrimFunc of a plan. Its parameters are those of the Blackwell kernel. Threads take turns."""
    with turn():
        return _trace(plan)


def _trace(plan: HopperPlan) -> PrimFunc:
    config = plan.config
    CONSUMER, LOAD, STORE = plan.warps.consumer, plan.warps.load, plan.warps.store
    tensors = Parameters(plan)
    q_layout, o_layout = (tensors.layout(name, tensors.queries) for name in "qo")
    k_layout, v_layout = (tensors.layout(name, tensors.keys) for name in "kv")

    @T.prim_func
    def flash_attention(q: T.handle, k: T.handle, v: T.handle, o: T.handle, lse: T.handle, scale: T.float32):
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
        ctx = HopperContext(plan, counts, Q, K, V, O, LSE, scale)
        T.ptx.fence.mbarrier_init.release.cluster()
        clear_unused_rows(ctx, plan.schedule.q_stages)
        T.cuda.cta_sync()

        if ctx.warpgroup == LOAD.warpgroups[0]:
            T.ptx["setmaxnreg.dec.sync.aligned.u32"](LOAD.registers)
            if ctx.warp == LOAD.warp:
                load_role(ctx)
            elif ctx.warp == STORE.warp:
                store_role(ctx)
        else:
            T.ptx["setmaxnreg.inc.sync.aligned.u32"](CONSUMER.registers)
            consumer_role(ctx)

    return finish(flash_attention, config, declaration(plan.warps, hopper_protocol(plan), plan.target))
