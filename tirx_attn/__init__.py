"""Attention kernels for NVIDIA Blackwell and Hopper, generated with Apache TVM's TIRx language."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tirx_attn.config import AttentionConfig
from tirx_attn.hopper.schedule import HopperSchedule
from tirx_attn.schedule import Schedule

if TYPE_CHECKING:
    from tirx_attn.family import get_kernel
    from tirx_attn.kernel import get_flash_attention4_kernel
    from tirx_attn.merge import merge_states

__all__ = [
    "AttentionConfig",
    "HopperSchedule",
    "Schedule",
    "get_flash_attention4_kernel",
    "get_kernel",
    "merge_states",
]

_LAZY = {
    "get_flash_attention4_kernel": "tirx_attn.kernel",
    "get_kernel": "tirx_attn.family",
    "merge_states": "tirx_attn.merge",
}
"""Name -> module. The kernels need TVM, merging NumPy; configurations do not, and stay importable in milliseconds."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
