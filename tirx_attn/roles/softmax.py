"""Softmax role: S to P for one query tile, one thread per row, and the row statistics.

Runs on: two warpgroups, one per query stage.
Reads:   s_tmem (and o_tmem where it owns the epilogue).
Writes:  p_tmem, mailbox (and o_smem where it owns the epilogue).
"""

from __future__ import annotations

import math
from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import tcgen05_atom_layout

from tirx_attn.config import TILE_KEYS, TILE_ROWS
from tirx_attn.roles import rowmath
from tirx_attn.roles.epilogue import Epilogue
from tirx_attn.schedule.schedule import FRAGMENT_COLUMNS

LOAD_COLUMNS = 64
"""Columns of S that one tcgen05.ld brings."""

LARGE = 2.0**13
"""Above it in magnitude, a row's scaled scores are rounded as its reference was, and the reference is subtracted: the
exponent of the maximum is exactly 0.

Below it one fused multiply-add forms an exponent. Rounding the reference moves the exponents of a row together, which
its sum takes out again, but for the emulated ones, whose offset 127 − reference is rounded apart: by at most 2**-11
here, 3.4e-4 of a weight, where rounding P to fp16 takes up to 4.9e-4.
"""

PIECES = TILE_KEYS // FRAGMENT_COLUMNS


@T.meta_class
class RowState:
    """Running statistics of the thread's row, in base 2.

    `reference` is the scaled row maximum that is subtracted; −inf until the row has seen a key. `total` is the
    denominator relative to it, as a packed pair of partial sums.
    """

    def __init__(self):
        self.reference = T.local_scalar("float32")
        self.total = T.local_scalar("uint64")

    @T.inline
    def reset(self):
        self.reference = T.float32(rowmath.NEGATIVE_INFINITY)
        T.ptx.mov.b64(self.total, T.float32(0), T.float32(0))

    @T.inline
    def sum(self, result):
        """result[0] = row_sum."""
        low: T.float32
        high: T.float32
        T.ptx.mov.b64(low, high, self.total)
        result[0] = low + high


