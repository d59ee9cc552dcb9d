"""Arithmetic on a consumer thread's part of S: the accumulator fragment of a WGMMA, two rows of 32 scores each.

Register 4·j + 2·r + e of a thread is row lane // 4 + 8·r of its warp's sixteen, column 8·j + 2·(lane % 4) + e. The four
lanes of a quad share their two rows. Registers only: no barrier, no memory.
"""

from __future__ import annotations

from tvm.script import tirx as T

from tirx_attn.config import TILE_KEYS

ROWS = 2
"""Rows of a thread."""

SCORES = TILE_KEYS // 2
"""Registers of a thread's part of S."""

NEGATIVE_INFINITY = float("-inf")
_ALL = 0xFFFFFFFF


@T.inline
def mask(x, visible, lane):
    """Set the columns of row r from visible[r] on to −inf. By select: a NaN in a hidden column must not survive."""
    first: T.let = 2 * (lane % 4)
    for i in T.unroll(SCORES):
        column = T.meta_var(8 * (i // 4) + i % 2)
        x[i] = T.if_then_else(column + first < visible[(i // 2) % 2], x[i], T.float32(NEGATIVE_INFINITY))


@T.inline
def row_maxima(x, result):
    """result[r] = max of the quad's row r, by two chains for each row."""
    m = T.alloc_local([4], "float32")
    for c in T.unroll(4):
        m[c] = x[c]
    for i in T.unroll(SCORES // 4 - 1):
        for c in T.unroll(4):
            m[c] = T.max(m[c], x[4 * i + 4 + c])
    for r in T.unroll(ROWS):
        result[r] = T.max(m[2 * r], m[2 * r + 1])
        result[r] = T.max(result[r], T.tvm_warp_shuffle_xor(T.uint32(_ALL), result[r], 1, 32, 32))
        result[r] = T.max(result[r], T.tvm_warp_shuffle_xor(T.uint32(_ALL), result[r], 2, 32, 32))


@T.inline
def exponentials(x, scale, reference):
    """x = exp2(x·scale − reference of the row)."""
    for i in T.unroll(SCORES):
        T.ptx.fma.rn.ftz.f32(x[i], x[i], scale, T.float32(0) - reference[(i // 2) % 2])
        T.ptx.ex2.approx.ftz.f32(x[i], x[i])


@T.inline
def add_rows(total, x):
    """total[r] += this thread's part of row r."""
    part = T.alloc_local([4], "float32")
    for c in T.unroll(4):
        part[c] = x[c]
    for i in T.unroll(SCORES // 4 - 1):
        for c in T.unroll(4):
            part[c] = part[c] + x[4 * i + 4 + c]
    for r in T.unroll(ROWS):
        total[r] = total[r] + (part[2 * r] + part[2 * r + 1])


@T.inline
def quad_sums(total):
    """Sum of the four lanes that share a row, in all of them."""
    for r in T.unroll(ROWS):
        total[r] = total[r] + T.tvm_warp_shuffle_xor(T.uint32(_ALL), total[r], 1, 32, 32)
        total[r] = total[r] + T.tvm_warp_shuffle_xor(T.uint32(_ALL), total[r], 2, 32, 32)


@T.inline
def pack(p, x, dtype):
    """P for the next MMA's A operand: pairs of neighbouring columns in 16 bit, as they lie in the fragment of S."""
    NAME = T.meta_var("cvt.rn.f16x2.f32" if dtype == "float16" else "cvt.rn.bf16x2.f32")
    for i in T.unroll(SCORES // 2):
        T.ptx[NAME](p[i], x[2 * i + 1], x[2 * i])


@T.inline
def scale_rows(x, COUNT, factor):
    """Multiply row r of an accumulator of COUNT registers by factor[r]."""
    for i in T.unroll(COUNT):
        x[i] = x[i] * factor[(i // 2) % 2]
