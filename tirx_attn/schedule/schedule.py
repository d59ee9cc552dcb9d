"""Schedule: every knob of the kernel that does not change what it computes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tirx_attn.config import TILE_KEYS

MAX_TASKS = 2**30
"""Tasks, and CTAs that stride over them: task numbers are 32-bit on the device, with room for one stride."""

FRAGMENT_COLUMNS = 32
"""S is read from TMEM, and P written to it, in pieces of this many key columns."""

EPILOGUE_OWNERS = ("correction", "softmax")
STATISTICS = ("pairwise", "collective", "tmem")
RESCALES = ("voted", "always")
MMA_ORDERS = ("by_tile", "by_product")


_INTEGERS = (
    "kv_stages", "o_stages", "l2_budget", "rescale_columns", "softmax_registers", "correction_registers",
    "issue_registers",
)  # fmt: skip
_CHOICES = {
    "epilogue_owner": EPILOGUE_OWNERS,
    "statistics": STATISTICS,
    "mma_order": MMA_ORDERS,
    "rescale": RESCALES,
}


@dataclass(frozen=True)
class Schedule:
    """One way to run the kernel. All values are fixed when the kernel is generated.

    Args:
        pv_split: key columns of P in each hand-over to the PV MMA: one to four multiples of 32, in sum 128.
        epilogue_owner: warpgroup that normalises O and stages it for the store, "correction" or "softmax".
        statistics: hand-over of acc_scale, "pairwise" (one named barrier per pair of a softmax and a
            correction warp) or "collective" (one per pair of warpgroups), through shared memory; or "tmem" (pairwise,
            through columns of S that are in registers by then, and row_sum too).
        stagger: let the two softmax warpgroups take turns in their exponentials, but for those that run ahead.
        emulated_pairs: of the 16 pairs of exponentials in each 32-column piece of an unmasked tile, how many are
            computed by a polynomial on the FMA pipe.
        kv_stages: slots of the ring that K and V tiles share.
        o_stages: staging tiles of O, 2 or 1: one is used by the two query tiles by turns, and leaves room for a longer
            ring.
        mma_order: products of a key block, "by_tile" (PV and the next QKᵀ of one query tile, then of the other, so that
            one tile is rescaled while the other is multiplied) or "by_product" (both PV, then both QKᵀ).
        rescale_threshold: base-2 exponent by which the row maximum may grow before O is rescaled.
        rescale: "voted" (a correction warp leaves O alone where none of its rows moved its reference) or "always" (it
            multiplies O by acc_scale in each block, without a branch).
        rescale_columns: columns of O that the correction group holds in registers at a time.
        softmax_registers, correction_registers, issue_registers: registers per thread (setmaxnreg) of the two softmax
            warpgroups, the correction warpgroup, and the warpgroup that issues loads, MMAs and stores.
        l2_budget: bytes of K and V that the tasks in flight should keep in L2 (causal task order).
        persistent_ctas: CTAs of the persistent grid (non-causal); None means one per SM of the target.

    Raises:
        TypeError, ValueError: naming the argument, its value and the allowed values.
    """

    pv_split: tuple[int, ...] = (96, 32)
    epilogue_owner: str = "correction"
    statistics: str = "pairwise"
    stagger: bool = False
    emulated_pairs: tuple[int, int, int, int] = (2, 2, 2, 2)
    kv_stages: int = 3
    o_stages: int = 2
    mma_order: str = "by_tile"
    rescale_threshold: float = 8.0
    rescale: str = "voted"
    rescale_columns: int = 32
    softmax_registers: int = 192
    correction_registers: int = 80
    issue_registers: int = 48
    l2_budget: int = 50 * 1024 * 1024
    persistent_ctas: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("pv_split", "emulated_pairs"):
                _require_int_tuple(field.name, value)
            elif field.name in _INTEGERS:
                _require_int(field.name, value)
        if sum(self.pv_split) != TILE_KEYS or any(part <= 0 or part % FRAGMENT_COLUMNS for part in self.pv_split):
            _refuse("pv_split", self.pv_split, f"positive multiples of {FRAGMENT_COLUMNS}, in sum {TILE_KEYS}")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                _refuse(name, getattr(self, name), f"{', '.join(map(repr, allowed[:-1]))} and {allowed[-1]!r}")
        if not isinstance(self.stagger, bool):
            raise TypeError(f"stagger={self.stagger!r}: allowed values are True and False")
        pieces, pairs = TILE_KEYS // FRAGMENT_COLUMNS, FRAGMENT_COLUMNS // 2
        if len(self.emulated_pairs) != pieces or not all(0 <= n <= pairs for n in self.emulated_pairs):
            _refuse("emulated_pairs", self.emulated_pairs, f"{pieces} integers from 0 to {pairs}")
        if self.kv_stages < 2:
            _refuse("kv_stages", self.kv_stages, "integers from 2 (one K and one V tile)")
        if self.o_stages not in (1, 2):
            _refuse("o_stages", self.o_stages, "1 and 2")
        if isinstance(self.rescale_threshold, bool) or not isinstance(self.rescale_threshold, (int, float)):
            raise TypeError(f"rescale_threshold={self.rescale_threshold!r}: allowed values are numbers from 0 to 8")
        if not 0 <= self.rescale_threshold <= 8:
            _refuse("rescale_threshold", self.rescale_threshold, "numbers from 0 to 8 (weights stay below 2**8)")
        if self.rescale_columns not in (16, 32, 64):
            _refuse("rescale_columns", self.rescale_columns, "16, 32 and 64")
        for name in ("softmax_registers", "correction_registers", "issue_registers"):
            value = getattr(self, name)
            if not 24 <= value <= 256 or value % 8:
                _refuse(name, value, "multiples of 8 from 24 to 256")
        if not 0 < self.l2_budget < 2**31:
            _refuse("l2_budget", self.l2_budget, "positive byte counts below 2**31")
        if self.persistent_ctas is not None:
            _require_int("persistent_ctas", self.persistent_ctas)
            if not 1 <= self.persistent_ctas <= MAX_TASKS:
                _refuse("persistent_ctas", self.persistent_ctas, "None and positive integers up to 2**30")

    @property
    def statistics_in_tmem(self) -> bool:
        """acc_scale and row_sum go through tensor memory."""
        return self.statistics == "tmem"

    @property
    def emulated_exponentials(self) -> int:
        """Exponentials of the 128 of a row that the FMA pipe computes on an unmasked tile."""
        return 2 * sum(self.emulated_pairs)


def _refuse(name: str, value: object, allowed: str) -> None:
    raise ValueError(f"{name}={value!r}: allowed values are {allowed}")


def _require_int(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} ({type(value).__name__}): allowed values are integers")


def _require_int_tuple(name: str, value: object) -> None:
    if not isinstance(value, tuple) or any(isinstance(item, bool) or not isinstance(item, int) for item in value):
        raise TypeError(f"{name}={value!r}: allowed values are tuples of integers")
