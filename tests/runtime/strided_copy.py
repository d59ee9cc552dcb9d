"""A copy kernel with run-time lengths and strides: the smallest launcher that encodes what the attention's does."""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.lang.pipeline import TMABar
from tvm.tirx.layout import S, TileLayout

ROWS, COLUMNS = 128, 64
"""The tile that one CTA moves, in elements."""


def strided_copy(dtype: str = "float16", size_one: str = "if_then_else"):
    """Y = X on [B, N, H, 64] by TMA, a CTA per tile of 128 tokens; shape and strides are int64 and run-time.

    Args:
        dtype: of both tensors.
        size_one: how the layout treats the stride of a dimension of size 1, which no address depends on: "as given",
            or replaced by COLUMNS through "if_then_else" or "select".
    """

    def stride(extent, given):
        if size_one == "as given":
            return given
        choose = {"if_then_else": T.if_then_else, "select": T.Select}[size_one]
        return choose(extent == 1, T.int64(COLUMNS), given)

    @T.prim_func
    def main(X_ptr: T.handle, Y_ptr: T.handle, n: T.int32, h: T.int32, tiles: T.int32):
        B = T.int64()
        N = T.int64()
        H = T.int64()
        xb = T.int64()
        xn = T.int64()
        xh = T.int64()
        yb = T.int64()
        yn = T.int64()
        yh = T.int64()
        X = T.match_buffer(
            X_ptr,
            (B, N, H, COLUMNS),
            dtype,
            strides=(xb, xn, xh, 1),
            layout=TileLayout(S[(B, N, H, COLUMNS) : (stride(B, xb), stride(N, xn), stride(H, xh), 1)]),
            offset_factor=1,
        )
        Y = T.match_buffer(
            Y_ptr,
            (B, N, H, COLUMNS),
            dtype,
            strides=(yb, yn, yh, 1),
            layout=TileLayout(S[(B, N, H, COLUMNS) : (stride(B, yb), stride(N, yn), stride(H, yh), 1)]),
            offset_factor=1,
        )
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        tile = T.cta_id([tiles])
        T.thread_id([128])
        warp = T.warp_id([4])
        pool = T.SMEMPool()
        staging = pool.alloc_tcgen05_mma_AB((ROWS, COLUMNS), dtype)
        full = TMABar(pool, 1)
        full.init(1)
        pool.commit()
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        blocks: T.let = T.truncdiv(n + ROWS - 1, ROWS)
        first: T.let = T.truncmod(tile, blocks) * ROWS
        head: T.let = T.truncmod(T.truncdiv(tile, blocks), h)
        batch: T.let = T.truncdiv(tile, blocks * h)
        if warp == 0:
            if T.cuda.elect_sync():
                mbar = full.ptr_to([0])
                Tx.copy_async(
                    staging[:, :], X[batch, first : first + ROWS, head, :], dispatch="tma_explicit", mbar=mbar
                )
                full.arrive(0, ROWS * COLUMNS * 2)
        full.wait(0, 0)
        T.cuda.cta_sync()
        if warp == 0:
            if T.cuda.elect_sync():
                Tx.copy_async(Y[batch, first : first + ROWS, head, :], staging[:, :], dispatch="tma_explicit")
                T.ptx.cp.async_.bulk.commit_group()
                T.ptx.cp.async_.bulk.wait_group(0)

    return main
