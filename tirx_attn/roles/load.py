"""Load role: brings Q, K and V tiles from global to shared memory by TMA.

Runs on: one warp of the issue warpgroup.
Reads:   Q, K, V in global memory.
Writes:  q_smem, kv_smem.
"""

from __future__ import annotations

from tvm.script import tirx as T

from tirx_attn.roles.tma import load_kv, load_q


@T.inline
def load_role(ctx):
    bar = T.meta_var(ctx.barriers)
    slot = bar.cursor("kv_load.empty", ctx.plan.schedule.kv_stages)
    q_free = bar.cursor("q_load.empty")
    task = ctx.tasks("load")
    task.init(ctx.cta)
    while task.valid():
        key_blocks: T.let = ctx.tiles.key_blocks(task.m_block_idx)
        if key_blocks > 0:
            load_q(ctx, task, ctx.tiles.first_token(task.m_block_idx, 0), 0, q_free.phase)
            load_kv(ctx, ctx.k, task, key_blocks - 1, slot)
            load_q(ctx, task, ctx.tiles.first_token(task.m_block_idx, 1), 1, q_free.phase)
            load_kv(ctx, ctx.v, task, key_blocks - 1, slot)
            for i in T.serial(key_blocks - 1, unroll=False):
                load_kv(ctx, ctx.k, task, key_blocks - 2 - i, slot)
                load_kv(ctx, ctx.v, task, key_blocks - 2 - i, slot)
            q_free.advance()
        task.next_tile()
