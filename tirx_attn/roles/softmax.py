"""Softmax role: S to P for one query tile, one thread per row, and the row statistics.

Runs on: two warpgroups, one per query stage.
Reads:   s_tmem (and o_tmem where it owns the epilogue).
Writes:  p_tmem, acc_scale (mailbox.py), and row_sum or, where it owns the epilogue, o_smem.
"""

from __future__ import annotations

import math
from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import tcgen05_atom_layout

from tirx_attn.config import TILE_KEYS, TILE_ROWS
from tirx_attn.roles import mailbox, rowmath
from tirx_attn.roles.epilogue import Epilogue
from tirx_attn.roles.row_state import RowState
from tirx_attn.schedule.schedule import FRAGMENT_COLUMNS

LOAD_COLUMNS = 64
"""Columns of S that one tcgen05.ld brings."""

LARGE = 2.0**13
"""Magnitude of a scaled reference above which what its rounding took away is subtracted as well: the exponent of the
maximum is exactly 0.

Below it one fused multiply-add forms an exponent. Rounding the reference moves the exponents of a row together, which
its sum takes out again, but for the emulated ones, whose offset 127 − reference is rounded apart, and for those before
and behind a move, which acc_scale joins by the exact distance of the peaks: by at most 2**-11 here, 3.4e-4 of a weight,
where rounding P to fp16 takes up to 4.9e-4.
"""

PIECES = TILE_KEYS // FRAGMENT_COLUMNS

AHEAD = 1
"""Pieces of a steady block whose exponentials do not wait for its maximum. They are columns of the load that is made
again where a block is taken again, and their P lies beside S, or over columns of S that are in registers still.
"""
assert AHEAD * FRAGMENT_COLUMNS <= LOAD_COLUMNS


