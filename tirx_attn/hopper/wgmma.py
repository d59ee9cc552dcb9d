"""WGMMA: shared-memory descriptors of the tiles, and the two products of a block.

A tile lies in panels of 64 columns, each row 128 bytes, swizzled. Offsets are in units of 16 bytes.
"""

from __future__ import annotations

from tvm.script import tirx as T

from tirx_attn.config import TILE_KEYS
from tirx_attn.hopper.schedule import CONSUMER_ROWS
from tirx_attn.schedule.parts import PANEL_COLUMNS

K_STEP = 16
"""Depth of one WGMMA, 16-bit elements."""

ROW_UNITS = PANEL_COLUMNS * 2 // 16
"""One row of a panel."""

GROUP_UNITS = 8 * ROW_UNITS
"""Eight rows: the distance from one swizzle atom to the next."""

KV_PANEL_UNITS = TILE_KEYS * ROW_UNITS
"""From one panel of a K or V tile to the next."""

SWIZZLE_128B = 3

_SHORT = {"float16": "f16", "bfloat16": "bf16"}


def major_k(step, rows):
    """Where step `step` along D begins in a tile of rows that hold D."""
    per_panel = PANEL_COLUMNS // K_STEP
    return T.cast((step // per_panel) * (rows * ROW_UNITS) + (step % per_panel) * (K_STEP * 2 // 16), "uint64")


def major_mn(step):
    """Where step `step` along the keys begins in a V tile: 16 rows further each."""
    return T.cast(step * (K_STEP * ROW_UNITS), "uint64")


def consumer_rows(consumer):
    """Where the rows of a consumer begin in a query tile."""
    return T.cast(consumer * (CONSUMER_ROWS * ROW_UNITS), "uint64")


def slot_offset(slot, rows, columns):
    """Where a slot's tile begins, of those that lie one behind the other."""
    return T.cast(slot * (rows * columns * 2 // 16), "uint64")


@T.inline
def encode(descriptor, pointer):
    """Descriptor of a tile of panels. Only V asks for the distance of panels: the other operands are K-major."""
    T.cuda.wgmma.encode_matrix_descriptor(
        T.address_of(descriptor), pointer, KV_PANEL_UNITS, GROUP_UNITS, SWIZZLE_128B
    )


@T.inline
def qk(ctx, s, q, k):
    """S = Q·Kᵀ: issue and commit. `q` and `k` are descriptors."""
    SHORT = T.meta_var(_SHORT[ctx.config.dtype])
    NAME = T.meta_var(f"wgmma.mma_async.sync.aligned.m64n{TILE_KEYS}k{K_STEP}.f32.{SHORT}.{SHORT}")
    ROWS = T.meta_var(ctx.plan.schedule.rows)
    T.ptx.wgmma.fence.sync.aligned()
    for step in T.unroll(ctx.config.D // K_STEP):
        T.ptx[NAME](
            *[s[i] for i in range(TILE_KEYS // 2)],
            q + major_k(step, ROWS),
            k + major_k(step, TILE_KEYS),
            step != 0,
            1,
            1,
            0,
            0,
        )
    T.ptx.wgmma.commit_group.sync.aligned()


@T.inline
def pv(ctx, o, p, v):
    """O += P·V: issue and commit. P is in registers, `v` a descriptor."""
    SHORT = T.meta_var(_SHORT[ctx.config.dtype])
    NAME = T.meta_var(f"wgmma.mma_async.sync.aligned.m64n{ctx.config.D}k{K_STEP}.f32.{SHORT}.{SHORT}")
    T.ptx.wgmma.fence.sync.aligned()
    for step in T.unroll(TILE_KEYS // K_STEP):
        T.ptx[NAME](
            *[o[i] for i in range(ctx.config.D // 2)],
            *[p[4 * step + i] for i in range(4)],
            v + major_mn(step),
            T.bool(True),
            1,
            1,
            1,
        )
    T.ptx.wgmma.commit_group.sync.aligned()


@T.inline
def wait(groups):
    """Until at most `groups` committed groups are still under way."""
    T.ptx.wgmma.wait_group.sync.aligned(groups)


_FENCE = """
__forceinline__ __device__ void fence_register(float& r) {
  asm volatile("" : "+f"(r) :: "memory");
}
"""


@T.inline
def fence(registers, COUNT):
    """Keep the compiler from moving uses of accumulators ahead of the wait that makes them valid."""
    for i in T.unroll(COUNT):
        T.cuda.func_call("fence_register", registers[i], source_code=_FENCE)
