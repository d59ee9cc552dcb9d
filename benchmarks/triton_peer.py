"""The Triton kernel of this comparison, with its tile sizes chosen for each shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.inputs import Problem
from benchmarks.measure import Clock, Implementation
from benchmarks.tuning import fastest, in_threads


@dataclass(frozen=True)
class Tiling:
    """Query rows and keys of a tile, ring stages of K and V, and warps of a CTA."""

    rows: int
    keys: int
    stages: int
    warps: int

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.keys}, {self.stages} stages, {self.warps} warps"


TILINGS = (
    Tiling(128, 128, 2, 8),
    Tiling(128, 128, 3, 8),
    Tiling(128, 128, 3, 4),
    Tiling(128, 64, 3, 8),
    Tiling(128, 64, 2, 4),
    Tiling(128, 64, 3, 4),
    Tiling(64, 128, 3, 4),
    Tiling(64, 64, 3, 4),
)


class TritonPeer:
    """Compiles all tilings once for each mask, dtype and head layout, and times them for each shape."""

    def __init__(self) -> None:
        import triton  # noqa: F401  fails here, not at the first shape

        self.compiled: set[tuple[Any, ...]] = set()

    def __call__(self, problem: Problem, clock: Clock) -> Implementation:
        config = problem.config
        key = (config.dtype, config.is_causal, config.Hq, config.Hkv, config.D, *(n % 16 for n in config.lengths[1:]))
        if key not in self.compiled:
            in_threads(partial(Launch(problem, tiling).compile) for tiling in TILINGS)
            self.compiled.add(key)
        variants: dict[str, Callable[[], Implementation]] = {
            tiling.name: partial(_implementation, problem, tiling) for tiling in TILINGS
        }
        return fastest(variants, problem, clock)


class Launch:
    """The arguments of one launch of the kernel."""

    def __init__(self, problem: Problem, tiling: Tiling) -> None:
        import torch
        from triton.tools.tensor_descriptor import TensorDescriptor

        from benchmarks.triton_kernel import attention

        config = problem.config
        batches, sq, skv = config.lengths

        def rows_of(tensor: Any, rows: int) -> Any:
            return TensorDescriptor.from_tensor(tensor.view(-1, tensor.shape[2] * config.D), [rows, config.D])

        self.kernel = attention
        self.grid = (-(-sq // tiling.rows), config.Hq, batches)
        self.output = torch.full_like(problem.q, float("nan"))
        self.arguments = (
            rows_of(problem.q, tiling.rows),
            rows_of(problem.k, tiling.keys),
            rows_of(problem.v, tiling.keys),
            self.output,
            sq,
            skv,
            config.softmax_scale * math.log2(math.e),
        )
        self.constants = {
            "HEADS": config.Hq,
            "KV_HEADS": config.Hkv,
            "CAUSAL": config.is_causal,
            "ROWS": tiling.rows,
            "KEYS": tiling.keys,
            "D": config.D,
            "STAGES": tiling.stages,
            "num_warps": tiling.warps,
        }

    def compile(self) -> None:
        """Compile without a launch."""
        self.kernel.warmup(*self.arguments, grid=self.grid, **self.constants)

    def __call__(self) -> None:
        self.kernel[self.grid](*self.arguments, **self.constants)


def _implementation(problem: Problem, tiling: Tiling) -> Implementation:
    launch = Launch(problem, tiling)
    return Implementation(call=launch, output=lambda: launch.output)
