"""Epilogue: O of a tile from TMEM to staging memory, normalised and in 16 bit; and the warp that stores it.

`Epilogue` runs on the warpgroup that owns it (Schedule.epilogue_owner); thread r serves row r.
`store_role` runs on: one warp of the issue warpgroup.
Reads:   o_tmem; o_smem.
Writes:  o_smem; O in global memory.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_attn.config import TILE_ROWS
from tirx_attn.roles import rowmath
from tirx_attn.roles.tma import store_o
from tirx_attn.schedule.plan import Q_STAGES

PIECE = 16
"""Columns of O that a thread holds at a time."""


@T.meta_class
class Epilogue:
    """Cursors of the epilogue's owner."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.o_ready = ctx.barriers.cursor("o_ready")
        self.staging_free = ctx.barriers.cursor("o_staged.empty")

    @T.inline
    def normalise(self, stage, row_sum):
        """Stage O / row_sum of a finished tile; rows without a key (row_sum = 0) become 0."""
        bar = T.meta_var(self.ctx.barriers)
        D = T.meta_var(self.ctx.config.D)
        factor: T.float32
        factor = T.if_then_else(row_sum == T.float32(0), T.float32(0), T.float32(1) / row_sum)
        bar.o_ready.wait(stage, self.o_ready.phase)
        T.ptx.tcgen05.fence__after_thread_sync()
        bar.o_staged_empty.wait(stage, bar.phase("o_staged.empty", self.staging_free, stage))
        o_reg = T.alloc_tcgen05_ldst_frag("32x32b", (TILE_ROWS, PIECE), "float32")
        for i in T.serial(D // PIECE, unroll=False):
            column: T.let = stage * D + i * PIECE
            Tx.wg.copy_async(o_reg[:, :], self.ctx.o_tmem[:, column : column + PIECE])
            T.ptx.tcgen05.wait__ld.sync.aligned()
            rowmath.scale_columns(o_reg.local(PIECE), PIECE, factor)
            self._stage_piece(stage, i * PIECE, o_reg)
        # O has been read: the credit for block 0 of the next task.
        T.ptx.tcgen05.fence__before_thread_sync()
        bar.p_o_rescale.arrive(stage)
        self._staged(stage)

    @T.inline
    def write_zeros(self, stage):
        """Stage zeros for a task without keys. It took no credit and gives none."""
        bar = T.meta_var(self.ctx.barriers)
        bar.o_staged_empty.wait(stage, bar.phase("o_staged.empty", self.staging_free, stage))
        zeros = T.alloc_tcgen05_ldst_frag("32x32b", (TILE_ROWS, PIECE), "float32")
        row = zeros.local(PIECE)
        for c in T.unroll(PIECE):
            row[c] = T.float32(0)
        for i in T.serial(self.ctx.config.D // PIECE, unroll=False):
            self._stage_piece(stage, i * PIECE, zeros)
        self._staged(stage)

    @T.inline
    def next_task(self, has_keys):
        """Move the cursors on, once both stages that this thread serves are staged."""
        self.staging_free.advance()
        if has_keys:
            self.o_ready.advance()

    @T.inline
    def _stage_piece(self, stage, column, o_reg):
        half = T.alloc_cast_frag(o_reg, self.ctx.config.dtype)
        Tx.wg.cast(half[:, :], o_reg[:, :])
        tile = T.meta_var(self.ctx.staging_tile(stage))
        Tx.wg.copy(self.ctx.o_smem[tile, :, column : column + PIECE], half[:, :])

    @T.inline
    def _staged(self, stage):
        # Every writer makes its own stores visible to the async proxy before it arrives.
        T.ptx.fence.proxy.async_.shared__cta()
        self.ctx.barriers.o_staged_full.arrive(stage)


@T.inline
def store_role(ctx):
    staged = ctx.barriers.cursor("o_staged.full")
    task = ctx.tasks("store")
    task.init(ctx.cta)
    while task.valid():
        for stage in T.unroll(Q_STAGES):
            tile = T.meta_var(ctx.staging_tile(stage))
            freed = T.meta_var(ctx.freed_stage(stage))
            store_o(ctx, task, ctx.tiles.first_token(task.m_block_idx, stage), stage, staged.phase, tile)
            ctx.barriers.o_staged_empty.arrive(freed)
        staged.advance()
        task.next_tile()
