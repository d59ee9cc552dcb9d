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
        ValueError: an unknown name, a missing scalar, a wrong shape, or a missing buffer of symbolic shape.
        TypeError: a wrong dtype.
    """
    names = [str(parameter.name) for parameter in func.params]
    for name in arrays:
        if name not in names:
            raise ValueError(f"arrays has {name!r}: allowed are the parameters {', '.join(names)}")
    return {str(p.name): _value(p, str(p.name), arrays) for p in func.params}


def _value(parameter: Any, name: str, arrays: Mapping[str, Any]) -> Any:
    if not _is_buffer(parameter):
        if name not in arrays:
            raise ValueError(f"{name} is missing: scalar parameters must be given")
        return arrays[name]
    dtype = np.dtype(str(parameter.dtype))
    shape = _static_shape(parameter)
    if name in arrays:
        array = np.array(arrays[name], order="C")  # a copy, also for the strides of dimensions of size 1
        if array.dtype != dtype:
            raise TypeError(f"{name} has dtype {array.dtype}: allowed is {dtype}")
        if shape is not None and array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}: allowed is {shape}")
        return array
    if shape is None:
        raise ValueError(f"{name} is missing and its shape is symbolic: allowed is an array of the wanted shape")
    return unwritten(shape, dtype)


def unwritten(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of NaN, or of the largest integer, for a kernel to write."""
    dtype = np.dtype(dtype)
    return np.full(shape, np.iinfo(dtype).max if dtype.kind in "iu" else np.nan, dtype)


def _static_shape(parameter: Any) -> tuple[int, ...] | None:
    from tvm.tirx import IntImm

    if not all(isinstance(extent, (int, IntImm)) for extent in parameter.shape):
        return None
    return tuple(int(extent) for extent in parameter.shape)


def _is_buffer(parameter: Any) -> bool:
    from tvm.tirx import is_buffer_var

    return bool(is_buffer_var(parameter))
