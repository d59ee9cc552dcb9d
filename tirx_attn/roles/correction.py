"""Correction role: rescales O in TMEM when the softmax reference of a row moved; may own the epilogue.

Runs on: one warpgroup, for both query stages; thread r serves row r of each tile.
Reads:   acc_scale and row_sum (mailbox.py), o_tmem.
Writes:  o_tmem (and o_smem where it owns the epilogue).
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_attn.config import TILE_ROWS
from tirx_attn.roles import mailbox, rowmath
from tirx_attn.roles.epilogue import Epilogue
from tirx_attn.schedule.plan import Q_STAGES


@T.inline
def receive_acc_scale(ctx, stage, statistic):
    """statistic[0] = acc_scale of the same row. Its place is free once this thread has arrived on p_o_rescale."""
    ctx.barriers.stats_full.wait(stage, ctx.warp)
    mailbox.take(ctx, "acc_scale", stage, statistic)


@T.inline
def receive_row_sum(ctx, stage, phase, statistic):
    """statistic[0] = row_sum of the same row; frees its place."""
    ctx.barriers.row_sum_full.wait(stage, phase)
    mailbox.take(ctx, "row_sum", stage, statistic)
    ctx.barriers.row_sum_empty.arrive(stage)


@T.inline
def scale_o(ctx, stage, acc_scale):
    """O of the thread's row *= acc_scale.

    No wait for the PV of the block before: its commit is the s_ready that the sender of acc_scale has waited for.
    """
    COLUMNS = T.meta_var(ctx.plan.schedule.rescale_columns)
    D = T.meta_var(ctx.config.D)
    o_reg = T.alloc_tcgen05_ldst_frag("32x32b", (TILE_ROWS, COLUMNS), "float32")
    if not ctx.plan.schedule.statistics_in_tmem:  # else the fence ahead of the load of acc_scale does
        T.ptx.tcgen05.fence__after_thread_sync()
    for i in T.unroll(D // COLUMNS):
        column: T.let = stage * D + i * COLUMNS
        Tx.wg.copy_async(o_reg[:, :], ctx.o_tmem[:, column : column + COLUMNS])
        T.ptx.tcgen05.wait__ld.sync.aligned()
        rowmath.scale_columns(o_reg.local(COLUMNS), COLUMNS, acc_scale)
        Tx.wg.copy_async(ctx.o_tmem[:, column : column + COLUMNS], o_reg[:, :])
    T.ptx.tcgen05.wait__st.sync.aligned()
    T.ptx.tcgen05.fence__before_thread_sync()


@T.inline
def rescale(ctx, stage, acc_scale):
    """O of the thread's row *= acc_scale; where it is voted on, skipped by warps in which no row needs it."""
    if ctx.plan.schedule.rescale == "voted":
        if T.cuda.any_sync(T.uint32(0xFFFFFFFF), T.cast(acc_scale < T.float32(1), "int32")) != 0:
            scale_o(ctx, stage, acc_scale)
    else:
        scale_o(ctx, stage, acc_scale)


@T.inline
def correction_role(ctx):
    OWNS_EPILOGUE = T.meta_var(ctx.plan.epilogue is ctx.plan.warps.correction)
    epilogue = Epilogue(ctx)
    statistic = T.alloc_local([1], "float32")
    row_sum = T.meta_var(ctx.barriers.cursor("row_sum.full") if OWNS_EPILOGUE else None)
    for stage in T.unroll(Q_STAGES):
        ctx.barriers.give_credit("correction", stage)
    task = ctx.tasks("correction")
    task.init(ctx.cta)
    while task.valid():
        key_blocks: T.let = ctx.tiles.key_blocks(task.m_block_idx)
        if key_blocks > 0:
            # Block 0 overwrites O: its acc_scale is not sent, its arrival on p_o_rescale is the epilogue's.
            for _ in T.serial(key_blocks - 1, unroll=False):
                for stage in T.unroll(Q_STAGES):
                    receive_acc_scale(ctx, stage, statistic)
                    rescale(ctx, stage, statistic[0])
                    ctx.barriers.p_o_rescale.arrive(stage)
            if OWNS_EPILOGUE:
                for stage in T.serial(Q_STAGES, unroll=False):
                    receive_row_sum(ctx, stage, row_sum.phase, statistic)
                    epilogue.normalise(stage, statistic[0])
                row_sum.advance()
        else:
            if OWNS_EPILOGUE:
                for stage in T.unroll(Q_STAGES):
                    epilogue.write_zeros(stage)
        epilogue.next_task(key_blocks > 0)
        task.next_tile()
