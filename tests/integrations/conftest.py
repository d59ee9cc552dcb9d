"""The tests of models run over a stand-in for the simulator."""

from __future__ import annotations

import pytest


@pytest.fixture
def reference(monkeypatch):
    """torch in place of the simulator, and what it was asked for."""
    import torch

    from tests.torch_reference import attention
    from tirx_attn.integrations.transformers import register
    from tirx_attn.runtime import torch_op

    calls = []

    def computed(q, k, v, causal, scale, return_lse):
        calls.append((tuple(q.shape), tuple(k.shape), causal, scale))
        return attention(q, k, v, causal=causal, scale=scale)[0].to(q.dtype), torch.empty(0)

    monkeypatch.setattr(torch_op, "_simulated", computed)
    register(backend="simulator")
    return calls
