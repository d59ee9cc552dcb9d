"""Running statistics of one row, in registers of the thread that owns it."""

from __future__ import annotations

from tvm.script import tirx as T

from tirx_attn.roles import rowmath


@T.meta_class
class RowState:
    """What the softmax of a row has seen of it so far.

    `peak` is the score that weights are relative to, −inf until the row has seen a key; `reference` is what their
    base-2 exponents subtract: peak · scale, and 0 for −inf; `offset` is the same for the emulated ones. `total` is the
    denominator relative to it, as a packed pair of partial sums. `acc_scale` is what the last `update` made smaller.
    """

    def __init__(self):
        self.peak = T.local_scalar("float32")
        self.reference = T.local_scalar("float32")
        self.offset = T.local_scalar("float32")
        self.total = T.local_scalar("uint64")
        self.acc_scale = T.local_scalar("float32")

    @T.inline
    def reset(self):
        self.peak = T.float32(rowmath.NEGATIVE_INFINITY)
        T.ptx.mov.b64(self.total, T.float32(0), T.float32(0))

    @T.inline
    def sum(self, result):
        """result[0] = row_sum."""
        low: T.float32
        high: T.float32
        T.ptx.mov.b64(low, high, self.total)
        result[0] = low + high

    @T.inline
    def update(self, maximum, scale_log2, THRESHOLD):
        """Take the maximum of a block into account. O must then be multiplied by acc_scale, as `total` is here.

        The first maximum becomes the peak: −inf minus it lies below every threshold.
        """
        candidate: T.let = T.max(self.peak, maximum)
        delta: T.let = (self.peak - candidate) * scale_log2
        self.acc_scale = T.float32(1)
        # False for the NaN of −inf minus −inf, a row without a key so far: its peak stays.
        if delta < T.float32(-THRESHOLD):
            T.ptx.ex2.approx.ftz.f32(self.acc_scale, delta)
            self.peak = candidate
        rowmath.scale_pair(self.total, self.acc_scale)
        # A row without a key so far subtracts 0: exp2(−inf − 0) = 0, where −inf − (−inf) would be NaN.
        self.reference = T.if_then_else(
            self.peak == T.float32(rowmath.NEGATIVE_INFINITY), T.float32(0), self.peak * scale_log2
        )
