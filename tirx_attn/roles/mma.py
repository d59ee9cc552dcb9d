"""MMA role: issues S = QKᵀ and O += PV, and commits their completion. Its warp also owns the TMEM allocation.

Runs on: one warp of the issue warpgroup.
Reads:   q_smem, kv_smem, p_tmem.
Writes:  s_tmem, o_tmem.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_attn.config import TILE_KEYS
from tirx_attn.schedule.plan import Q_STAGES


@T.inline
def issue_qk(ctx, stage, k_slot):
    """S of a stage = its Q tile times the K tile of a slot. The operands' full barriers have been waited for.

    No tcgen05 fence: TMA completes in the async proxy, as the MMA reads. That S has been read is known since the PV
    that was issued before.
    """
    Tx.warp.gemm_async(
        ctx.s_tmem[:, stage * TILE_KEYS : (stage + 1) * TILE_KEYS],
        ctx.q_smem[stage, :, :],
        ctx.kv_smem[k_slot, :, :],
        dispatch="tcgen05",
    )
    ctx.barriers.s_ready.arrive(stage, pred=T.cuda.elect_sync())


@T.inline
def issue_part_of_pv(ctx, stage, v_slot, phase, accumulate, PART):
    """The product of one part, once it is in TMEM."""
    FIRST = T.meta_var(sum(ctx.plan.schedule.pv_split[:PART]))
    END = T.meta_var(sum(ctx.plan.schedule.pv_split[: PART + 1]))
    D = T.meta_var(ctx.config.D)
    ready = T.meta_var(ctx.barriers.part_of_p(PART))
    ready.wait(stage, phase)
    T.ptx.tcgen05.fence__after_thread_sync()
    p = T.meta_var(ctx.p_column(stage))
    Tx.warp.gemm_async(
        ctx.o_tmem[:, stage * D : (stage + 1) * D],
        ctx.p_tmem[:, p + FIRST : p + END],
        ctx.kv_smem[v_slot, FIRST:END, :],
        transB=True,
        accum=accumulate,
        dispatch="tcgen05",
    )


@T.inline
def issue_pv(ctx, stage, v_slot, phase, accumulate):
    """O of a stage (+)= its P times the V tile of a slot, in the parts in which P is handed over."""
    PARTS = T.meta_var(len(ctx.plan.schedule.pv_split))
    issue_part_of_pv(ctx, stage, v_slot, phase, accumulate, 0)
    if PARTS > 1:
        issue_part_of_pv(ctx, stage, v_slot, phase, True, 1)
    if PARTS > 2:
        issue_part_of_pv(ctx, stage, v_slot, phase, True, 2)
    if PARTS > 3:
        issue_part_of_pv(ctx, stage, v_slot, phase, True, 3)


@T.inline
def mma_role(ctx):
    bar = T.meta_var(ctx.barriers)
    BY_TILE = T.meta_var(ctx.plan.schedule.mma_order == "by_tile")
    ROW_SUM_IN_TMEM = T.meta_var(len(ctx.plan.tmem.row_sum) > 0)
    row_sum = T.meta_var(bar.cursor("row_sum.empty") if ROW_SUM_IN_TMEM else None)
    slot = bar.cursor("kv_load.full", ctx.plan.schedule.kv_stages)
    q_full = bar.cursor("q_load.full")
    p_full = bar.cursor("p_o_rescale")  # the other parts of P are waited for once per block too: they share the cursor
    v_slot = T.local_scalar("int32")
    task = ctx.tasks("mma")
    task.init(ctx.cta)
    while task.valid():
        key_blocks: T.let = ctx.tiles.key_blocks(task.m_block_idx)
        if key_blocks > 0:
            bar.kv_load_full.wait(slot.stage, slot.phase)
            for stage in T.unroll(Q_STAGES):
                bar.q_load_full.wait(stage, q_full.phase)
                if ROW_SUM_IN_TMEM:
                    # S overwrites row_sum of the task before.
                    bar.row_sum_empty.wait(stage, row_sum.phase)
                    T.ptx.tcgen05.fence__after_thread_sync()
                issue_qk(ctx, stage, slot.stage)
            bar.kv_load_empty.arrive(slot.stage, pred=T.cuda.elect_sync())
            slot.advance()
            for j in T.serial(key_blocks - 1, unroll=False):
                # S of block j + 1 follows PV of block j in issue order, so it may overwrite that block's P (TmemPlan).
                v_slot = slot.stage
                bar.kv_load_full.wait(slot.stage, slot.phase)
                slot.advance()
                if BY_TILE:
                    for stage in T.serial(Q_STAGES, unroll=False):
                        issue_pv(ctx, stage, v_slot, p_full.phase, j != 0)
                        if stage == Q_STAGES - 1:
                            bar.kv_load_empty.arrive(v_slot, pred=T.cuda.elect_sync())
                        bar.kv_load_full.wait(slot.stage, slot.phase)
                        issue_qk(ctx, stage, slot.stage)
                else:
                    for stage in T.serial(Q_STAGES, unroll=False):
                        issue_pv(ctx, stage, v_slot, p_full.phase, j != 0)
                    bar.kv_load_empty.arrive(v_slot, pred=T.cuda.elect_sync())
                    bar.kv_load_full.wait(slot.stage, slot.phase)
                    for stage in T.serial(Q_STAGES, unroll=False):
                        issue_qk(ctx, stage, slot.stage)
                bar.kv_load_empty.arrive(slot.stage, pred=T.cuda.elect_sync())
                slot.advance()
                p_full.advance()
            for stage in T.unroll(Q_STAGES):
                bar.q_load_empty.arrive(stage, pred=T.cuda.elect_sync())
            bar.kv_load_full.wait(slot.stage, slot.phase)
            for stage in T.unroll(Q_STAGES):
                issue_pv(ctx, stage, slot.stage, p_full.phase, key_blocks > 1)
                bar.o_ready.arrive(stage, pred=T.cuda.elect_sync())
            bar.kv_load_empty.arrive(slot.stage, pred=T.cuda.elect_sync())
            slot.advance()
            p_full.advance()
            q_full.advance()
            if ROW_SUM_IN_TMEM:
                row_sum.advance()
        task.next_tile()
