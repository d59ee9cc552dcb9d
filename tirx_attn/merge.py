"""Attention over one range of keys from the results over its parts.

NumPy and torch go through the same code; torch is used where the caller's tensors brought it, never imported.
"""

from __future__ import annotations

import math
import sys
from typing import Any, TypeVar

import numpy as np

A = TypeVar("A")
DTYPES = ("float16", "bfloat16", "float32")


def merge_states(o: A, lse: A, o2: A, lse2: A) -> tuple[A, A]:
    """Merge the attention of the same queries over two disjoint ranges of keys.

    LSE = log(exp(lse) + exp(lse2)) and O = exp(lse - LSE) · o + exp(lse2 - LSE) · o2, computed in fp32 and safe
    for every finite lse. The order of the parts does not matter, nor, up to rounding, does the order in which
    three or more are merged; each merge rounds O to the dtype of the inputs once.

    A part that saw no key (lse = -inf) contributes nothing, whatever its o holds there, NaN included; where
    neither part saw a key, O = 0 and LSE = -inf. NaN or +inf in lse or lse2 makes O and LSE of that row NaN.
    NaN in o or o2 of a part that did see keys makes that element of O NaN, even if the part's weight rounds to 0.

    For torch, nothing depends on values in Python: no synchronisation with the host, any device, torch.compile.

    Args:
        o, o2: partial outputs [B, Sq, Hq, D], fp16, bf16 or fp32, both in the same dtype.
        lse, lse2: [B, Hq, Sq], fp32: natural logarithm of the sum of the exponentials of the scaled logits.

    All four are NumPy arrays, or all are torch tensors on one device; they are not changed.

    Returns:
        O [B, Sq, Hq, D] in the dtype of o, and LSE [B, Hq, Sq] in fp32, natural logarithm; both new arrays.

    Raises:
        TypeError: an argument is neither a NumPy array nor a torch tensor, not of the library of o, or its dtype.
        ValueError: shape or device of an argument. Both messages name the argument, what it has and what is allowed.
    """
    xp = _check({"o": o, "lse": lse, "o2": o2, "lse2": lse2})
    if xp is np:
        with np.errstate(all="ignore"):
            return _merge(xp, o, lse, o2, lse2)
    return _merge(xp, o, lse, o2, lse2)


def _merge(xp: Any, o: Any, lse: Any, o2: Any, lse2: Any) -> tuple[Any, Any]:
    top = xp.maximum(lse, lse2)
    shift = xp.where(top == -math.inf, xp.zeros_like(top), top)  # keeps -inf - -inf from being computed
    weight, weight2 = xp.exp(lse - shift), xp.exp(lse2 - shift)
    total = weight + weight2
    total = xp.where(total == 0, xp.ones_like(total), total)

    def share(o: Any, lse: Any, weight: Any) -> Any:
        o = _cast(xp, o, xp.float32)
        # Selected, not multiplied by zero: an empty part may hold NaN.
        seen = xp.where(_per_row(xp, lse) == -math.inf, xp.zeros_like(o), o)
        return _per_row(xp, weight / total) * seen

    merged = share(o, lse, weight) + share(o2, lse2, weight2)
    return _cast(xp, merged, o.dtype), top + xp.log(total)


def _per_row(xp: Any, x: Any) -> Any:
    """[B, Hq, Sq] as [B, Sq, Hq, 1]."""
    return xp.swapaxes(x, 1, 2)[..., None]


def _cast(xp: Any, x: Any, dtype: Any) -> Any:
    return x.astype(dtype) if xp is np else x.to(dtype)


def _check(arrays: dict[str, Any]) -> Any:
    """The library of the arrays, numpy or torch, or an error that names the argument that does not fit."""
    o = arrays["o"]
    xp = _library("o", o)
    for name, x in arrays.items():
        if _library(name, x) is not xp:
            raise TypeError(f"{name} is a {type(x).__name__}: allowed is the library of o, {xp.__name__}")
        dtype = str(x.dtype).removeprefix("torch.")
        allowed = DTYPES if name in ("o", "o2") else ("float32",)
        if dtype not in allowed:
            raise TypeError(f"{name} has dtype {dtype}: allowed: {', '.join(allowed)}")
    if arrays["o2"].dtype != o.dtype:
        raise TypeError(f"o2 has dtype {arrays['o2'].dtype}: allowed is the dtype of o, {o.dtype}")
    if o.ndim != 4:
        raise ValueError(f"o has shape {tuple(o.shape)}: allowed are four dimensions [B, Sq, Hq, D]")
    batches, sq, hq, _ = o.shape
    for name, x in arrays.items():
        shape = tuple(o.shape) if name in ("o", "o2") else (batches, hq, sq)
        if tuple(x.shape) != shape:
            what = "the shape of o" if name == "o2" else "[B, Hq, Sq] of o"
            raise ValueError(f"{name} has shape {tuple(x.shape)}: allowed is {what}, {shape}")
        if xp is not np and x.device != o.device:
            raise ValueError(f"{name} is on device {x.device}: allowed is the device of o, {o.device}")
    return xp


def _library(name: str, x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return torch
    raise TypeError(f"{name} is a {type(x).__name__}: allowed are NumPy arrays and torch tensors")
