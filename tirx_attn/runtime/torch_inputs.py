"""What a torch tensor has to be so that a kernel may read its memory, and which derivatives are refused.

There is no backward pass. When one comes, reverse mode will be allowed: `requires_grad`, torch.func.grad and vjp.
Forward mode (dual tensors, torch.func.jvp, jacfwd, linearize) and second derivatives will stay refused: no kernel
computes them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tirx_attn.config import AttentionConfig
from tirx_attn.runtime.arguments import Facts, problem

is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
"""Whether a tensor belongs to a level of torch.func, such as that of vmap, and has no memory of its own."""


def problem_of(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, return_lse: bool) -> AttentionConfig:
    """The problem with its lengths left open, or an error that names the argument that does not fit."""
    tensors = {"q": q, "k": k, "v": v}
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is {type(x).__name__}: allowed are torch tensors")
        if x.is_nested or x.layout != torch.strided:
            layout = "nested" if x.is_nested else str(x.layout)
            raise ValueError(f"{name} has layout {layout}: allowed is torch.strided, one length for the whole batch")
        if x.device != q.device:
            raise ValueError(f"q is on {q.device}, {name} on {x.device}: allowed is one device for all")
    return problem(
        **{name: _facts(name, x) for name, x in tensors.items()}, causal=causal, scale=scale, return_lse=return_lse
    )


def _facts(name: str, x: Tensor) -> Facts:
    # No address: a tensor of a class of its own, as while a graph is traced; one of a level of torch.func; one on meta.
    known = (isinstance(x, torch.nn.Parameter) or type(x) is Tensor) and not is_wrapped(x) and x.device.type != "meta"
    address = x.data_ptr() if known else None
    return Facts(name, str(x.dtype).removeprefix("torch."), x.shape, x.stride(), x.element_size(), address)


def refuse_reverse_mode(q: Any, k: Any, v: Any) -> None:
    """Raise a ValueError where an input asks for a gradient while gradients are recorded."""
    if not torch.is_grad_enabled():
        return
    for name, x in (("q", q), ("k", k), ("v", v)):
        if getattr(x, "requires_grad", False):
            raise ValueError(
                f"{name}.requires_grad=True: allowed are inputs without gradients, since there is no backward pass; "
                f"call it under torch.no_grad(), or pass {name}.detach()"
            )


def refuse_forward_mode(q: Any, k: Any, v: Any) -> None:
    """Raise a ValueError where an input has a tangent, which the output would lose."""
    if forward_ad._current_level < 0:
        return
    for name, x in (("q", q), ("k", k), ("v", v)):
        if isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None:
            raise ValueError(
                f"{name} has a tangent: allowed are inputs without one, since there is no forward-mode derivative "
                f"(torch.func.jvp, jacfwd, linearize); pass the primal, forward_ad.unpack_dual({name}).primal"
            )
