"""One small kernel in two forms: roles, context and protocol table as in tirx_attn, and flat, all written out.

Y = X on [128 * TILES, 64] fp16: one warp brings tiles to a ring in shared memory by TMA, one warpgroup copies them to
registers and on to global memory. The local names are alike, for they reach the CUDA.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.lang.alloc_pool import SMEMPool

from tirx_attn.barriers.device import Barriers
from tirx_attn.barriers.protocol import Edge, Kind, Producer, Protocol

ROWS, COLUMNS, TILES, SLOTS = 128, 64, 5, 2
TILE_BYTES = ROWS * COLUMNS * 2
SHAPE = (ROWS * TILES, COLUMNS)

TABLE = Protocol(
    (
        Edge("tile.full", Kind.TMA, SLOTS, (Producer("load", 1, "bytes"),), ("copy",), "tile is here", TILE_BYTES),
        Edge(
            "tile.empty",
            Kind.THREADS,
            SLOTS,
            (Producer("copy", 128, "read"),),
            ("load",),
            "slot may be written",
            free_stages=(0, 1),
        ),
    )
)


@T.meta_class
class CopyContext:
    """Storage and barriers."""

    def __init__(self, x, y, thread):
        self.x, self.y, self.thread = x, y, thread
        self.pool = SMEMPool()
        self.tiles = self.pool.alloc_tcgen05_mma_AB((SLOTS, ROWS, COLUMNS), "float16")
        self.barriers = Barriers(self.pool, TABLE)
        self.pool.commit()


@T.inline
def load_role(ctx):
    slot = ctx.barriers.cursor("tile.empty", SLOTS)
    for i in T.serial(TILES, unroll=False):
        ctx.barriers.tile_empty.wait(slot.stage, slot.phase)
        if T.cuda.elect_sync():
            Tx.copy_async(
                ctx.tiles[slot.stage, :, :],
                ctx.x[i * ROWS : (i + 1) * ROWS, :],
                dispatch="tma_explicit",
                mbar=ctx.barriers.tile_full.ptr_to([slot.stage]),
            )
            ctx.barriers.tile_full.arrive(slot.stage, TILE_BYTES)
        slot.advance()


@T.inline
def copy_role(ctx):
    row = T.alloc_local((COLUMNS,), "float16")
    slot = ctx.barriers.cursor("tile.full", SLOTS)
    for i in T.serial(TILES, unroll=False):
        ctx.barriers.tile_full.wait(slot.stage, slot.phase)
        for c in T.unroll(COLUMNS):
            row[c] = ctx.tiles[slot.stage, ctx.thread, c]
        ctx.barriers.tile_empty.arrive(slot.stage)
        for c in T.unroll(COLUMNS):
            ctx.y[i * ROWS + ctx.thread, c] = row[c]
        slot.advance()


def modular():
    """The kernel as a table of contents."""

    @T.prim_func
    def main(x: T.handle, y: T.handle):
        X = T.match_buffer(x, SHAPE, "float16")
        Y = T.match_buffer(y, SHAPE, "float16")
        T.device_entry()
        T.cta_id([1])
        warpgroup = T.warpgroup_id([2])
        warp = T.warp_id_in_wg([4])
        thread = T.thread_id_in_wg([ROWS])
        ctx = CopyContext(X, Y, thread)
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        if warpgroup == 0:
            copy_role(ctx)
        else:
            if warp == 0:
                load_role(ctx)

    return main


def flat():
    """The same kernel by hand: no class, no inlined function, no helper for barriers or cursors."""

    @T.prim_func
    def main(x: T.handle, y: T.handle):
        X = T.match_buffer(x, (640, 64), "float16")
        Y = T.match_buffer(y, (640, 64), "float16")
        T.device_entry()
        T.cta_id([1])
        warpgroup = T.warpgroup_id([2])
        warp = T.warp_id_in_wg([4])
        thread = T.thread_id_in_wg([128])
        ctx_pool = T.SMEMPool()
        ctx_tiles = ctx_pool.alloc_tcgen05_mma_AB((2, 128, 64), "float16")
        ctx_barriers_tile_full_buf = ctx_pool.alloc((2,), "uint64", align=8)
        ctx_barriers_tile_empty_buf = ctx_pool.alloc((2,), "uint64", align=8)
        if T.cuda.thread_rank() == 0:
            T.ptx.mbarrier.init.shared.b64(ctx_barriers_tile_full_buf.ptr_to([0]), T.uint32(1))
            T.ptx.mbarrier.init.shared.b64(ctx_barriers_tile_full_buf.ptr_to([1]), T.uint32(1))
        if T.cuda.thread_rank() == 0:
            T.ptx.mbarrier.init.shared.b64(ctx_barriers_tile_empty_buf.ptr_to([0]), T.uint32(128))
            T.ptx.mbarrier.init.shared.b64(ctx_barriers_tile_empty_buf.ptr_to([1]), T.uint32(128))
        ctx_pool.commit()
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        if warpgroup == 0:
            row = T.alloc_local((64,), "float16")
            slot_stage = T.local_scalar("int32")
            slot_phase = T.local_scalar("int32")
            slot_stage = 0
            slot_phase = 0
            for i in T.serial(5, unroll=False):
                T.cuda.mbarrier_wait(ctx_barriers_tile_full_buf.ptr_to([slot_stage]), slot_phase ^ 0)
                for c in T.unroll(64):
                    row[c] = ctx_tiles[slot_stage, thread, c]
                T.ptx.mbarrier.arrive.shared.b64(ctx_barriers_tile_empty_buf.ptr_to([slot_stage]), T.uint32(1))
                for c in T.unroll(64):
                    Y[i * 128 + thread, c] = row[c]
                slot_stage = slot_stage + 1
                if slot_stage == 2:
                    slot_stage = 0
                    slot_phase = slot_phase ^ 1
        else:
            if warp == 0:
                slot_stage = T.local_scalar("int32")
                slot_phase = T.local_scalar("int32")
                slot_stage = 0
                slot_phase = 1
                for i in T.serial(5, unroll=False):
                    T.cuda.mbarrier_wait(ctx_barriers_tile_empty_buf.ptr_to([slot_stage]), slot_phase ^ 0)
                    if T.cuda.elect_sync():
                        Tx.copy_async(
                            ctx_tiles[slot_stage, :, :],
                            X[i * 128 : (i + 1) * 128, :],
                            dispatch="tma_explicit",
                            mbar=ctx_barriers_tile_full_buf.ptr_to([slot_stage]),
                        )
                        T.ptx.mbarrier.arrive.expect_tx.shared.b64(
                            ctx_barriers_tile_full_buf.ptr_to([slot_stage]), T.uint32(16384)
                        )
                    slot_stage = slot_stage + 1
                    if slot_stage == 2:
                        slot_stage = 0
                        slot_phase = slot_phase ^ 1

    return main
