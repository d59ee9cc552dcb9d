"""acc_scale and row_sum of a row, from the softmax thread that has them to the correction thread of the same row.

Through shared memory, or through columns of S in tensor memory, of which both warps reach the same 32 lanes. `place` is
"acc_scale" or "row_sum". What a function leaves to its caller is the barrier.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_attn.config import TILE_ROWS
from tirx_attn.schedule.plan import STATISTIC_COLUMNS as WIDTH


def tmem_column(ctx, place: str, stage):
    """First column of `s_tmem` that holds a statistic of a stage."""
    first, second = getattr(ctx.plan.tmem, place)
    return first.start - ctx.plan.tmem.s[0].start + stage * (second.start - first.start)


@T.inline
def put(ctx, PLACE, stage, value):
    """Write a statistic of the thread's row. The caller arrives next."""
    if ctx.plan.schedule.statistics_in_tmem:
        column = T.meta_var(tmem_column(ctx, PLACE, stage))
        register = T.alloc_tcgen05_ldst_frag("32x32b", (TILE_ROWS, WIDTH), "float32")
        row = register.local(WIDTH)
        for c in T.unroll(WIDTH):
            row[c] = value
        Tx.wg.copy_async(ctx.s_tmem[:, column : column + WIDTH], register[:, :])
        T.ptx.tcgen05.wait__st.sync.aligned()
        T.ptx.tcgen05.fence__before_thread_sync()
    else:
        mail = T.meta_var(getattr(ctx, f"{PLACE}_smem"))
        mail[stage, ctx.thread] = value


@T.inline
def take(ctx, PLACE, stage, result):
    """result[0] = a statistic of the thread's row. The caller has waited for it, and may arrive next."""
    if ctx.plan.schedule.statistics_in_tmem:
        column = T.meta_var(tmem_column(ctx, PLACE, stage))
        register = T.alloc_tcgen05_ldst_frag("32x32b", (TILE_ROWS, WIDTH), "float32")
        row = register.local(WIDTH)
        T.ptx.tcgen05.fence__after_thread_sync()
        Tx.wg.copy_async(register[:, :], ctx.s_tmem[:, column : column + WIDTH])
        T.ptx.tcgen05.wait__ld.sync.aligned()
        T.ptx.tcgen05.fence__before_thread_sync()
        result[0] = row[0]
    else:
        mail = T.meta_var(getattr(ctx, f"{PLACE}_smem"))
        result[0] = mail[stage, ctx.thread]
