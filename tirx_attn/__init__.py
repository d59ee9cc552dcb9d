"""FlashAttention-4 kernels for NVIDIA Blackwell, generated with Apache TVM's TIRx language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tirx_attn.config import AttentionConfig
from tirx_attn.schedule import Schedule

if TYPE_CHECKING:
    from tirx_attn.kernel import get_flash_attention4_kernel

__all__ = ["AttentionConfig", "Schedule", "get_flash_attention4_kernel"]


def __getattr__(name: str) -> Any:
    # The kernel needs TVM; configurations and plans do not, and stay importable in milliseconds.
    if name == "get_flash_attention4_kernel":
        from tirx_attn.kernel import get_flash_attention4_kernel

        return get_flash_attention4_kernel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
