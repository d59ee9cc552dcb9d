"""The kernels whose launches are tested, and what is read off a call. The fixture `launched` compiles each once.

The launcher is the real one, over stand-ins for the CUDA libraries.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from tests.runtime.launcher import Call, Encode, Launch, Launcher, Tensor, compact
from tirx_attn import AttentionConfig

KERNELS = {
    "full": AttentionConfig(None, None, None, 4, 2, 128),
    "causal": AttentionConfig(None, None, None, 6, 2, 64, True, dtype="bfloat16", scale="runtime", return_lse=True),
    "fixed": AttentionConfig(1, 128, 128, 4, 4, 128),
    "many_heads": AttentionConfig(2, 300, 130, 70000, 70000, 64, True),
}

AT = {"Q": 1 << 42, "K": 2 << 42, "V": 3 << 42, "O": 4 << 42, "LSE": 5 << 42}
"""Addresses of the tensors, far from each other."""


class Kernel:
    """The launcher of one of KERNELS, called with compact tensors at AT but for those that are given."""

    def __init__(self, stubs: Path, name: str):
        self.config = config = KERNELS[name]
        self.launcher = Launcher(stubs, "tirx_attn.get_flash_attention4_kernel", asdict(config))

    def __call__(self, b: int, sq: int, skv: int, scale: float = 0.125, **given: Tensor) -> Call:
        config = self.config
        shapes = {
            "Q": (b, sq, config.Hq, config.D),
            "K": (b, skv, config.Hkv, config.D),
            "V": (b, skv, config.Hkv, config.D),
            "O": (b, sq, config.Hq, config.D),
        }
        arguments = [given.get(name, self.compact(name, *shape)) for name, shape in shapes.items()]
        if config.return_lse:
            arguments.append(given.get("LSE", self.compact("LSE", b, config.Hq, sq)))
        if config.scale == "runtime":
            arguments.append(scale)
        return self.launcher(*arguments)

    def compact(self, name: str, *shape: int) -> Tensor:
        return compact(*shape, dtype="float32" if name == "LSE" else self.config.dtype, address=AT[name])


def placed(call: Call) -> dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Of each tensor: bytes from AT to its first element, dims and byte strides, innermost first."""
    assert call.error is None
    result = {}
    for name in "QKVO":
        first, *more = call.launch.descriptors(name)
        assert all(replace(encode, number=first.number) == first for encode in more)
        result[name] = (first.address - AT[name], first.dims, first.strides)
    return result


def counts(call: Call) -> list[int]:
    """The launch's integers, small to large, but for the address of LSE: TVM gives them no names."""
    assert call.error is None
    return sorted(v for name, v in call.launch.parameters.items() if isinstance(v, int) and name != "LSE_ptr")


def unnumbered(call: Call) -> Launch:
    """The launch, without the order in which its descriptors were made."""
    assert call.error is None
    parameters = {
        name: replace(value, number=0) if isinstance(value, Encode) else value
        for name, value in call.launch.parameters.items()
    }
    return replace(call.launch, parameters=parameters)
