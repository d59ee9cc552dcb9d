"""Tiles between global and shared memory by TMA, for the load and store roles of every architecture.

A query tile is its tokens with all heads that share a K/V head: `q_rows` and `o_rows` show the tile as TMA sees it.
Rows beyond a length come as zeros and are dropped by a store.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_attn.config import TILE_KEYS
from tirx_attn.schedule.parts import PANEL_COLUMNS


@T.inline
def load_q(ctx, task, first_token, slot, phase):
    """The query tile that begins at a token into a slot."""
    TOKENS = T.meta_var(ctx.tiles.tokens_per_tile)
    RATIO = T.meta_var(ctx.config.ratio)
    full = T.meta_var(ctx.barriers.q_load_full)
    token: T.let = first_token
    head: T.let = task.head_idx * RATIO
    ctx.barriers.q_load_empty.wait(slot, phase)
    if T.cuda.elect_sync():
        for panel in T.unroll(ctx.config.D // PANEL_COLUMNS):
            Tx.copy_async(
                ctx.q_rows[slot, panel, :, :, :],
                ctx.q[
                    task.batch_idx,
                    token : token + TOKENS,
                    head : head + RATIO,
                    panel * PANEL_COLUMNS : (panel + 1) * PANEL_COLUMNS,
                ],
                dispatch="tma_explicit",
                mbar=full.ptr_to([slot]),
            )
        full.arrive(slot, ctx.plan.q_tile_bytes)


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
def store_o(ctx, task, first_token, stage, phase, tile):
    """The output tile of a stage that begins at a token, out of a staging tile, which is free again on return."""
    TOKENS = T.meta_var(ctx.tiles.tokens_per_tile)
    RATIO = T.meta_var(ctx.config.ratio)
    token: T.let = first_token
    head: T.let = task.head_idx * RATIO
    ctx.barriers.o_staged_full.wait(stage, phase)
    # A tile beyond Sq has no row to store; TMA drops the rows of a tile that crosses Sq.
    if token < ctx.counts.sq:
        if T.cuda.elect_sync():
            for panel in T.unroll(ctx.config.D // PANEL_COLUMNS):
                Tx.copy_async(
                    ctx.o[
                        task.batch_idx,
                        token : token + TOKENS,
                        head : head + RATIO,
                        panel * PANEL_COLUMNS : (panel + 1) * PANEL_COLUMNS,
                    ],
                    ctx.o_rows[tile, panel, :, :, :],
                    dispatch="tma_explicit",
                )
            T.ptx.cp.async_.bulk.commit_group()
            T.ptx.cp.async_.bulk.wait_group.read(0)
    T.cuda.warp_sync()
