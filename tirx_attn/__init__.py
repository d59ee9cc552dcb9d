"""FlashAttention-4 kernels for NVIDIA Blackwell, generated with Apache TVM's TIRx language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tirx_attn.config import AttentionConfig
from tirx_attn.schedule import Schedule

if TYPE_CHECKING:
    from tirx_attn.kernel import get_flash_attention4_kernel
    from tirx_attn.merge import merge_states

__all__ = ["AttentionConfig", "Schedule", "get_flash_attention4_kernel", "merge_states"]


def __getattr__(name: str) -> Any:
    # The kernel needs TVM, merging NumPy; configurations and plans do not, and stay importable in milliseconds.
    if name == "get_flash_attention4_kernel":
        from tirx_attn.kernel import get_flash_attention4_kernel

        return get_flash_attention4_kernel
    if name == "merge_states":
        from tirx_attn.merge import merge_states

        return merge_states
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
