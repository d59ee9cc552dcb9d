"""From a parsed kernel to the PrimFunc of a problem; and one thread at a time, since TVM's parser has shared state."""

from __future__ import annotations

import threading

from tvm.tirx import PrimFunc

from tirx_attn.barriers import PROTOCOL_ATTRIBUTE
from tirx_attn.config import RUNTIME, AttentionConfig

TURN = threading.Lock()
"""Held while a kernel is parsed."""


def finish(func: PrimFunc, config: AttentionConfig, declared: str) -> PrimFunc:
    """The function without the parameters that the problem does not ask for, carrying its declared protocol."""
    present = {"LSE": config.return_lse, "scale": config.scale == RUNTIME}
    params = [param for param in func.params if present.get(param.name, True)]
    return PrimFunc(params, func.body, func.ret_type, func.attrs).with_attr(PROTOCOL_ATTRIBUTE, declared)
