"""Small PrimFuncs for the translator: 16 warps, mbarriers named as the package names them."""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.lang.alloc_pool import SMEMPool

SHAPE = (128, 64)


def handshake(operator: str = "", warpgroups: int = 4):
    """Warpgroup 0 arrives on `full`, warpgroup 1 waits; with one more statement in between."""

    @T.prim_func
    def main(x: T.handle):
        X = T.match_buffer(x, SHAPE, "float16")
        T.device_entry()
        T.cta_id([3])
        warpgroup = T.warpgroup_id([warpgroups])
        thread = T.thread_id_in_wg([128])
        lane = T.lane_id([32])
        descriptor = T.alloc_local([1], "uint64")
        pool = SMEMPool()
        tile = pool.alloc(SHAPE, "float16")
        ctx_barriers_full_buf = pool.alloc((1,), "uint64", align=8)
        if T.cuda.thread_rank() == 0:
            T.ptx.mbarrier.init.shared.b64(ctx_barriers_full_buf.ptr_to([0]), T.uint32(128))
        pool.commit()
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        if warpgroup == 0:
            tile[thread, 0] = T.float16(0)
            if operator == "cluster sync":
                T.cuda.cluster_sync()
            if operator == "synchronous copy":
                Tx.copy(tile[:, :], X[:, :])
            if operator == "loop over data":
                count = T.alloc_local([1], "int32")
                count[0] = T.cast(X[0, 0], "int32")
                while count[0] > 0:
                    count[0] = count[0] - 1
            if operator == "fence of all memory":
                T.ptx.fence.proxy.async_()
            if operator == "wide election":
                if T.cuda.elect_sync() != 0 and warpgroup == 0:
                    tile[thread, 1] = T.float16(0)
            if operator == "function":
                T.cuda.func_call("nothing", source_code="__device__ void nothing() {}")
            if operator == "thread of a warpgroup":
                if thread == 0:
                    tile[thread, 1] = T.float16(0)
            if operator == "some lanes":
                if lane % 4 == 0:
                    tile[lane, 1] = T.float16(0)
            if operator == "one of two lanes":
                if lane == 0:
                    tile[lane, 1] = T.float16(0)
                else:
                    tile[lane, 2] = T.float16(0)
            if operator == "swizzle of 64 bytes":
                T.cuda.wgmma.encode_matrix_descriptor(T.address_of(descriptor[0]), tile.ptr_to([0, 0]), 1024, 64, 2)
            if operator == "descriptor times two":
                T.cuda.wgmma.encode_matrix_descriptor(T.address_of(descriptor[0]), tile.ptr_to([0, 0]), 1024, 64, 3)
                descriptor[0] = descriptor[0] * T.uint64(2)
            T.ptx.mbarrier.arrive.shared.b64(ctx_barriers_full_buf.ptr_to([0]), T.uint32(1))
        elif warpgroup == 1:
            if operator != "no wait":
                T.cuda.mbarrier_wait(ctx_barriers_full_buf.ptr_to([0]), 0)
            if operator == "read in a condition":
                if tile[thread, 0] > T.float16(0):
                    X[thread, 0] = T.float16(1)
            else:
                X[thread, 0] = tile[thread, 0]

    return main
