"""Softmax role: S to P for one query tile, one thread per row, and the row statistics.

Runs on: two warpgroups, one per query stage.
Reads:   s_tmem (and o_tmem where it owns the epilogue).
Writes:  p_tmem, mailbox (and o_smem where it owns the epilogue).
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import tcgen05_atom_layout

from tirx_attn.config import TILE_KEYS, TILE_ROWS
from tirx_attn.roles import rowmath
from tirx_attn.roles.context import DTYPE
from tirx_attn.roles.epilogue import Epilogue
from tirx_attn.schedule.schedule import FRAGMENT_COLUMNS

LOAD_COLUMNS = 64
"""Columns of S that one tcgen05.ld brings."""

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
        # The thread's row, and the same registers as the warpgroup's fragment of the tile.
        layout = tcgen05_atom_layout("32x32b", (TILE_ROWS, TILE_KEYS), "float32")
        self.x = T.alloc_local((TILE_KEYS,), "float32")
        self.scores = self.x.view(TILE_ROWS, TILE_KEYS, layout=layout)
        self.p = T.alloc_local((TILE_KEYS,), DTYPE)
        self.p_reg = self.p.view(TILE_ROWS, TILE_KEYS, layout=layout)
        self.scalar = T.alloc_local([1], "float32")

    @T.inline
    def load_scores(self):
        """S of the block into registers. Complete on return, so that P may overwrite S."""
        self.ctx.barriers.s_ready.wait(self.stage, self.s_ready.phase)
        self.s_ready.advance()
        T.ptx.tcgen05.fence__after_thread_sync()
        for i in T.unroll(TILE_KEYS // LOAD_COLUMNS):
            first = T.meta_var(i * LOAD_COLUMNS)
            column = T.meta_var(self.stage * TILE_KEYS + first)
            Tx.wg.copy_async(
                self.scores[:, first : first + LOAD_COLUMNS], self.ctx.s_tmem[:, column : column + LOAD_COLUMNS]
            )
        T.ptx.tcgen05.wait__ld.sync.aligned()

    @T.inline
    def update_reference(self, IS_FIRST):
        """Take the block's maximum into the row's reference and publish how far O and row_sum must be scaled."""
        scale_log2 = T.meta_var(T.float32(self.ctx.config.softmax_scale_log2))
        rowmath.row_maximum(self.x, self.scalar)
        if IS_FIRST:
            # The first PV of a task overwrites O: nothing to rescale, nothing to publish.
            self.state.reference = self.scalar[0] * scale_log2
        else:
            acc_scale: T.float32
            candidate: T.let = T.max(self.state.reference, self.scalar[0] * scale_log2)
            delta: T.let = self.state.reference - candidate
            acc_scale = T.float32(1)
            # False for the NaN of −inf minus −inf, a row without a key so far: it keeps its reference.
            if delta < T.float32(-self.ctx.plan.schedule.rescale_threshold):
                T.ptx.ex2.approx.ftz.f32(acc_scale, delta)
                self.state.reference = candidate
            self.publish(acc_scale)
            rowmath.scale_pair(self.state.total, acc_scale)

    @T.inline
    def publish(self, value):
        """Hand a statistic of the row to the correction group. The slot has been waited for."""
        self.ctx.mailbox[self.stage, self.ctx.thread] = value
        self.ctx.barriers.stats_full.arrive(self.stage, self.ctx.warp)

    @T.inline
    def wait_mailbox(self, IS_FIRST):
        """Until the correction group has read what was last published.

        Before block 0 that is the row_sum of the task before, which exists only where it is sent.
        """
        if not (IS_FIRST and self.owns_epilogue):
            self.ctx.barriers.softmax_corr_empty.wait(self.stage, self.mailbox_free.phase)
            self.mailbox_free.advance()

    def emulated_pairs(self, piece, is_masked):
        """Pairs of a piece that the FMA pipe computes. Boundary tiles are few: they take the exact exponential."""
        counts = (0,) * PIECES if is_masked else self.ctx.plan.schedule.emulated_pairs
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
    def block(self, task, block, IS_FIRST, IS_MASKED):
        """One key block: S to P, statistics, and the two hand-overs to the MMA."""
        bar = T.meta_var(self.ctx.barriers)
        FIRST_PART_ENDS = T.meta_var(self.ctx.plan.schedule.pv_split[0] // FRAGMENT_COLUMNS - 1)
        scale_log2 = T.meta_var(T.float32(self.ctx.config.softmax_scale_log2))
        reference: T.float32
        self.load_scores()
        if IS_MASKED:
            rowmath.mask_columns(
                self.x, self.ctx.tiles.visible_columns(task.m_block_idx, self.stage, self.ctx.thread, block)
            )
        self.update_reference(IS_FIRST)
        reference = self.state.reference
        if IS_MASKED:
            # A row without a key so far subtracts 0: exp2(−inf − 0) = 0, where −inf − (−inf) would be NaN.
            reference = T.if_then_else(reference == T.float32(rowmath.NEGATIVE_INFINITY), T.float32(0), reference)
        if self.stagger:
            bar.exp_turn.wait(self.stage, self.turn.phase)
            self.turn.advance()
        for piece in T.unroll(PIECES):
            first = T.meta_var(piece * FRAGMENT_COLUMNS)
            rowmath.exponentials(self.x, first, scale_log2, reference, self.emulated_pairs(piece, IS_MASKED))
            self.store_p(piece)
            if piece == FIRST_PART_ENDS:
                self.hand_over(bar.p_o_rescale)
                self.wait_mailbox(IS_FIRST)
            rowmath.add_columns(self.state.total, self.x, first)
        if self.stagger:
            bar.exp_turn.arrive(1 - self.stage)
        self.hand_over(bar.p_ready_2)


@T.inline
def softmax_role(ctx):
    row = Softmax(ctx)
    CAUSAL = T.meta_var(ctx.config.is_causal)
    epilogue = Epilogue(ctx)
    ctx.barriers.give_credit("softmax", row.stage)
    task = ctx.tasks("softmax")
    task.init(ctx.cta)
    while task.valid():
        key_blocks: T.let = ctx.tiles.key_blocks(task.m_block_idx)
        if key_blocks > 0:
            unmasked: T.let = ctx.tiles.unmasked_blocks(task.m_block_idx, row.stage)
            row.state.reset()
            row.block(task, key_blocks - 1, IS_FIRST=True, IS_MASKED=CAUSAL)
            if CAUSAL:
                for i in T.serial(T.max(key_blocks - 1 - unmasked, 0), unroll=False):
                    row.block(task, key_blocks - 2 - i, IS_FIRST=False, IS_MASKED=True)
            for i in T.serial(T.min(unmasked, key_blocks - 1), unroll=False):
                row.block(task, T.min(unmasked, key_blocks - 1) - 1 - i, IS_FIRST=False, IS_MASKED=False)
            row.state.sum(row.scalar)
            if row.owns_epilogue:
                epilogue.normalise(row.stage, row.scalar[0])
            else:
                row.publish(row.scalar[0])
        else:
            if row.owns_epilogue:
                epilogue.write_zeros(row.stage)
        epilogue.next_task(key_blocks > 0)
        task.next_tile()
