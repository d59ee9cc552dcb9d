"""Exported kernels back in a process: apache-tvm-ffi and TVM's runtime libraries do, no compiler and no TVM."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tirx_attn.family import FAMILIES
from tirx_attn.runtime.errors import ToolchainError
from tirx_attn.runtime.toolchain import CUDA_RUNTIME, cuda_library

LIBRARIES = ("libtvm_runtime.so", "libtvm_runtime_cuda.so", "libtvm_runtime_extra.so")
"""What an exported kernel needs of TVM, in the order of loading."""


def load(path: str | os.PathLike[str], *, libraries: str | os.PathLike[str] | None = None) -> Callable[..., Any]:
    """The kernel of a library that `export` wrote, as a function of its PrimFunc's parameters.

    It takes tensors that speak DLPack, and runs on torch's current stream where they are torch's. TVM's libraries stay
    loaded, with their symbols visible to the whole process.

    Args:
        path: the library.
        libraries: folder that holds `LIBRARIES`; None takes those of the installed apache-tvm.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no such library.
        ToolchainError: TVM's runtime libraries cannot be found or loaded.
    """
    file = Path(path).absolute()  # a bare name would be searched for elsewhere
    if not file.is_file():
        raise FileNotFoundError(f"path={str(path)!r}: allowed are files that `export` wrote")
    import tvm_ffi

    with suppress(ToolchainError, OSError):  # else the process has one already, such as torch's
        ctypes.CDLL(str(cuda_library(CUDA_RUNTIME)), ctypes.RTLD_GLOBAL)
    folder = _installed() if libraries is None else Path(libraries).absolute()
    for name in LIBRARIES:
        try:
            ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ToolchainError(f"{name} cannot be loaded: {error}") from error
    allowed = f"path={str(path)!r}: allowed are files that `export` wrote"
    try:
        module = tvm_ffi.load_module(str(file))
    except RuntimeError as error:
        raise ValueError(f"{allowed} ({error})") from error
    for family in FAMILIES:
        function = module.get_function(family.stem) if module.implements_function(family.stem) else None
        if function is not None:
            return function
    raise ValueError(f"{allowed}, with one of {', '.join(family.stem for family in FAMILIES)}")


def _installed() -> Path:
    spec = importlib.util.find_spec("tvm")
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError("TVM's runtime libraries cannot be found: install apache-tvm, or say where they lie")
    return Path(spec.submodule_search_locations[0]) / "lib"
