"""Where a tensor lies, and which layouts a kernel may be given. The same rules as the host launcher's, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tirx_attn.targets import TMA_ALIGNMENT, TMA_MAX_STRIDE

if TYPE_CHECKING:
    import numpy as np


def check_layout(
    name: str,
    shape: Sequence[int],
    strides: Sequence[int],
    itemsize: int,
    address: int,
    *,
    output: bool = False,
    compact: bool = False,
) -> None:
    """Refuse a tensor whose layout a kernel cannot take.

    No address depends on the stride of a dimension of size 1, so that one may be anything. Nor is anything asked of an
    empty tensor, which is never given to a kernel.

    Args:
        name: the argument's name, for the message.
        shape, strides: in elements, outermost dimension first.
        itemsize: bytes of an element.
        address: of the first element, in bytes: data pointer plus byte offset.
        output: the kernel writes it, so no two elements may share a place by a stride of 0. Inputs may: TMA reads a
            broadcast dimension as it is.
        compact: no descriptor describes it (LSE): it has to lie without gaps, at a multiple of `itemsize`.

    Raises:
        ValueError: naming the argument, the value and what is allowed.
    """
    if len(strides) != len(shape):
        raise ValueError(f"{name}.strides={tuple(strides)}: allowed is one for each of the {len(shape)} dimensions")
    if 0 in shape:
        return
    dense, last = 1, len(shape) - 1
    for axis in reversed(range(len(shape))):
        stride, size = strides[axis], shape[axis]
        value = f"{name}.strides[{axis}]={stride}"
        if size > 1 and compact and stride != dense:
            raise ValueError(f"{value}: allowed is {dense}, since {name} has to be compact")
        if size > 1 and axis == last and stride != 1:
            raise ValueError(f"{value}: allowed is 1, since the last dimension has to be contiguous")
        if size > 1 and axis != last and not compact:
            _check_stride(value, stride, itemsize, output)
        dense *= size
    alignment = itemsize if compact else TMA_ALIGNMENT
    if address <= 0 or address % alignment:
        raise ValueError(f"{name} at address {address:#x}: allowed are positive multiples of {alignment} bytes")


def _check_stride(value: str, stride: int, itemsize: int, output: bool) -> None:
    if output and stride == 0:
        raise ValueError(f"{value}: allowed are positive strides, since the kernel writes to each element")
    if not 0 <= stride * itemsize < TMA_MAX_STRIDE or stride * itemsize % TMA_ALIGNMENT:
        raise ValueError(
            f"{value}, {stride * itemsize} bytes: allowed are multiples of {TMA_ALIGNMENT} bytes, "
            f"from 0 to below {TMA_MAX_STRIDE}"
        )


def check_array(name: str, array: np.ndarray, *, output: bool = False, compact: bool = False) -> None:
    """`check_layout` of a NumPy array.

    Raises:
        ValueError: as there and as `element_strides`.
    """
    strides = element_strides(name, array)
    check_layout(name, array.shape, strides, array.itemsize, array.ctypes.data, output=output, compact=compact)


def element_strides(name: str, array: np.ndarray) -> list[int]:
    """Strides of a NumPy array in elements.

    Raises:
        ValueError: one is no whole number of elements, as in a field of a structured array.
    """
    if any(stride % array.itemsize for stride in array.strides):
        raise ValueError(f"{name}.strides={array.strides} bytes: allowed are multiples of {array.itemsize}")
    return [stride // array.itemsize for stride in array.strides]
