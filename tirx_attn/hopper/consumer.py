"""Consumer role of the sm_90a kernel: both products, the softmax between them, and the epilogue, for 64 query rows.

Runs on: two or three warpgroups; a thread has two rows of the fragment of S and O (fragment.py).
Reads:   q_smem, kv_smem.
Writes:  o_smem; LSE in global memory.
"""

from __future__ import annotations

import math

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import tcgen05_atom_layout

from tirx_attn.config import TILE_KEYS
from tirx_attn.hopper import fragment, wgmma
from tirx_attn.hopper.fragment import NEGATIVE_INFINITY, ROWS, SCORES
from tirx_attn.hopper.schedule import CONSUMER_ROWS

LARGE = 2.0**13
"""Scaled row maximum from which on it is subtracted before the scores are scaled: exactly, where one fused multiply-add
would leave the rounding of the product in the exponent."""


@T.meta_class
class Consumer:
    """Cursors, registers and state of one consumer thread."""

    def __init__(self, ctx):
        D = ctx.config.D
        self.ctx = ctx
        self.group = ctx.warpgroup - ctx.plan.warps.consumer.warpgroups[0]
        self.kv = ctx.barriers.cursor("kv_load.full", ctx.plan.schedule.kv_stages)
        self.q = ctx.barriers.cursor("q_load.full", ctx.plan.schedule.q_stages)
        self.staging_free = ctx.barriers.cursor("o_staged.empty")
        self.q_tiles = T.local_scalar("uint64")
        self.kv_tiles = T.local_scalar("uint64")
        self.k_slot = T.local_scalar("int32")
        self.v_slot = T.local_scalar("int32")
        self.s = T.alloc_local((SCORES,), "float32")
        self.p = T.alloc_local((SCORES // 2,), "uint32")
        # The accumulator as registers, and as the warpgroup's tile.
        layout = tcgen05_atom_layout("16x256b", (CONSUMER_ROWS, D), "float32")
        self.o = T.alloc_local((D // 2,), "float32")
        self.o_tile = self.o.view(CONSUMER_ROWS, D, layout=layout)
        self.half = T.alloc_local((D // 2,), ctx.config.dtype)
        self.half_tile = self.half.view(CONSUMER_ROWS, D, layout=layout)
        self.maximum = T.alloc_local((ROWS,), "float32")
        self.total = T.alloc_local((ROWS,), "float32")
        self.factor = T.alloc_local((ROWS,), "float32")
        self.reference = T.alloc_local((ROWS,), "float32")
        self.visible = T.alloc_local((ROWS,), "int32")

    @T.inline
    def prepare(self):
        """Once, before the first task."""
        wgmma.encode(self.q_tiles, self.ctx.q_smem.ptr_to([0, 0, 0]))
        wgmma.encode(self.kv_tiles, self.ctx.kv_smem.ptr_to([0, 0, 0]))
        self.q_tiles = self.q_tiles + wgmma.consumer_rows(self.group)
        if self.ctx.plan.schedule.ping_pong:
            # The first turn is warpgroup 0's.
            if self.group == self.ctx.plan.schedule.consumers - 1:
                self.ctx.barriers.mma_turn.arrive(0, self.ctx.warp)

    def next_group(self):
        """The consumer whose turn comes after this one's."""
        CONSUMERS = self.ctx.plan.schedule.consumers
        return 1 - self.group if CONSUMERS == 2 else (self.group + 1) % CONSUMERS

    def row(self, r):
        """Row r of the thread, counted in the query tile."""
        return self.group * CONSUMER_ROWS + self.ctx.warp * 16 + self.ctx.lane // 4 + 8 * r

    @T.inline
    def release(self, edge, slot):
        """Each warp arrives once its own MMAs have read the slot."""
        if self.ctx.lane == 0:
            edge.arrive(slot)

    @T.inline
    def begin(self):
        """Before the first block of a tile."""
        for r in T.unroll(ROWS):
            self.maximum[r] = T.float32(NEGATIVE_INFINITY)
            self.total[r] = T.float32(0)
        for i in T.unroll(self.ctx.config.D // 2):
            self.o[i] = T.float32(0)

    @T.inline
    def issue_qk(self):
        self.ctx.barriers.kv_load_full.wait(self.kv.stage, self.kv.phase)
        self.k_slot = self.kv.stage
        self.kv.advance()
        if self.ctx.plan.schedule.ping_pong:
            self.ctx.barriers.mma_turn.wait(self.group, self.ctx.warp)
        q = T.meta_var(self.q_tiles + wgmma.slot_offset(self.q.stage, self.ctx.plan.schedule.rows, self.ctx.config.D))
        k = T.meta_var(self.kv_tiles + wgmma.slot_offset(self.k_slot, TILE_KEYS, self.ctx.config.D))
        wgmma.fence(self.s, SCORES)
        wgmma.qk(self.ctx, self.s, q, k)

    @T.inline
    def issue_pv(self):
        self.ctx.barriers.kv_load_full.wait(self.kv.stage, self.kv.phase)
        self.v_slot = self.kv.stage
        self.kv.advance()
        v = T.meta_var(self.kv_tiles + wgmma.slot_offset(self.v_slot, TILE_KEYS, self.ctx.config.D))
        wgmma.fence(self.o, self.ctx.config.D // 2)
        wgmma.pv(self.ctx, self.o, self.p, v)

    @T.inline
    def pass_turn(self):
        if self.ctx.plan.schedule.ping_pong:
            self.ctx.barriers.mma_turn.arrive(self.next_group(), self.ctx.warp)

    @T.inline
    def softmax(self, m_block, block, MASKED):
        """S to exponentials; factor[r] is what O of row r must be multiplied by."""
        scale = T.meta_var(self.ctx.scale_log2)
        new = T.alloc_local((ROWS,), "float32")
        if MASKED:
            for r in T.unroll(ROWS):
                self.visible[r] = self.ctx.tiles.visible_columns(m_block, 0, self.row(r), block)
            fragment.mask(self.s, self.visible, self.ctx.lane)
        fragment.row_maxima(self.s, new)
        for r in T.unroll(ROWS):
            new[r] = T.max(new[r], self.maximum[r])
            if MASKED:
                # A row without a key so far subtracts 0: −inf − (−inf) would be NaN.
                self.reference[r] = T.if_then_else(new[r] == T.float32(NEGATIVE_INFINITY), T.float32(0), new[r])
            else:
                self.reference[r] = new[r]
            T.ptx.ex2.approx.ftz.f32(self.factor[r], (self.maximum[r] - self.reference[r]) * scale)
            self.maximum[r] = new[r]
            self.total[r] = self.total[r] * self.factor[r]
        large: T.let = T.max(T.abs(self.reference[0]), T.abs(self.reference[1])) * scale > T.float32(LARGE)
        if T.cuda.any_sync(T.uint32(0xFFFFFFFF), T.cast(large, "int32")) != 0:
            for i in T.unroll(SCORES):
                self.s[i] = self.s[i] - self.reference[(i // 2) % 2]
            for r in T.unroll(ROWS):
                self.reference[r] = T.float32(0)
        for r in T.unroll(ROWS):
            self.reference[r] = self.reference[r] * scale
        fragment.exponentials(self.s, scale, self.reference)
        fragment.add_rows(self.total, self.s)

    @T.inline
    def first_block(self, m_block, block):
        """Block without a PV before it."""
        self.issue_qk()
        self.pass_turn()
        wgmma.wait(0)
        wgmma.fence(self.s, SCORES)
        self.release(self.ctx.barriers.kv_load_empty, self.k_slot)
        self.softmax(m_block, block, self.ctx.tiles.may_mask)
        fragment.pack(self.p, self.s, self.ctx.config.dtype)

    @T.inline
    def next_block(self, m_block, block, MASKED):
        """S of the block and PV of the block before are issued together; the softmax runs under the PV."""
        self.issue_qk()
        self.issue_pv()
        self.pass_turn()
        wgmma.wait(1)
        wgmma.fence(self.s, SCORES)
        self.release(self.ctx.barriers.kv_load_empty, self.k_slot)
        self.softmax(m_block, block, MASKED)
        wgmma.wait(0)
        wgmma.fence(self.o, self.ctx.config.D // 2)
        self.release(self.ctx.barriers.kv_load_empty, self.v_slot)
        fragment.pack(self.p, self.s, self.ctx.config.dtype)
        fragment.scale_rows(self.o, self.ctx.config.D // 2, self.factor)

    @T.inline
    def last_product(self):
        """PV of the last block; Q is free."""
        self.release(self.ctx.barriers.q_load_empty, self.q.stage)
        self.q.advance()
        self.issue_pv()
        wgmma.wait(0)
        wgmma.fence(self.o, self.ctx.config.D // 2)
        self.release(self.ctx.barriers.kv_load_empty, self.v_slot)

    @T.inline
    def store_lse(self, stop, m_block):
        """LSE of the thread's rows that hold a query. ln of a row sum of 0 is −inf."""
        ctx = T.meta_var(self.ctx)
        if ctx.config.return_lse:
            if ctx.lane % 4 == 0:
                for r in T.unroll(ROWS):
                    token: T.let = ctx.tiles.first_token(m_block, 0) + ctx.tiles.row_token(self.row(r))
                    head: T.let = stop.head_idx * ctx.config.ratio + self.row(r) % ctx.config.ratio
                    if (self.row(r) < ctx.tiles.used_rows) & (token < ctx.counts.sq):
                        logarithm: T.float32
                        T.ptx.lg2.approx.ftz.f32(logarithm, self.total[r])
                        ctx.lse[stop.batch_idx, head, token] = T.if_then_else(
                            self.total[r] == T.float32(0),
                            T.float32(NEGATIVE_INFINITY),
                            (self.maximum[r] * ctx.scale_log2 + logarithm) * T.float32(math.log(2)),
                        )

    @T.inline
    def stage_o(self):
        """O / row sum in 16 bit into staging memory; rows without a key become 0."""
        bar = T.meta_var(self.ctx.barriers)
        for r in T.unroll(ROWS):
            self.factor[r] = T.if_then_else(
                self.total[r] == T.float32(0), T.float32(0), T.float32(1) / self.total[r]
            )
        fragment.scale_rows(self.o, self.ctx.config.D // 2, self.factor)
        bar.o_staged_empty.wait(0, self.staging_free.phase)
        self.staging_free.advance()
        first: T.let = self.group * CONSUMER_ROWS
        Tx.wg.cast(self.half_tile[:, :], self.o_tile[:, :])
        Tx.wg.copy(self.ctx.o_smem[0, first : first + CONSUMER_ROWS, :], self.half_tile[:, :])
        # Every writer makes its own stores visible to the async proxy before it arrives.
        T.ptx.fence.proxy.async_.shared__cta()
        bar.o_staged_full.arrive(0)


@T.inline
def consumer_role(ctx):
    rows = Consumer(ctx)
    rows.prepare()
    stop = ctx.stops("consumer")
    stop.init(ctx.cta)
    while stop.valid():
        for turn in T.serial(ctx.plan.tiles_per_stop, unroll=False):
            m_block: T.let = ctx.tile(stop, turn)
            key_blocks: T.let = ctx.tiles.key_blocks(m_block)
            unmasked: T.let = ctx.tiles.unmasked_blocks(m_block, 0)
            if ctx.has_tile(stop, turn):
                rows.begin()
                if key_blocks > 0:
                    ctx.barriers.q_load_full.wait(rows.q.stage, rows.q.phase)
                    rows.first_block(m_block, key_blocks - 1)
                    # Without a causal mask the first block alone may be short.
                    if ctx.config.is_causal:
                        for i in T.serial(key_blocks - 1 - unmasked, unroll=False):
                            rows.next_block(m_block, key_blocks - 2 - i, True)
                    steady: T.let = T.min(unmasked, key_blocks - 1)
                    for i in T.serial(steady, unroll=False):
                        rows.next_block(m_block, steady - 1 - i, False)
                    rows.last_product()
                fragment.quad_sums(rows.total)
                rows.store_lse(stop, m_block)
                rows.stage_o()
        stop.next_tile()