@T.meta_class
class Softmax:
    """Cursors, registers and state of one softmax thread."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.stage = ctx.warpgroup
        self.owns_epilogue = ctx.plan.epilogue is ctx.plan.warps.softmax
        self.stagger = ctx.plan.schedule.stagger
        self.s_ready = ctx.barriers.cursor("s_ready")
        self.in_tmem = ctx.plan.schedule.statistics_in_tmem
        waits_for_row_sum = ctx.plan.sends_row_sum and not self.in_tmem
        self.row_sum_free: Any = ctx.barriers.cursor("row_sum.empty") if waits_for_row_sum else None
        self.turn: Any = ctx.barriers.cursor("exp_turn", stage=self.stage) if self.stagger else None
        self.state = RowState()
        # Key blocks that are left, the next one being the last of them; whether its S has been waited for, and loaded
        # but for the pieces AHEAD; and whether `steady_blocks` may take it.
        self.left = T.local_scalar("int32")
        self.scores_ready = T.local_scalar("int32")
        self.may_run_ahead = T.local_scalar("int32")
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
        """Until S of the block is complete in TMEM. A wait may be repeated: the cursor moves at the block's end."""
        self.ctx.barriers.s_ready.wait(self.stage, self.s_ready.phase)
        T.ptx.tcgen05.fence__after_thread_sync()

    @T.inline
    def load_scores(self, COLUMNS):
        """The first columns of S into registers. Complete on return, so that P may overwrite S.

        The last ones come first. Exponentials begin at the first ones: the assembler would put off a load behind them.
        """
        for i in T.unroll(COLUMNS // LOAD_COLUMNS):
            first = T.meta_var(COLUMNS - LOAD_COLUMNS - i * LOAD_COLUMNS)
            column = T.meta_var(self.stage * TILE_KEYS + first)
            Tx.wg.copy_async(
                self.scores[:, first : first + LOAD_COLUMNS], self.ctx.s_tmem[:, column : column + LOAD_COLUMNS]
            )
        T.ptx.tcgen05.wait__ld.sync.aligned()

    @T.inline
    def publish(self):
        """Tell the correction group that acc_scale of the block is there."""
        self.ctx.barriers.stats_full.arrive(self.stage, self.ctx.warp)

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
    def hand_over_parts(self, piece, DONE, PART):
        """Hand over what ends with a piece, of the parts from PART on; the last part is handed over elsewhere."""
        SPLIT = T.meta_var(self.ctx.plan.schedule.pv_split)
        END = T.meta_var(sum(SPLIT[: PART + 1]))
        ready = T.meta_var(self.ctx.barriers.part_of_p(PART))
        if END < TILE_KEYS:
            if piece == END // FRAGMENT_COLUMNS - 1:
                if self.in_tmem & (END <= DONE * FRAGMENT_COLUMNS):
                    # It is in TMEM since acc_scale, which was stored behind it, was waited for and fenced.
                    ready.arrive(self.stage)
                else:
                    self.hand_over(ready)
            self.hand_over_parts(piece, DONE, PART + 1)

    @T.inline
    def exponentials(self, factor, reference, STEADY, DONE):
        """P of the block from its scores but for the first pieces that are DONE, row_sum, and the hand-overs."""
        bar = T.meta_var(self.ctx.barriers)
        last_part = T.meta_var(bar.part_of_p(len(self.ctx.plan.schedule.pv_split) - 1))
        if self.stagger:
            bar.exp_turn.wait(self.stage, self.turn.phase)
            self.turn.advance()
        for piece in T.unroll(PIECES):
            first = T.meta_var(piece * FRAGMENT_COLUMNS)
            if piece >= DONE:
                EMULATED = T.meta_var(self.emulated_pairs(piece) if STEADY else 0)
                rowmath.exponentials(self.x, first, factor, reference, self.state.offset, EMULATED)
                self.store_p(piece)
            self.hand_over_parts(piece, DONE, 0)
            rowmath.add_columns(self.state.total, self.x, first)
        if self.stagger:
            bar.exp_turn.arrive(1 - self.stage)
        self.hand_over(last_part)
        self.s_ready.advance()

    @T.inline
    def careful_block(self, task, is_first):
        """Any block: the first of a task, one that the mask cuts, or one that moves a reference or has a large one."""
        reference: T.float32
        factor: T.float32
        if self.scores_ready == 0:
            self.wait_scores()
            self.load_scores(TILE_KEYS)
        else:
            # The P stored AHEAD is stored again, unless acc_scale is first: then that waits for it.
            if not self.in_tmem:
                T.ptx.tcgen05.wait__st.sync.aligned()
            self.load_scores(LOAD_COLUMNS)
        self.scores_ready = 0
        if self.ctx.tiles.may_mask:
            rowmath.mask_columns(
                self.x, self.ctx.tiles.visible_columns(task.m_block_idx, self.stage, self.ctx.thread, self.left - 1)
            )
        rowmath.row_maximum(self.x, self.scalar)
        self.state.update(self.scalar[0], self.ctx.scale_log2, self.ctx.plan.schedule.rescale_threshold)
        if is_first == 0:
            # The first PV of a task overwrites O: nothing to rescale, nothing to publish.
            mailbox.put(self.ctx, "acc_scale", self.stage, self.state.acc_scale)
            self.publish()
        self.may_run_ahead = 1
        factor = self.ctx.scale_log2
        reference = self.state.reference
        if self.any_row(T.cast(T.abs(reference) > T.float32(LARGE), "int32")) != 0:
            rest: T.float32
            self.may_run_ahead = 0
            rowmath.subtract(self.x, TILE_KEYS, factor, reference)
            T.ptx.fma.rn.ftz.f32(rest, self.state.peak, factor, T.float32(0) - reference)
            factor = T.float32(1)
            # A row without a key so far subtracts 0 here too.
            reference = T.if_then_else(self.state.peak == T.float32(rowmath.NEGATIVE_INFINITY), T.float32(0), rest)
        self.exponentials(factor, reference, STEADY=False, DONE=0)

    @T.inline
    def steady_blocks(self):
        """The blocks that are left, which every row sees whole, for as long as none of them moves a reference.

        The first exponentials subtract the reference before it is known that it stays. Where it does not, the block is
        left to `careful_block`.
        """
        state = T.meta_var(self.state)
        limit: T.float32
        if self.left > 0:
            # −inf for a row without a key so far, whose first score must move it.
            limit = state.peak * self.ctx.scale_log2 + T.float32(self.ctx.plan.schedule.rescale_threshold)
            rowmath.emulation_offset(state.reference, state.offset)
            if not self.in_tmem:
                # What was last sent has been read by then: S follows a PV that waited for the reader on p_o_rescale.
                self.ctx.barriers.s_ready.wait(self.stage, self.s_ready.phase)
                mailbox.put(self.ctx, "acc_scale", self.stage, T.float32(1))
        while self.left > 0:
            self.wait_scores()
            self.load_scores(TILE_KEYS)
            rowmath.row_maximum(self.x, self.scalar)
            for piece in T.unroll(AHEAD):
                first = T.meta_var(piece * FRAGMENT_COLUMNS)
                EMULATED = T.meta_var(self.emulated_pairs(piece))
                rowmath.exponentials(self.x, first, self.ctx.scale_log2, state.reference, state.offset, EMULATED)
                self.store_p(piece)
            stays: T.let = self.scalar[0] * self.ctx.scale_log2 < limit
            if self.any_row(T.if_then_else(stays, 0, 1)) != 0:
                self.scores_ready = 1
                break
            if self.in_tmem:
                # S of the block has overwritten that of the block before, and is not loaded again from here on.
                mailbox.put(self.ctx, "acc_scale", self.stage, T.float32(1))
            self.publish()
            self.exponentials(self.ctx.scale_log2, state.reference, STEADY=True, DONE=AHEAD)
            self.left = self.left - 1

    def any_row(self, condition):
        """Not 0 where a condition, an int32, is not 0 for some row of the warp."""
        return T.cuda.any_sync(T.uint32(0xFFFFFFFF), condition)

    @T.inline
    def send_row_sum(self, row_sum):
        """Hand row_sum to the correction group, which owns the epilogue."""
        bar = T.meta_var(self.ctx.barriers)
        if not self.in_tmem:
            bar.row_sum_empty.wait(self.stage, self.row_sum_free.phase)
            self.row_sum_free.advance()
        mailbox.put(self.ctx, "row_sum", self.stage, row_sum)
        bar.row_sum_full.arrive(self.stage)

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
            row.left = key_blocks
            while row.left > 0:
                row.careful_block(task, T.cast(row.left == key_blocks, "int32"))
                row.left = row.left - 1
                if row.left <= unmasked:
                    if row.may_run_ahead != 0:
                        row.steady_blocks()
            row.state.sum(row.scalar)
            row.store_lse(task, row.scalar[0])
            if row.owns_epilogue:
                epilogue.normalise(row.stage, row.scalar[0])
            else:
                row.send_row_sum(row.scalar[0])
        else:
            row.store_lse(task, T.float32(0))
            if row.owns_epilogue:
                epilogue.write_zeros(row.stage)
        epilogue.next_task(key_blocks > 0)
        task.next_tile()
