"""What every role sees: the plan, its own ids, the tensors, the views of shared and tensor memory, the barriers.

Legend. `*_smem`, `*_tmem`, `*_reg` say where a buffer lies; s is QKᵀ, p its exponentials in 16 bit, o the accumulator.
`stage` is one of the two query tiles of a task, `slot` a place in the K/V ring. UPPER names are known when the kernel
is generated, lower ones at run time.
"""

from __future__ import annotations

import math

from tvm.script import tirx as T
from tvm.tirx.lang.alloc_pool import SMEMPool, TMEMPool
from tvm.tirx.lang.tile_scheduler import FlashAttentionLinearScheduler, FlashAttentionLPTScheduler
from tvm.tirx.layout import ComposeLayout, S, TileLayout

from tirx_attn.barriers.device import Barriers
from tirx_attn.barriers.protocol import protocol
from tirx_attn.config import RUNTIME, TILE_KEYS, TILE_ROWS
from tirx_attn.roles.parameters import Counts
from tirx_attn.schedule.plan import PANEL_COLUMNS, Q_STAGES, WARP_THREADS, Plan
from tirx_attn.schedule.tiles import TaskTiles

LOG2_E = math.log2(math.e)


@T.meta_class
class Context:
    """Storage, barriers and thread ids of one CTA. Built once, at kernel level, by every thread."""

    def __init__(self, plan: Plan, counts: Counts, q, k, v, o, lse, scale):
        self.plan, self.config, self.counts = plan, plan.config, counts
        self.q, self.k, self.v, self.o, self.lse = q, k, v, o, lse
        self.tiles = TaskTiles(plan.config, counts.sq, counts.skv)
        # Turns a raw score into a base-2 exponent.
        if self.config.scale == RUNTIME:
            self.scale_log2 = scale * T.float32(LOG2_E)
        else:
            self.scale_log2 = T.float32(LOG2_E * self.config.softmax_scale)
        self.cta = T.cta_id([counts.tasks if plan.grid is None else plan.grid])
        self.warpgroup = T.warpgroup_id([len(plan.warps.registers)])
        self.warp = T.warp_id_in_wg([4])
        self.thread = T.thread_id_in_wg([TILE_ROWS])

        pool = SMEMPool()
        d = plan.config.D
        self.q_smem = self._tiles(pool, plan.smem.q, Q_STAGES)
        self.kv_smem = self._tiles(pool, plan.smem.kv, plan.schedule.kv_stages)
        self.o_smem = self._tiles(pool, plan.smem.o, Q_STAGES)
        self.q_rows, self.o_rows = self._packed(self.q_smem), self._packed(self.o_smem)
        pool.move_base_to(plan.smem.mailbox.start)
        self.mailbox = pool.alloc((Q_STAGES, TILE_ROWS), "float32")
        pool.move_base_to(plan.smem.control.start)
        self.barriers = Barriers(pool, protocol(plan))

        self.tmem = TMEMPool(pool, plan.tmem.columns, alloc_warp=self._first_warp(plan.warps.mma))
        self.s_tmem = self._accumulator(plan.tmem.s, TILE_KEYS)
        self.o_tmem = self._accumulator(plan.tmem.o, d)
        self.tmem.move_base_to(0)
        # 16-bit view of the columns up to the last of P: 32-bit column c is elements 2c and 2c + 1.
        self.p_tmem = self.tmem.alloc_tcgen05_mma_A(
            (TILE_ROWS, 2 * plan.tmem.p[-1].end), self.config.dtype, M=TILE_ROWS, cta_group=1
        )
        if pool.offset > plan.smem.control.end:
            raise ValueError(f"barriers need {pool.offset} bytes of shared memory, planned are {plan.smem.control.end}")
        pool.commit(plan.smem.size)

    def _tiles(self, pool, region, stages):
        pool.move_base_to(region.start)
        return pool.alloc_tcgen05_mma_AB((stages, TILE_ROWS, self.config.D), self.config.dtype)

    def _packed(self, tiles):
        """The same tiles as [stage, panel, token, head, column]: how TMA sees packed rows."""
        tokens, ratio, panels = self.tiles.tokens_per_tile, self.config.ratio, self.config.D // PANEL_COLUMNS
        shape = (Q_STAGES, panels, tokens, ratio, PANEL_COLUMNS)
        panel = TILE_ROWS * PANEL_COLUMNS
        strides = (panels * panel, panel, ratio * PANEL_COLUMNS, PANEL_COLUMNS, 1)
        return tiles.view(*shape, layout=ComposeLayout(3, 3, 3, TileLayout(S[shape:strides])))

    def _accumulator(self, regions, columns):
        self.tmem.move_base_to(regions[0].start)
        return self.tmem.alloc_tcgen05_mma_D((TILE_ROWS, len(regions) * columns), "float32", M=TILE_ROWS, cta_group=1)

    def _first_warp(self, role):
        return 4 * role.warpgroups[0] + role.warp

    def p_column(self, stage):
        """First column of a stage's P in `p_tmem`."""
        first = self.plan.tmem.p
        return 2 * first[0].start + stage * 2 * (first[1].start - first[0].start)

    def tasks(self, role: str):
        """A role's own walk over the CTA's tasks; all roles walk the same ones in the same order."""
        counts = self.counts
        shape = (unsigned(counts.batches), self.config.Hkv, unsigned(counts.m_blocks))
        if self.plan.is_persistent:
            return FlashAttentionLinearScheduler(role, *shape, self.plan.grid)
        return FlashAttentionLPTScheduler(role, *shape, unsigned(counts.l2_heads))


def unsigned(count):
    """A count as uint32: the device divides by it without a case for negative numbers."""
    return count if isinstance(count, int) else T.cast(count, "uint32")


@T.inline
def clear_unused_rows(ctx):
    """Zero the rows of the Q tiles that hold no query: TMA never writes them, and the MMA reads them."""
    if ctx.tiles.used_rows < TILE_ROWS:
        if ctx.warpgroup < Q_STAGES:
            if ctx.warp == 0:
                for row in T.serial(ctx.tiles.used_rows, TILE_ROWS, unroll=False):
                    for i in T.unroll(ctx.config.D // WARP_THREADS):
                        column = T.meta_var(i * WARP_THREADS + ctx.thread)
                        ctx.q_smem[ctx.warpgroup, row, column] = T.cast(T.float32(0), ctx.config.dtype)
        T.ptx.fence.proxy.async_.shared__cta()
