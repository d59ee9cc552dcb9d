"""Exported kernels back in a process: apache-tvm-ffi and TVM's runtime libraries do, no compiler and no TVM."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tirx_attn.family import FAMILIES
from tirx_attn.runtime.errors import ToolchainError

LIBRARIES = ("libtvm_runtime.so", "libtvm_runtime_cuda.so", "libtvm_runtime_extra.so")
"""What an exported kernel needs of TVM, in the order of loading."""


def load(path: str | os.PathLike[str], *, libraries: str | os.PathLike[str] | None = None) -> Callable[..., Any]:
    """The kernel of a library that `export` wrote, as a function of its PrimFunc's parameters.

    It takes tensors of any framework that speaks DLPack and runs on that framework's current stream.

    Args:
        path: the library.
        libraries: folder that holds `LIBRARIES`; None takes those of the installed apache-tvm.

    Raises:
        FileNotFoundError: there is no such file.
        ToolchainError: TVM's runtime libraries cannot be found or loaded.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"path={str(path)!r}: allowed are files that `export` wrote")
    import tvm_ffi

    folder = _installed() if libraries is None else Path(libraries)
    for name in LIBRARIES:
        try:
            ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ToolchainError(f"{name} cannot be loaded: {error}") from error
    module = tvm_ffi.load_module(str(file))
    for family in FAMILIES:
        function = module.get_function(family.stem) if module.implements_function(family.stem) else None
        if function is not None:
            return function
    raise ValueError(f"path={str(path)!r}: holds none of {', '.join(family.stem for family in FAMILIES)}")


def _installed() -> Path:
    spec = importlib.util.find_spec("tvm")
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError("TVM's runtime libraries cannot be found: install apache-tvm, or say where they lie")
    return Path(spec.submodule_search_locations[0]) / "lib"
