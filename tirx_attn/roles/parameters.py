"""The kernel's tensors: which of their sizes are known when the kernel is generated, and how they lie in memory.

Shapes and strides are 64-bit, so that the host's offsets and byte strides never wrap. The device sees sizes as 32-bit
coordinates and no stride at all: TMA descriptors hold those.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.layout import S, TileLayout

from tirx_attn.config import MAX_SIZE, RUN_TIME_NAMES, RUNTIME, SCALES
from tirx_attn.schedule.base import BasePlan
from tirx_attn.schedule.parts import ELEMENT_BYTES
from tirx_attn.schedule.schedule import MAX_TASKS
from tirx_attn.schedule.tiles import Index
from tirx_attn.targets import TMA_ALIGNMENT, TMA_MAX_STRIDE

STRIDE_UNIT = TMA_ALIGNMENT // ELEMENT_BYTES


@dataclass(frozen=True)
class Counts:
    """Sizes of a launch as 32-bit numbers; variables where they are known at run time only.

    Attributes:
        batches, sq, skv: B, Sq and Skv.
        m_blocks: tasks along the query tokens.
        tasks: (batch, K/V head, pair of query tiles) triples.
        l2_heads: (batch, K/V head) pairs that are taken together.
    """

    batches: Index
    sq: Index
    skv: Index
    m_blocks: Index
    tasks: Index
    l2_heads: Index


class Parameters:
    """Shapes and layouts of Q, K, V, O and LSE for `T.match_buffer`."""

    def __init__(self, plan: BasePlan):
        config = plan.config
        self.plan = plan
        self.strided = plan.launch.strided
        self.strides: dict[str, tuple[tuple[Any, Any], ...]] = {}
        self.dims = {name: self._dim(name, getattr(config, name)) for name in ("B", "Sq", "Skv", "Hq", "Hkv", "D")}
        self.queries = self._shape("B", "Sq", "Hq", "D")
        self.keys = self._shape("B", "Skv", "Hkv", "D")
        self.lse = self._shape("B", "Hq", "Sq")

    def refuse_misfits(self, scale: Any) -> None:
        """Host code that refuses, by name, what the device or the TMA descriptors cannot take.

        It stands ahead of all that follows from the sizes. The simulator takes no assertion, and only compact tensors.
        """
        if not self.strided:
            return
        config = self.plan.config
        for name in config.run_time_names:
            # Unsigned, so that 0 is refused too, and so that TVM proves nothing about the device code from it: that
            # must stay what the simulator runs.
            fits = T.cast(self.dims[name] - 1, "uint64") < T.uint64(MAX_SIZE)
            _refuse_unless(fits, f"{name}: allowed are sizes from 1 to {MAX_SIZE}")
        if config.run_time_names:
            m_blocks = self.plan.tiles_of(self.dims["Sq"], self.dims["Skv"]).m_blocks
            fits = self.dims["B"] * m_blocks <= (MAX_TASKS - 1) // config.Hkv
            _refuse_unless(fits, f"B, Sq: allowed are fewer than {MAX_TASKS} tasks")
        if config.scale == RUNTIME:
            low, high = (T.float32(bound) for bound in SCALES)
            _refuse_unless(tirx.all(scale >= low, scale <= high), "scale: allowed are positive numbers")
        for tensor, strides in self.strides.items():
            for axis, (dim, stride) in enumerate(strides):
                fits = tirx.all(stride % STRIDE_UNIT == 0, stride >= 0, stride < TMA_MAX_STRIDE // ELEMENT_BYTES)
                allowed = f"allowed are multiples of {TMA_ALIGNMENT} bytes, from 0 to below {TMA_MAX_STRIDE}"
                _refuse_unless(tirx.any(dim == 1, fits), f"{tensor}.strides[{axis}]: {allowed}")

    def counts(self) -> Counts:
        """What follows from the sizes. Called ahead of the device code: the host divides, once a launch."""
        batches, sq, skv = (self._on_host(self._size(name)) for name in RUN_TIME_NAMES)
        m_blocks = self._on_host(self.plan.tiles_of(sq, skv).m_blocks)
        tasks = self._on_host(batches * self.plan.config.Hkv * m_blocks)
        return Counts(batches, sq, skv, m_blocks, tasks, self._on_host(self.plan.l2_heads(batches, skv)))

    def layout(self, tensor: str, shape: tuple[Any, ...]) -> dict[str, Any]:
        """Keywords of `T.match_buffer` for a tensor [B, S, H, D] whose last dimension is contiguous."""
        if not self.strided:
            return {}
        strides = tuple(tirx.Var(f"{tensor}_{axis}_stride", "int64") for axis in ("batch", "token", "head"))
        self.strides[tensor.upper()] = tuple(zip(shape[:3], strides, strict=True))
        encoded: list[Any] = [tirx.IntImm("int64", 1)]
        inner = shape[3]
        for dim, stride in zip(reversed(shape[:3]), reversed(strides), strict=True):
            # A dimension of size 1 may come with any stride; its descriptor gets that of a compact tensor.
            encoded.insert(0, tirx.Select(dim == 1, inner, stride))
            inner = inner * dim
        return {"strides": (*strides, encoded[-1]), "layout": TileLayout(S[shape : tuple(encoded)]), "offset_factor": 1}

    def _size(self, name: str) -> Index:
        dim = self.dims[name]
        return int(dim) if isinstance(dim, tirx.IntImm) else T.cast(dim, "int32")

    def _on_host(self, value: Index) -> Index:
        return value if isinstance(value, int) else T.bind(value)

    def _dim(self, name: str, size: int | None) -> Any:
        assert size is not None or name in RUN_TIME_NAMES
        return tirx.Var(name, "int64") if size is None else tirx.IntImm("int64", size)

    def _shape(self, *names: str) -> tuple[Any, ...]:
        return tuple(self.dims[name] for name in names)


def unsigned(count):
    """A count as uint32: the device divides by it without a case for negative numbers."""
    return count if isinstance(count, int) else T.cast(count, "uint32")


def _refuse_unless(condition: Any, message: str) -> None:
    """An assertion of the function that is being parsed; the frame ends with the function, as the parser's own do."""
    frame = T.Assert(condition, [message], error_kind="ValueError")
    frame.add_callback(partial(frame.__exit__, None, None, None))
    frame.__enter__()