@T.meta_class
class Softmax:
    """Cursors, registers and state of one softmax thread."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.stage = ctx.warpgroup
        self.owns_epilogue = ctx.plan.epilogue is ctx.plan.warps.softmax
        self.stagger = ctx.plan.schedule.stagger
        self.s_ready = ctx.barriers.cursor("s_ready")
        self.mailbox_free = ctx.barriers.cursor("softmax_corr.empty")
        self.turn: Any = ctx.barriers.cursor("exp_turn", stage=self.stage) if self.stagger else None
        self.state = RowState()
        self.acc_scale = T.local_scalar("float32")
        self.proposed = T.local_scalar("float32")
        # The key block that is next; and whether its S has been waited for.
        self.block = T.local_scalar("int32")
        self.scores_ready = T.local_scalar("int32")
        # The thread's row, and the same registers as the warpgroup's fragment of the tile.
        layout = tcgen05_atom_layout("32x32b", (TILE_ROWS, TILE_KEYS), "float32")
        self.x = T.alloc_local((TILE_KEYS,), "float32")
        self.scores = self.x.view(TILE_ROWS, TILE_KEYS, layout=layout)
        self.p = T.alloc_local((TILE_KEYS,), ctx.config.dtype)
        self.p_reg = self.p.view(TILE_ROWS, TILE_KEYS, layout=layout)
        self.scalar = T.alloc_local([1], "float32")

    @T.inline
    def reset(self):
        """Before the first block of a task."""
        self.state.reset()
        self.scores_ready = 0

    @T.inline
    def wait_scores(self):
        """Until S of the block is complete in TMEM."""
        self.ctx.barriers.s_ready.wait(self.stage, self.s_ready.phase)
        self.s_ready.advance()
        T.ptx.tcgen05.fence__after_thread_sync()

    @T.inline
    def load_scores(self):
        """S into registers. Complete on return, so that P may overwrite S."""
        for i in T.unroll(TILE_KEYS // LOAD_COLUMNS):
            first = T.meta_var(i * LOAD_COLUMNS)
            column = T.meta_var(self.stage * TILE_KEYS + first)
            Tx.wg.copy_async(
                self.scores[:, first : first + LOAD_COLUMNS], self.ctx.s_tmem[:, column : column + LOAD_COLUMNS]
            )
        T.ptx.tcgen05.wait__ld.sync.aligned()

    @T.inline
    def propose(self):
        """The reference after this block, and acc_scale, by which O and row_sum must then be multiplied.

        The first maximum becomes the reference: −inf minus it lies below every threshold. Nothing is taken over yet,
        so that a block can still be left to `careful_block`.
        """
        rowmath.row_maximum(self.x, self.scalar)
        candidate: T.let = T.max(self.state.reference, self.scalar[0] * self.ctx.scale_log2)
        delta: T.let = self.state.reference - candidate
        self.acc_scale = T.float32(1)
        self.proposed = self.state.reference
        # False for the NaN of −inf minus −inf, a row without a key so far: it keeps its reference.
        if delta < T.float32(-self.ctx.plan.schedule.rescale_threshold):
            T.ptx.ex2.approx.ftz.f32(self.acc_scale, delta)
            self.proposed = candidate

    @T.inline
    def take_over(self):
        """Make the proposed reference the row's."""
        self.state.reference = self.proposed
        rowmath.scale_pair(self.state.total, self.acc_scale)

    @T.inline
    def publish(self, value):
        """Hand a statistic of the row to the correction group. The slot has been waited for."""
        self.ctx.mailbox[self.stage, self.ctx.thread] = value
        self.ctx.barriers.stats_full.arrive(self.stage, self.ctx.warp)

    @T.inline
    def wait_mailbox(self):
        """Until the correction group has read what was last published."""
        self.ctx.barriers.softmax_corr_empty.wait(self.stage, self.mailbox_free.phase)
        self.mailbox_free.advance()

    def emulated_pairs(self, piece):
        """Pairs of a piece that the FMA pipe computes in the steady loop."""
        counts = self.ctx.plan.schedule.emulated_pairs
        selected = counts[-1]
        for i in reversed(range(PIECES - 1)):
            if counts[i] != selected or not isinstance(selected, int):
                selected = T.if_then_else(piece == i, counts[i], selected)
        return selected

    @T.inline
    def store_p(self, piece):
        """P of a piece into TMEM, in 16 bit."""
        first = T.meta_var(piece * FRAGMENT_COLUMNS)
        column = T.meta_var(self.ctx.p_column(self.stage) + first)
        Tx.wg.cast(self.p_reg[:, first : first + FRAGMENT_COLUMNS], self.scores[:, first : first + FRAGMENT_COLUMNS])
        Tx.wg.copy_async(
            self.ctx.p_tmem[:, column : column + FRAGMENT_COLUMNS], self.p_reg[:, first : first + FRAGMENT_COLUMNS]
        )

    @T.inline
    def hand_over(self, barrier):
        """Tell the MMA warp that the P stored so far is in TMEM."""
        T.ptx.tcgen05.wait__st.sync.aligned()
        T.ptx.tcgen05.fence__before_thread_sync()
        barrier.arrive(self.stage)

    @T.inline
    def exponentials(self, factor, reference, STEADY, is_first):
        """P of the block from its scores, the row sum, and the two hand-overs to the MMA."""
        bar = T.meta_var(self.ctx.barriers)
        FIRST_PART_ENDS = T.meta_var(self.ctx.plan.schedule.pv_split[0] // FRAGMENT_COLUMNS - 1)
        if self.stagger:
            bar.exp_turn.wait(self.stage, self.turn.phase)
            self.turn.advance()
        for piece in T.unroll(PIECES):
            first = T.meta_var(piece * FRAGMENT_COLUMNS)
            rowmath.exponentials(self.x, first, factor, reference, self.emulated_pairs(piece) if STEADY else 0)
            self.store_p(piece)
            if piece == FIRST_PART_ENDS:
                self.hand_over(bar.p_o_rescale)
                # Before a task's first block, the last thing published is the row_sum of the task before, if any.
                if STEADY or not self.owns_epilogue:
                    self.wait_mailbox()
                else:
                    if is_first == 0:
                        self.wait_mailbox()
            rowmath.add_columns(self.state.total, self.x, first)
        if self.stagger:
            bar.exp_turn.arrive(1 - self.stage)
        self.hand_over(bar.p_ready_2)

    @T.inline
    def careful_block(self, task, is_first):
        """Any block: the first of a task, one that the mask cuts, or one with a large maximum."""
        reference: T.float32
        factor: T.float32
        if self.scores_ready == 0:
            self.wait_scores()
        self.scores_ready = 0
        self.load_scores()
        if self.ctx.tiles.may_mask:
            rowmath.mask_columns(
                self.x, self.ctx.tiles.visible_columns(task.m_block_idx, self.stage, self.ctx.thread, self.block)
            )
        self.propose()
        self.take_over()
        if is_first == 0:
            # The first PV of a task overwrites O: nothing to rescale, nothing to publish.
            self.publish(self.acc_scale)
        # A row without a key so far subtracts 0: exp2(−inf − 0) = 0, where −inf − (−inf) would be NaN.
        reference = T.if_then_else(
            self.state.reference == T.float32(rowmath.NEGATIVE_INFINITY), T.float32(0), self.state.reference
        )
        factor = self.ctx.scale_log2
        if self.is_large(reference) != 0:
            rowmath.scale_columns(self.x, TILE_KEYS, factor)
            rowmath.shift_columns(self.x, TILE_KEYS, T.float32(0) - reference)
            factor = T.float32(1)
            reference = T.float32(0)
        self.exponentials(factor, reference, STEADY=False, is_first=is_first)

    @T.inline
    def steady_blocks(self, end):
        """The blocks above `end`, which every row sees whole.

        Stops early at a block with a large maximum, its S untouched: it is left to `careful_block`.
        """
        while self.block > end:
            self.wait_scores()
            self.load_scores()
            self.propose()
            if self.is_large(self.scalar[0] * self.ctx.scale_log2) != 0:
                self.scores_ready = 1
                break
            self.take_over()
            self.publish(self.acc_scale)
            self.exponentials(self.ctx.scale_log2, self.state.reference, STEADY=True, is_first=0)
            self.block = self.block - 1

    def is_large(self, score):
        """Not 0 where some row of the warp has a large scaled score. A reference is one."""
        return T.cuda.any_sync(T.uint32(0xFFFFFFFF), T.cast(T.abs(score) > T.float32(LARGE), "int32"))

    @T.inline
    def store_lse(self, task, row_sum):
        """LSE of the row, where it is asked for and the row holds a query. ln of a row_sum of 0 is −inf."""
        ctx = T.meta_var(self.ctx)
        if ctx.config.return_lse:
            token: T.let = ctx.tiles.first_token(task.m_block_idx, self.stage) + ctx.tiles.row_token(ctx.thread)
            head: T.let = task.head_idx * ctx.config.ratio + ctx.thread % ctx.config.ratio
            if (ctx.thread < ctx.tiles.used_rows) & (token < ctx.counts.sq):
                logarithm: T.float32
                T.ptx.lg2.approx.ftz.f32(logarithm, row_sum)
                ctx.lse[task.batch_idx, head, token] = T.if_then_else(
                    row_sum == T.float32(0),
                    T.float32(rowmath.NEGATIVE_INFINITY),
                    (self.state.reference + logarithm) * T.float32(math.log(2)),
                )


@T.inline
def softmax_role(ctx):
    row = Softmax(ctx)
    epilogue = Epilogue(ctx)
    ctx.barriers.give_credit("softmax", row.stage)
    task = ctx.tasks("softmax")
    task.init(ctx.cta)
    while task.valid():
        key_blocks: T.let = ctx.tiles.key_blocks(task.m_block_idx)
        if key_blocks > 0:
            unmasked: T.let = ctx.tiles.unmasked_blocks(task.m_block_idx, row.stage)
            row.reset()
            row.block = key_blocks - 1
            while row.block >= 0:
                row.careful_block(task, T.cast(row.block == key_blocks - 1, "int32"))
                row.block = row.block - 1
                steady_end: T.let = T.if_then_else(row.block < unmasked, -1, row.block)
                row.steady_blocks(steady_end)
            row.state.sum(row.scalar)
            row.store_lse(task, row.scalar[0])
            if row.owns_epilogue:
                epilogue.normalise(row.stage, row.scalar[0])
            else:
                row.publish(row.scalar[0])
        else:
            row.store_lse(task, T.float32(0))
            if row.owns_epilogue:
                epilogue.write_zeros(row.stage)
        epilogue.next_task(key_blocks > 0)
        task.next_tile()
