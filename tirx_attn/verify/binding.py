"""Fit NumPy arrays to the parameters of a PrimFunc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401  (makes np.dtype("bfloat16") a name)
import numpy as np

from tirx_attn.verify.reference import Array


def output_names(func: Any) -> tuple[str, ...]:
    """Names of the buffer parameters, in order: every one of them may be written."""
    return tuple(str(parameter.name) for parameter in func.params if _is_buffer(parameter))


def bind(func: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """One value for every parameter of `func`.

    Args:
        func: `tvm.tirx.PrimFunc`.
        arrays: parameter name -> array or scalar.

    Returns:
        Contiguous copies of the arrays given, and for each buffer not given an array filled with NaN (the
        largest value, for integers), so that what a kernel leaves unwritten shows.

    Raises:
        ValueError: an unknown name, a missing scalar, a wrong shape, or a missing buffer whose shape the given arrays
            do not tell.
        TypeError: a wrong dtype.
    """
    names = [str(parameter.name) for parameter in func.params]
    for name in arrays:
        if name not in names:
            raise ValueError(f"arrays has {name!r}: allowed are the parameters {', '.join(names)}")
    sizes: dict[str, int] = {}
    given = {str(p.name): _given(p, str(p.name), arrays, sizes) for p in func.params if str(p.name) in arrays}
    return {name: given[name] if name in given else _missing(p, name, sizes)
            for p, name in zip(func.params, names, strict=True)}  # fmt: skip


def unwritten(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of NaN, or of the largest integer, for a kernel to write."""
    dtype = np.dtype(dtype)
    return np.full(shape, np.iinfo(dtype).max if dtype.kind in "iu" else np.nan, dtype)


def _given(parameter: Any, name: str, arrays: Mapping[str, Any], sizes: dict[str, int]) -> Any:
    """The value given for a parameter; what its shape says about symbolic sizes is added to `sizes`."""
    if not _is_buffer(parameter):
        return arrays[name]
    array = np.array(arrays[name], order="C")  # a copy, also for the strides of dimensions of size 1
    dtype = np.dtype(str(parameter.dtype))
    if array.dtype != dtype:
        raise TypeError(f"{name} has dtype {array.dtype}: allowed is {dtype}")
    if array.ndim == len(parameter.shape):
        for extent, size in zip(parameter.shape, array.shape, strict=True):
            if not _is_known(extent):
                sizes.setdefault(str(extent.name), size)
    allowed = tuple(_size(extent, sizes) for extent in parameter.shape)
    if array.shape != allowed:
        raise ValueError(f"{name} has shape {array.shape}: allowed is ({', '.join(map(str, allowed))})")
    return array


def _missing(parameter: Any, name: str, sizes: dict[str, int]) -> Array:
    if not _is_buffer(parameter):
        raise ValueError(f"{name} is missing: scalar parameters must be given")
    shape = tuple(_size(extent, sizes) for extent in parameter.shape)
    if any(isinstance(size, str) for size in shape):
        raise ValueError(f"{name} is missing and its shape is symbolic: allowed is an array of the wanted shape")
    return unwritten(tuple(map(int, shape)), str(parameter.dtype))


def _size(extent: Any, sizes: Mapping[str, int]) -> int | str:
    """Value of an extent, or its name where no array has told it."""
    return int(extent) if _is_known(extent) else sizes.get(str(extent.name), str(extent.name))


def _is_known(extent: Any) -> bool:
    from tvm.tirx import IntImm

    return isinstance(extent, (int, IntImm))


def _is_buffer(parameter: Any) -> bool:
    from tvm.tirx import is_buffer_var

    return bool(is_buffer_var(parameter))
