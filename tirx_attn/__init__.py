"""Attention kernels for NVIDIA Blackwell and Hopper, generated with Apache TVM's TIRx language."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tirx_attn.config import AttentionConfig
from tirx_attn.hopper.schedule import HopperSchedule
from tirx_attn.schedule import Schedule
from tirx_attn.schedule.variants import VARIANTS, variant

if TYPE_CHECKING:
    from tirx_attn.family import get_kernel
    from tirx_attn.kernel import get_flash_attention4_kernel
    from tirx_attn.merge import merge_states
    from tirx_attn.runtime.export import export
    from tirx_attn.runtime.load import load
    from tirx_attn.runtime.torch_op import flash_attention, preload

__all__ = [
    "VARIANTS",
    "AttentionConfig",
    "HopperSchedule",
    "Schedule",
    "export",
    "flash_attention",
    "get_flash_attention4_kernel",
    "get_kernel",
    "load",
    "merge_states",
    "preload",
    "variant",
]

_LAZY = {
    "export": "tirx_attn.runtime.export",
    "flash_attention": "tirx_attn.runtime.torch_op",
    "get_flash_attention4_kernel": "tirx_attn.kernel",
    "get_kernel": "tirx_attn.family",
    "load": "tirx_attn.runtime.load",
    "merge_states": "tirx_attn.merge",
    "preload": "tirx_attn.runtime.torch_op",
}
"""Name -> module. Kernels need TVM, tensors torch or NumPy; configurations import in milliseconds, without either."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
