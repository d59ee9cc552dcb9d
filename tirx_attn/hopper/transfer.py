"""Load and store roles of the sm_90a kernel.

Run on:  one warp each of the first warpgroup.
Read:    Q, K, V in global memory; o_smem.
Write:   q_smem, kv_smem; O in global memory.
"""

from __future__ import annotations

from tvm.script import tirx as T

from tirx_attn.roles.tma import load_kv, load_q, store_o


@T.inline
def load_role(ctx):
    bar = T.meta_var(ctx.barriers)
    kv = bar.cursor("kv_load.empty", ctx.plan.schedule.kv_stages)
    q = bar.cursor("q_load.empty", ctx.plan.schedule.q_stages)
    stop = ctx.stops("load")
    stop.init(ctx.cta)
    while stop.valid():
        for turn in T.serial(ctx.plan.tiles_per_stop, unroll=False):
            m_block: T.let = ctx.tile(stop, turn)
            key_blocks: T.let = ctx.tiles.key_blocks(m_block)
            if ctx.has_tile(stop, turn):
                if key_blocks > 0:
                    load_q(ctx, stop, ctx.tiles.first_token(m_block, 0), q.stage, q.phase)
                    q.advance()
                    load_kv(ctx, ctx.k, stop, key_blocks - 1, kv)
                    # K of a block comes ahead of V of the one before: the order in which their MMAs are issued.
                    for i in T.serial(key_blocks - 1, unroll=False):
                        load_kv(ctx, ctx.k, stop, key_blocks - 2 - i, kv)
                        load_kv(ctx, ctx.v, stop, key_blocks - 1 - i, kv)
                    load_kv(ctx, ctx.v, stop, 0, kv)
        stop.next_tile()


@T.inline
def store_role(ctx):
    staged = ctx.barriers.cursor("o_staged.full")
    stop = ctx.stops("store")
    stop.init(ctx.cta)
    while stop.valid():
        for turn in T.serial(ctx.plan.tiles_per_stop, unroll=False):
            m_block: T.let = ctx.tile(stop, turn)
            if ctx.has_tile(stop, turn):
                store_o(ctx, stop, ctx.tiles.first_token(m_block, 0), 0, staged.phase, 0)
                ctx.barriers.o_staged_empty.arrive(0)
                staged.advance()
        stop.next_tile()
