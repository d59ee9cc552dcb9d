"""What every role of the sm_90a kernel sees: the plan, its own ids, the tensors, the views of shared memory, barriers.

The legend of names is that of roles/context.py. `slot` is a place for a Q tile, or in the K/V ring.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx.lang.alloc_pool import SMEMPool
from tvm.tirx.lang.tile_scheduler import FlashAttentionLinearScheduler

from tirx_attn.barriers.device import Barriers
from tirx_attn.config import TILE_KEYS
from tirx_attn.hopper.plan import HopperPlan
from tirx_attn.hopper.protocol import hopper_protocol
from tirx_attn.roles import storage
from tirx_attn.roles.parameters import Counts, unsigned
from tirx_attn.schedule.parts import WARPGROUP_THREADS


@T.meta_class
class HopperContext:
    """Storage, barriers and thread ids of one CTA. Built once, at kernel level, by every thread."""

    def __init__(self, plan: HopperPlan, counts: Counts, q, k, v, o, lse, scale):
        self.plan, self.config, self.counts = plan, plan.config, counts
        self.q, self.k, self.v, self.o, self.lse = q, k, v, o, lse
        self.tiles = plan.tiles_of(counts.sq, counts.skv)
        self.scale_log2 = storage.scale_log2(plan.config, scale)
        self.cta = T.cta_id([plan.grid])
        self.warpgroup = T.warpgroup_id([len(plan.warps.registers)])
        self.warp = T.warp_id_in_wg([4])
        self.thread = T.thread_id_in_wg([WARPGROUP_THREADS])
        self.lane = T.lane_id([32])

        pool = SMEMPool()
        smem, schedule = plan.smem, plan.schedule
        self.q_smem = storage.tiles(pool, smem.q, schedule.q_stages, schedule.rows, plan.config)
        self.kv_smem = storage.tiles(pool, smem.kv, schedule.kv_stages, TILE_KEYS, plan.config)
        self.o_smem = storage.tiles(pool, smem.o, 1, schedule.rows, plan.config)
        self.q_rows = storage.packed(self.q_smem, schedule.q_stages, self.tiles)
        self.o_rows = storage.packed(self.o_smem, 1, self.tiles)
        pool.move_base_to(smem.control.start)
        self.barriers = Barriers(pool, hopper_protocol(plan))
        if pool.offset > smem.control.end:
            raise ValueError(f"barriers need {pool.offset} bytes of shared memory, planned are {smem.control.end}")
        pool.commit(smem.size)

    def stops(self, role: str):
        """A role's own walk over the CTA's stops; all roles make the same ones in the same order."""
        counts = self.counts
        along = unsigned(self.plan.stops(counts.m_blocks))
        return FlashAttentionLinearScheduler(role, unsigned(counts.batches), self.config.Hkv, along, self.plan.grid)

    def tile(self, stop, turn):
        """Query tile of a stop's turn: first the long one from the end, then the short one from the start."""
        if self.plan.tiles_per_stop == 1:
            return stop.m_block_idx
        return T.if_then_else(turn == 0, self.counts.m_blocks - 1 - stop.m_block_idx, stop.m_block_idx)

    def has_tile(self, stop, turn):
        """False for the second turn where long and short tile are the same."""
        if self.plan.tiles_per_stop == 1:
            return T.bool(True)
        return (turn == 0) | (2 * stop.m_block_idx + 1 < self.counts.m_blocks)
