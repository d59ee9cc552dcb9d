"""What every role sees: the plan, its own ids, the tensors, the views of shared and tensor memory, the barriers.

Legend. `*_smem`, `*_tmem`, `*_reg` say where a buffer lies; s is QKᵀ, p its exponentials in 16 bit, o the accumulator.
`stage` is one of the two query tiles of a task, `slot` a place in the K/V ring. UPPER names are known when the kernel
is generated, lower ones at run time.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx.lang.alloc_pool import SMEMPool, TMEMPool
from tvm.tirx.lang.tile_scheduler import FlashAttentionLinearScheduler, FlashAttentionLPTScheduler

from tirx_attn.barriers.device import Barriers
from tirx_attn.barriers.protocol import protocol
from tirx_attn.config import TILE_KEYS, TILE_ROWS
from tirx_attn.roles import storage
from tirx_attn.roles.parameters import Counts, unsigned
from tirx_attn.schedule.plan import Q_STAGES, Plan


@T.meta_class
class Context:
    """Storage, barriers and thread ids of one CTA. Built once, at kernel level, by every thread."""

    def __init__(self, plan: Plan, counts: Counts, q, k, v, o, lse, scale):
        self.plan, self.config, self.counts = plan, plan.config, counts
        self.q, self.k, self.v, self.o, self.lse = q, k, v, o, lse
        self.tiles = plan.tiles_of(counts.sq, counts.skv)
        self.scale_log2 = storage.scale_log2(plan.config, scale)
        self.cta = T.cta_id([counts.tasks if plan.grid is None else plan.grid])
        self.warpgroup = T.warpgroup_id([len(plan.warps.registers)])
        self.warp = T.warp_id_in_wg([4])
        self.thread = T.thread_id_in_wg([TILE_ROWS])

        pool = SMEMPool()
        d = plan.config.D
        self.q_smem = storage.tiles(pool, plan.smem.q, Q_STAGES, TILE_ROWS, plan.config)
        self.kv_smem = storage.tiles(pool, plan.smem.kv, plan.schedule.kv_stages, TILE_KEYS, plan.config)
        self.o_smem = storage.tiles(pool, plan.smem.o, plan.schedule.o_stages, TILE_ROWS, plan.config)
        self.q_rows = storage.packed(self.q_smem, Q_STAGES, self.tiles)
        self.o_rows = storage.packed(self.o_smem, plan.schedule.o_stages, self.tiles)
        self.acc_scale_smem = self._statistic(pool, plan.smem.acc_scale)
        self.row_sum_smem = self._statistic(pool, plan.smem.row_sum)
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

    def _accumulator(self, regions, columns):
        self.tmem.move_base_to(regions[0].start)
        return self.tmem.alloc_tcgen05_mma_D((TILE_ROWS, len(regions) * columns), "float32", M=TILE_ROWS, cta_group=1)

    def _statistic(self, pool, region):
        """One float32 for each row of the Q tiles; None where the plan has no place for it."""
        pool.move_base_to(region.start)
        return pool.alloc((Q_STAGES, TILE_ROWS), "float32") if region.size else None

    def _first_warp(self, role):
        return 4 * role.warpgroups[0] + role.warp

    def p_column(self, stage):
        """First column of a stage's P in `p_tmem`."""
        first = self.plan.tmem.p
        return 2 * first[0].start + stage * 2 * (first[1].start - first[0].start)

    def staging_tile(self, stage):
        """Tile of `o_smem` that a stage's O goes through."""
        return stage if self.plan.schedule.o_stages == Q_STAGES else 0

    def freed_stage(self, stage):
        """Stage that may write its staging tile once a stage's one has been read."""
        return stage if self.plan.schedule.o_stages == Q_STAGES else 1 - stage

    def tasks(self, role: str):
        """A role's own walk over the CTA's tasks; all roles walk the same ones in the same order."""
        counts = self.counts
        shape = (unsigned(counts.batches), self.config.Hkv, unsigned(counts.m_blocks))
        if self.plan.is_persistent:
            return FlashAttentionLinearScheduler(role, *shape, self.plan.grid)
        return FlashAttentionLPTScheduler(role, *shape, unsigned(counts.l2_heads))
