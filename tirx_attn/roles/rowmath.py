"""Arithmetic on one row of 128 scores, held by one thread. Packed fp32 pairs wherever the hardware has them.

Every function works on the thread's registers only: no barrier, no memory. `x` is the row, float32[128].
"""

from __future__ import annotations

from tvm.script import tirx as T

from tirx_attn.config import TILE_KEYS
from tirx_attn.schedule.schedule import FRAGMENT_COLUMNS

PIECE_PAIRS = FRAGMENT_COLUMNS // 2
NEGATIVE_INFINITY = float("-inf")

EXP2_COEFFICIENTS = (1.0, 0.69511675835, 0.22764505446, 0.07706698775)
"""2**f on [0, 1) as a cubic with p(0) = 1: relative minimax fit, error 8.6e-5 (half an fp16 ulp is 4.9e-4)."""

FLOOR_MAGIC = 12582912.0
"""1.5 * 2**23: adding it with rounding toward minus infinity leaves floor(x) in the low mantissa bits."""

EXPONENT_BITS = 23
LOWEST_EXPONENT = -127.0
EXPONENT_SPAN = 256.0
"""Width of the range of exponents that the saturating FMA maps to [0, 1]."""


@T.inline
def mask_columns(x, visible):
    """Set the columns from `visible` on to −inf. By select: a NaN or inf in a hidden column must not survive."""
    for piece in T.unroll(TILE_KEYS // 32):
        keep: T.uint32
        # Bit c of `keep` is set when column 32·piece + c is visible; bmsk clamps a width above 32.
        T.ptx.bmsk.clamp.b32(keep, T.uint32(0), T.cast(T.max(visible - 32 * piece, 0), "uint32"))
        for c in T.unroll(32):
            x[32 * piece + c] = T.if_then_else(
                T.bitwise_and(keep, T.shift_left(T.uint32(1), T.uint32(c))) != T.uint32(0),
                x[32 * piece + c],
                T.float32(NEGATIVE_INFINITY),
            )


@T.inline
def row_maximum(x, result):
    """result[0] = max of the row, −inf for a row of −inf, by four chains of three-input maxima.

    Each takes two values away: 63 of them and one maximum of two are the fewest for 128. From the last column on, since
    the first ones are worked on at the same time.
    """
    LAST = T.meta_var(TILE_KEYS - 1)
    m = T.alloc_local([4], "float32")
    for c in T.unroll(4):
        T.ptx.max.f32(m[c], x[LAST - 3 * c], x[LAST - 1 - 3 * c], x[LAST - 2 - 3 * c])
    for i in T.unroll((TILE_KEYS - 12) // 2):
        T.ptx.max.f32(m[i % 4], m[i % 4], x[LAST - 12 - 2 * i], x[LAST - 13 - 2 * i])
    T.ptx.max.f32(m[0], m[0], m[1], m[2])
    result[0] = T.max(m[0], m[3])


@T.inline
def emulation_offset(reference, offset):
    """offset = (127 − reference) / 256."""
    T.ptx.fma.rn.ftz.f32(
        offset, reference, T.float32(-1 / EXPONENT_SPAN), T.float32(-LOWEST_EXPONENT / EXPONENT_SPAN)
    )


@T.inline
def emulated_pair(x, i, scale, offset):
    """x[i], x[i+1] = exp2(x·scale − reference) on the FMA pipe, by Cody–Waite: exponent = n + f; a cubic in f.

    The exponent is formed as (exponent + 127) / 256 by a saturating FMA, so that it is clamped to [−127, 129] for
    free. It never exceeds the rescale threshold, which is at most 8.
    """
    span: T.uint64
    c0: T.uint64
    c1: T.uint64
    c2: T.uint64
    c3: T.uint64
    magic: T.uint64
    unit: T.uint64
    whole: T.uint64
    fraction: T.uint64
    power: T.uint64
    u = T.alloc_local([2], "float32")
    n = T.alloc_local([2], "float32")
    m = T.alloc_local([2], "float32")
    T.ptx.mov.b64(span, T.float32(EXPONENT_SPAN), T.float32(EXPONENT_SPAN))
    T.ptx.mov.b64(c0, T.float32(EXP2_COEFFICIENTS[0]), T.float32(EXP2_COEFFICIENTS[0]))
    T.ptx.mov.b64(c1, T.float32(EXP2_COEFFICIENTS[1]), T.float32(EXP2_COEFFICIENTS[1]))
    T.ptx.mov.b64(c2, T.float32(EXP2_COEFFICIENTS[2]), T.float32(EXP2_COEFFICIENTS[2]))
    T.ptx.mov.b64(c3, T.float32(EXP2_COEFFICIENTS[3]), T.float32(EXP2_COEFFICIENTS[3]))
    T.ptx.mov.b64(magic, T.float32(FLOOR_MAGIC + LOWEST_EXPONENT), T.float32(FLOOR_MAGIC + LOWEST_EXPONENT))
    for e in T.unroll(2):
        T.ptx.fma.rn.ftz.sat.f32(u[e], x[i + e], scale * T.float32(1 / EXPONENT_SPAN), offset)
    T.ptx.mov.b64(unit, u[0], u[1])
    T.ptx.fma.rm.ftz.f32x2(whole, unit, span, magic)
    T.ptx.sub.rn.ftz.f32x2(fraction, magic, whole)
    T.ptx.fma.rn.ftz.f32x2(fraction, unit, span, fraction)
    T.ptx.fma.rn.ftz.f32x2(power, fraction, c3, c2)
    T.ptx.fma.rn.ftz.f32x2(power, power, fraction, c1)
    T.ptx.fma.rn.ftz.f32x2(power, power, fraction, c0)
    T.ptx.mov.b64(n[0], n[1], whole)
    T.ptx.mov.b64(m[0], m[1], power)
    for e in T.unroll(2):
        x[i + e] = T.reinterpret(
            "float32",
            T.shift_left(T.reinterpret("int32", n[e]), T.int32(EXPONENT_BITS)) + T.reinterpret("int32", m[e]),
        )


@T.inline
def exponentials(x, first, scale, reference, offset, emulated):
    """x = exp2(x·scale − reference) on the 32 columns from `first`; the last `emulated` pairs by polynomial."""
    scales: T.uint64
    references: T.uint64
    pair: T.uint64
    T.ptx.mov.b64(scales, scale, scale)
    T.ptx.mov.b64(references, T.float32(0) - reference, T.float32(0) - reference)
    for p in T.unroll(PIECE_PAIRS):
        i = T.meta_var(first + 2 * p)
        if p < PIECE_PAIRS - emulated:
            T.ptx.mov.b64(pair, x[i], x[i + 1])
            T.ptx.fma.rn.ftz.f32x2(pair, pair, scales, references)
            T.ptx.mov.b64(x[i], x[i + 1], pair)
            T.ptx.ex2.approx.ftz.f32(x[i], x[i])
            T.ptx.ex2.approx.ftz.f32(x[i + 1], x[i + 1])
        else:
            emulated_pair(x, i, scale, offset)


@T.inline
def add_columns(total, x, first):
    """Add the 32 columns from `first` to the packed pair of partial sums `total`."""
    pair: T.uint64
    for i in T.unroll(PIECE_PAIRS):
        T.ptx.mov.b64(pair, x[first + 2 * i], x[first + 2 * i + 1])
        T.ptx.add.rn.ftz.f32x2(total, total, pair)


@T.inline
def scale_pair(pair, factor):
    """Multiply both halves of a packed pair by a scalar."""
    factors: T.uint64
    T.ptx.mov.b64(factors, factor, factor)
    T.ptx.mul.rn.ftz.f32x2(pair, pair, factors)


@T.inline
def scale_columns(x, COLUMNS, factor):
    """Multiply the first COLUMNS values of `x` by a scalar, pair by pair."""
    pair: T.uint64
    for i in T.unroll(COLUMNS // 2):
        T.ptx.mov.b64(pair, x[2 * i], x[2 * i + 1])
        scale_pair(pair, factor)
        T.ptx.mov.b64(x[2 * i], x[2 * i + 1], pair)


@T.inline
def subtract(x, COLUMNS, factor, reference):
    """x = x·factor − reference on the first COLUMNS values, rounded once, pair by pair."""
    pair: T.uint64
    factors: T.uint64
    references: T.uint64
    T.ptx.mov.b64(factors, factor, factor)
    T.ptx.mov.b64(references, T.float32(0) - reference, T.float32(0) - reference)
    for i in T.unroll(COLUMNS // 2):
        T.ptx.mov.b64(pair, x[2 * i], x[2 * i + 1])
        T.ptx.fma.rn.ftz.f32x2(pair, pair, factors, references)
        T.ptx.mov.b64(x[2 * i], x[2 * i + 1], pair)
