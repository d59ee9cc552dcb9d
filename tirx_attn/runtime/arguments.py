"""The tensors of one call of attention, of any library: what they are, and whether they fit together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tirx_attn.config import DTYPES, AttentionConfig
from tirx_attn.runtime.layout import check_layout


@dataclass(frozen=True)
class Facts:
    """What is asked of one tensor.

    Attributes:
        name: the argument's name, for messages.
        dtype: full name of the data type, such as "float16".
        shape, strides: in elements, outermost dimension first.
        itemsize: bytes of an element.
        address: of the first element; None where it has none yet, as while a graph is traced.
    """

    name: str
    dtype: str
    shape: Sequence[int]
    strides: Sequence[int]
    itemsize: int
    address: int | None


def problem(q: Facts, k: Facts, v: Facts, causal: bool, scale: float | None, return_lse: bool) -> AttentionConfig:
    """The problem with its lengths left open.

    Raises:
        TypeError, ValueError: an argument that does not fit, naming it, its value and what is allowed.
    """
    for each in (q, k, v):
        name, shape = each.name, tuple(each.shape)
        if each.dtype not in DTYPES:
            raise TypeError(f"{name} has dtype {each.dtype}: allowed are {' and '.join(DTYPES)}")
        if each.dtype != q.dtype:
            raise TypeError(f"{name} has dtype {each.dtype}: allowed is the dtype of q, {q.dtype}")
        if len(shape) != 4:
            raise ValueError(f"{name} has shape {shape}: allowed are four dimensions [B, S, H, D]")
        if each.address is not None:
            check_layout(name, shape, each.strides, each.itemsize, each.address)
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(f"k has shape {tuple(k.shape)}: allowed are B={q.shape[0]} and D={q.shape[3]}, as in q")
    if tuple(v.shape) != tuple(k.shape):
        raise ValueError(f"v has shape {tuple(v.shape)}: allowed is the shape of k, {tuple(k.shape)}")
    if isinstance(scale, str):
        raise TypeError(f"scale={scale!r}: allowed values are None and positive numbers")
    return AttentionConfig(
        None, None, None, q.shape[2], k.shape[2], q.shape[3], causal,
        dtype=q.dtype, scale=scale, return_lse=return_lse,
    )  # fmt: skip
