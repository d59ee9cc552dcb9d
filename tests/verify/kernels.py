"""Small PrimFuncs for the tests of the simulator's wrapper, with the parameters of an attention kernel."""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx.lang.pipeline import MBarrier


def sum_kernel(rows: int = 128, columns: int = 8):
    """O = Q + K + V on [1, rows, 1, columns] fp16; one thread per row."""

    @T.prim_func
    def main(Q_ptr: T.handle, K_ptr: T.handle, V_ptr: T.handle, O_ptr: T.handle):
        Q = T.match_buffer(Q_ptr, (1, rows, 1, columns), "float16")
        K = T.match_buffer(K_ptr, (1, rows, 1, columns), "float16")
        V = T.match_buffer(V_ptr, (1, rows, 1, columns), "float16")
        O = T.match_buffer(O_ptr, (1, rows, 1, columns), "float16")
        T.device_entry()
        T.cta_id([1])
        row = T.thread_id([rows])
        for column in T.serial(columns):
            O[0, row, 0, column] = Q[0, row, 0, column] + K[0, row, 0, column] + V[0, row, 0, column]

    return main


def half_kernel(rows: int = 128, columns: int = 8):
    """O = Q on the upper half of the rows; the lower half stays unwritten."""

    @T.prim_func
    def main(Q_ptr: T.handle, O_ptr: T.handle):
        Q = T.match_buffer(Q_ptr, (1, rows, 1, columns), "float16")
        O = T.match_buffer(O_ptr, (1, rows, 1, columns), "float16")
        T.device_entry()
        T.cta_id([1])
        row = T.thread_id([rows])
        if row >= rows // 2:
            for column in T.serial(columns):
                O[0, row, 0, column] = Q[0, row, 0, column]

    return main


def shared_kernel(synchronise: bool, threads: int = 128):
    """O = Q reversed, through shared memory; without the CTA barrier the exchange is a race."""

    @T.prim_func
    def main(Q_ptr: T.handle, O_ptr: T.handle):
        Q = T.match_buffer(Q_ptr, (threads,), "float32")
        O = T.match_buffer(O_ptr, (threads,), "float32")
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([threads])
        pool = T.SMEMPool()
        staging = pool.alloc((threads,), "float32")
        pool.commit()
        staging[thread] = Q[thread]
        if synchronise:
            T.cuda.cta_sync()
        O[thread] = staging[threads - 1 - thread]

    return main


def stuck_kernel():
    """Waits on an mbarrier at which nobody arrives."""

    @T.prim_func
    def main(O_ptr: T.handle):
        O = T.match_buffer(O_ptr, (32,), "float32")
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([32])
        pool = T.SMEMPool()
        barrier = MBarrier(pool, 1)
        barrier.init(1)
        pool.commit()
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        barrier.wait(0, 0)
        O[thread] = T.float32(1)

    return main


def endless_kernel():
    """Spins for as long as it is allowed to."""

    @T.prim_func
    def main(O_ptr: T.handle):
        O = T.match_buffer(O_ptr, (32,), "float32")
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([32])
        O[thread] = T.float32(0)
        for _ in T.serial(1 << 30):
            O[thread] = O[thread] + T.float32(1)

    return main


@T.inline
def double_role(o, x, row, columns):
    for column in T.serial(columns):
        o[row, column] = x[row, column] + x[row, column]


@T.inline
def copy_role(o, x, row, columns):
    for column in T.serial(columns):
        o[row, column] = x[row, column]


@T.inline
def triple_role(o, x, row, columns):
    for column in T.serial(columns):
        o[row, column] = x[row, column] * T.float32(3)


def role_kernel(upper, lower, rows: int = 64, columns: int = 4):
    """O from X by one role on the upper half of the rows, and by another on the lower half."""

    @T.prim_func
    def main(X_ptr: T.handle, O_ptr: T.handle):
        X = T.match_buffer(X_ptr, (rows, columns), "float32")
        O = T.match_buffer(O_ptr, (rows, columns), "float32")
        T.device_entry()
        T.cta_id([1])
        row = T.thread_id([rows])
        if row < rows // 2:
            upper(O, X, row, columns)
        else:
            lower(O, X, row, columns)

    return main
