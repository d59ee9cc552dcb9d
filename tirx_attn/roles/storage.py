"""Shared-memory tiles as roles and TMA see them, and the factor on the scores; the same on every architecture."""

from __future__ import annotations

import math

from tvm.script import tirx as T
from tvm.tirx.layout import ComposeLayout, S, TileLayout

from tirx_attn.config import RUNTIME
from tirx_attn.schedule.parts import PANEL_COLUMNS, WARP_THREADS

LOG2_E = math.log2(math.e)


def tiles(pool, region, stages, rows, config):
    """Tiles of rows of D columns, in swizzled panels, at a planned region."""
    pool.move_base_to(region.start)
    return pool.alloc_tcgen05_mma_AB((stages, rows, config.D), config.dtype)


def packed(tiles, stages, geometry):
    """The same tiles as [stage, panel, token, head, column]: how TMA sees packed rows."""
    tokens, ratio, panels = geometry.tokens_per_tile, geometry.config.ratio, geometry.config.D // PANEL_COLUMNS
    shape = (stages, panels, tokens, ratio, PANEL_COLUMNS)
    panel = geometry.rows * PANEL_COLUMNS
    strides = (panels * panel, panel, ratio * PANEL_COLUMNS, PANEL_COLUMNS, 1)
    return tiles.view(*shape, layout=ComposeLayout(3, 3, 3, TileLayout(S[shape:strides])))


def scale_log2(config, scale):
    """Turns a raw score into a base-2 exponent; `scale` is the kernel's parameter, where it has one."""
    if config.scale == RUNTIME:
        return scale * T.float32(LOG2_E)
    return T.float32(LOG2_E * config.softmax_scale)


@T.inline
def clear_unused_rows(ctx, STAGES):
    """Zero the rows of the Q tiles that hold no query: TMA never writes them, and the MMA reads them."""
    if ctx.tiles.used_rows < ctx.tiles.rows:
        if ctx.warpgroup < STAGES:
            if ctx.warp == 0:
                for row in T.serial(ctx.tiles.used_rows, ctx.tiles.rows, unroll=False):
                    for i in T.unroll(ctx.config.D // WARP_THREADS):
                        column = T.meta_var(i * WARP_THREADS + ctx.thread)
                        ctx.q_smem[ctx.warpgroup, row, column] = T.cast(T.float32(0), ctx.config.dtype)
        T.ptx.fence.proxy.async_.shared__cta()
