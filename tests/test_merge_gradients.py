"""Gradients of `merge_states` by torch's own operations, through parts that saw no key."""

from __future__ import annotations

import math

import pytest

from tirx_attn import merge_states


@pytest.mark.torch
@pytest.mark.parametrize("empty", [(), (0,), (1,), (0, 1)], ids=["none", "first", "second", "both"])
def test_an_empty_part_has_no_gradient_and_none_is_nan(empty):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    parts = []
    for number in range(2):
        o = torch.randn(1, 2, 1, 4, generator=generator)
        lse = torch.randn(1, 1, 2, generator=generator)
        if number in empty:
            o, lse = torch.full_like(o, float("nan")), torch.full_like(lse, -math.inf)
        parts += [o.requires_grad_(), lse.requires_grad_()]
    merged, _ = merge_states(*parts)
    merged.sum().backward()
    for number in range(2):
        o, lse = parts[2 * number : 2 * number + 2]
        assert not o.grad.isnan().any()
        assert not lse.grad.isnan().any()
        if number in empty:
            assert not o.grad.any()
    if not empty:
        weights = torch.softmax(torch.stack([parts[1], parts[3]]), 0)
        torch.testing.assert_close(parts[0].grad, weights[0].swapaxes(1, 2)[..., None].expand(1, 2, 1, 4))
