"""Small kernels whose needs are known: PrimFuncs for the code generator, CUDA for the compiler."""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.lang.pipeline import TMABar

ROWS, COLUMNS = 128, 64
"""The tile that `copy_kernel` moves, in fp16 elements."""


def copy_kernel(rows: int):
    """Y = X on [rows, 64] fp16 by TMA through shared memory: one tile and one 8-byte mbarrier per CTA."""

    @T.prim_func
    def main(X_ptr: T.handle, Y_ptr: T.handle):
        X = T.match_buffer(X_ptr, (rows, COLUMNS), "float16")
        Y = T.match_buffer(Y_ptr, (rows, COLUMNS), "float16")
        T.device_entry()
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        tile = T.cta_id([rows // ROWS])
        T.thread_id([128])
        warp = T.warp_id([4])
        pool = T.SMEMPool()
        staging = pool.alloc_tcgen05_mma_AB((ROWS, COLUMNS), "float16")
        full = TMABar(pool, 1)
        full.init(1)
        pool.commit()
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        first = tile * ROWS
        if warp == 0:
            if T.cuda.elect_sync():
                mbar = full.ptr_to([0])
                Tx.copy_async(staging[:, :], X[first : first + ROWS, :], dispatch="tma_explicit", mbar=mbar)
                full.arrive(0, ROWS * COLUMNS * 2)
        full.wait(0, 0)
        T.cuda.cta_sync()
        if warp == 0:
            if T.cuda.elect_sync():
                Tx.copy_async(Y[first : first + ROWS, :], staging[:, :], dispatch="tma_explicit")
                T.ptx.cp.async_.bulk.commit_group()
                T.ptx.cp.async_.bulk.wait_group(0)

    return main


def scale_kernel(rows: int, factor: float):
    """Y = factor * X on [rows, 128] fp32, without shared memory."""

    @T.prim_func
    def main(X_ptr: T.handle, Y_ptr: T.handle):
        X = T.match_buffer(X_ptr, (rows, 128), "float32")
        Y = T.match_buffer(Y_ptr, (rows, 128), "float32")
        T.device_entry()
        row = T.cta_id([rows])
        column = T.thread_id([128])
        Y[row, column] = X[row, column] * T.float32(factor)

    return main


# 1000 floats of static shared memory, named barrier 3 (so barriers 0 to 3 exist), no local memory.
STATIC_SMEM_CUDA = """
extern "C" __global__ void __launch_bounds__(128) reversed(float* x) {
  __shared__ float staging[1000];
  staging[threadIdx.x] = x[threadIdx.x];
  asm volatile("bar.sync 3, 128;" ::: "memory");
  x[threadIdx.x] = staging[127 - threadIdx.x];
}
"""

# An array of 64 floats that is indexed at run time lives in local memory; it is no spill.
LOCAL_ARRAY_CUDA = """
extern "C" __global__ void gather(float* x, int n) {
  float local[64];
  for (int i = 0; i < 64; i++) local[i] = x[i];
  float sum = 0;
  for (int i = 0; i < n; i++) sum += local[(i * n) & 63];
  x[threadIdx.x] = sum;
}
"""

# 1024 threads leave 64 registers to each; 96 values that are all alive do not fit.
SPILLING_CUDA = """
extern "C" __global__ void __launch_bounds__(1024, 1) crowded(volatile float* x) {
  float v[96];
  #pragma unroll
  for (int i = 0; i < 96; i++) v[i] = x[threadIdx.x + 1024 * i];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 96; i++) x[threadIdx.x * 96 + i] = v[95 - i];
}
"""

# Two roles that ask for 40 and 120 registers; `bounds` decides whether ptxas may honour it.
SETMAXNREG_CUDA = """
extern "C" __global__ void %(bounds)s roles(float* x) {
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    x[threadIdx.x] = 1.0f;
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 120;");
    x[threadIdx.x] = 2.0f;
  }
}
"""
