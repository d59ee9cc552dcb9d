"""Load role: brings Q, K and V tiles from global to shared memory by TMA.

Runs on: one warp of the issue warpgroup.
Reads:   Q, K, V in global memory.
Writes:  q_smem, kv_smem.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_attn.config import TILE_KEYS
from tirx_attn.schedule.plan import PANEL_COLUMNS


@T.inline
def load_q(ctx, task, stage, phase):
    """One query tile: `tokens` rows of global memory, all heads of the K/V head's group."""
    TOKENS = T.meta_var(ctx.tiles.tokens_per_tile)
    RATIO = T.meta_var(ctx.config.ratio)
    full = T.meta_var(ctx.barriers.q_load_full)
    token: T.let = ctx.tiles.first_token(task.m_block_idx, stage)
    head: T.let = task.head_idx * RATIO
    ctx.barriers.q_load_empty.wait(stage, phase)
    if T.cuda.elect_sync():
        for panel in T.unroll(ctx.config.D // PANEL_COLUMNS):
            Tx.copy_async(
                ctx.q_rows[stage, panel, :, :, :],
                ctx.q[
                    task.batch_idx,
                    token : token + TOKENS,
                    head : head + RATIO,
                    panel * PANEL_COLUMNS : (panel + 1) * PANEL_COLUMNS,
                ],
                dispatch="tma_explicit",
                mbar=full.ptr_to([stage]),
            )
        full.arrive(stage, ctx.plan.q_tile_bytes)


@T.inline
def load_kv(ctx, tensor, task, block, slot):
    """One K or V tile into the ring's next slot."""
    full = T.meta_var(ctx.barriers.kv_load_full)
    key: T.let = block * TILE_KEYS
    ctx.barriers.kv_load_empty.wait(slot.stage, slot.phase)
    if T.cuda.elect_sync():
        for panel in T.unroll(ctx.config.D // PANEL_COLUMNS):
            Tx.copy_async(
                ctx.kv_smem[slot.stage, :, panel * PANEL_COLUMNS : (panel + 1) * PANEL_COLUMNS],
                tensor[
                    task.batch_idx,
                    key : key + TILE_KEYS,
                    task.head_idx,
                    panel * PANEL_COLUMNS : (panel + 1) * PANEL_COLUMNS,
                ],
                dispatch="tma_explicit",
                mbar=full.ptr_to([slot.stage]),
            )
        full.arrive(slot.stage, ctx.plan.tile_bytes)
    slot.advance()


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
            load_q(ctx, task, 0, q_free.phase)
            load_kv(ctx, ctx.k, task, key_blocks - 1, slot)
            load_q(ctx, task, 1, q_free.phase)
            load_kv(ctx, ctx.v, task, key_blocks - 1, slot)
            for i in T.serial(key_blocks - 1, unroll=False):
                load_kv(ctx, ctx.k, task, key_blocks - 2 - i, slot)
                load_kv(ctx, ctx.v, task, key_blocks - 2 - i, slot)
            q_free.advance()
        task.next_tile()
