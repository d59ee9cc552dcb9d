"""The implementations that are compared. Each is made ready for one shape by `prepare(problem, clock)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from benchmarks.inputs import Problem
from benchmarks.kernels import library_name, load
from benchmarks.measure import Clock, Implementation

OURS = "ours"
REPEATED = "repeated"
LABELS = {
    OURS: "tirx_attn",
    REPEATED: "tirx_attn, K and V repeated",
    "cudnn": "cuDNN (torch)",
    "fa2": "FlashAttention-2 (torch)",
    "triton": "Triton",
    "pallas": "JAX Pallas Mosaic GPU",
}
"""Short and full names of the implementations, in the order of the tables."""

PEERS = tuple(name for name in LABELS if name not in (OURS, REPEATED))
"""Those that ours is compared with. `repeated` shows what a shape with grouped heads costs without groups."""


class Peer(Protocol):
    """Makes one implementation ready for shapes, one after another."""

    def __call__(self, problem: Problem, clock: Clock) -> Implementation:
        """The implementation for `problem`. Any exception means that it cannot run the shape."""


def make_peers(names: list[str], libraries: Path) -> dict[str, Peer]:
    """The peers called `names`; one that cannot be imported fails on every shape.

    Args:
        names: keys of LABELS.
        libraries: folder of our kernels' shared libraries.
    """
    makers: Mapping[str, Callable[[], Peer]] = {
        OURS: lambda: Ours(libraries),
        REPEATED: lambda: Ours(libraries, repeated=True),
        "cudnn": lambda: Torch("CUDNN_ATTENTION"),
        "fa2": lambda: Torch("FLASH_ATTENTION"),
        "triton": _triton,
        "pallas": _pallas,
    }
    return {name: _made(makers[name]) for name in names}


class Ours:
    """Our kernels, loaded from the libraries in a folder.

    Args:
        libraries: the folder.
        repeated: K and V are repeated beforehand, to a head for each query head, for the kernel of that many K/V heads.
    """

    def __init__(self, libraries: Path, *, repeated: bool = False) -> None:
        self.libraries = libraries
        self.repeated = repeated
        self.loaded: dict[str, Callable[..., Any]] = {}

    def __call__(self, problem: Problem, clock: Clock) -> Implementation:
        import torch

        config = problem.config
        q, k, v = problem.q, problem.k, problem.v
        if self.repeated:
            k, v = (x.repeat_interleave(config.ratio, dim=2) for x in (k, v))
            config = replace(config, Hkv=config.Hq)
        name = library_name(config)
        if name not in self.loaded:
            self.loaded[name] = load(self.libraries / name)
        kernel = self.loaded[name]
        o = torch.full_like(q, float("nan"))
        return Implementation(call=lambda: kernel(q, k, v, o), output=lambda: o, variant=name)


class Torch:
    """scaled_dot_product_attention of torch with one backend.

    Args:
        backend: a name of torch.nn.attention.SDPBackend.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def __call__(self, problem: Problem, clock: Clock) -> Implementation:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.attention.bias import causal_lower_right
        from torch.nn.functional import scaled_dot_product_attention

        config = problem.config
        _, sq, skv = config.lengths
        q, k, v = (x.transpose(1, 2) for x in (problem.q, problem.k, problem.v))
        variant = self.backend
        arguments: dict[str, Any] = {"is_causal": config.is_causal, "enable_gqa": config.ratio > 1}
        if config.is_causal and sq != skv:  # is_causal alone aligns the mask to the top left
            arguments = {"attn_mask": causal_lower_right(sq, skv), "enable_gqa": config.ratio > 1}
            variant += ", causal_lower_right"
        backend = getattr(SDPBackend, self.backend)
        chosen = ExitStack()
        result: list[Any] = [None]

        def call() -> None:
            result[0] = scaled_dot_product_attention(q, k, v, **arguments)

        return Implementation(
            call=call,
            output=lambda: result[0].transpose(1, 2),
            enter=lambda: chosen.enter_context(sdpa_kernel(backend)),
            leave=chosen.close,
            variant=variant,
        )


class Absent:
    """A peer that could not be made: every shape has the reason as its result."""

    def __init__(self, reason: Exception) -> None:
        self.reason = reason

    def __call__(self, problem: Problem, clock: Clock) -> Implementation:
        raise self.reason


def _made(maker: Callable[[], Peer]) -> Peer:
    try:
        return maker()
    except Exception as error:
        return Absent(error)


def _triton() -> Peer:
    from benchmarks.triton_peer import TritonPeer

    return TritonPeer()


def _pallas() -> Peer:
    from benchmarks.pallas_peer import PallasPeer

    return PallasPeer()
