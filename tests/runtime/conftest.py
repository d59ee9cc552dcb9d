"""Stand-ins for the kernels that `flash_attention` launches, in tests that need torch."""

from __future__ import annotations

import pytest


@pytest.fixture
def reference(monkeypatch):
    """torch in place of the simulator."""
    import torch

    from tests.torch_reference import attention
    from tirx_attn.runtime import torch_op

    def computed(q, k, v, causal, scale, return_lse):
        o, lse = attention(q, k, v, causal=causal, scale=scale)
        return o.to(q.dtype), lse if return_lse else torch.empty(0)

    monkeypatch.setattr(torch_op, "_simulated", computed)


@pytest.fixture
def kernel(monkeypatch):
    """A loaded kernel for CPU tensors of the heads of `tensors.inputs`, which counts its calls."""
    import torch

    from tests.torch_reference import attention
    from tirx_attn.runtime import torch_op

    calls = []

    def launched(q, k, v, o, *rest):
        calls.append((q, k, v, o, *rest))
        for x in (q, k, v, o):
            torch.utils.dlpack.to_dlpack(x)  # as a launcher asks for memory
        for x in (k, v):
            if x.shape[1] != calls[0][1].shape[1]:
                raise ValueError("Mismatched K.shape[1]")
        if 0 in q.shape:
            raise RuntimeError("Sq: allowed are sizes from 1")
        o.copy_(attention(q, k, v, causal=False)[0])

    ready = torch_op.Ready(launched, device=None)
    for return_lse in (False, True):
        for scaled in (False, True):
            key = (4, 64, 2, torch.float16, torch.device("cpu"), False, scaled, return_lse)
            monkeypatch.setitem(torch_op._ready, key, ready)
    return calls
