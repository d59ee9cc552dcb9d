"""Exported kernels back in a process: apache-tvm-ffi and TVM's runtime libraries do, no compiler and no TVM."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tirx_attn.runtime.artifact import Description, unseal
from tirx_attn.runtime.device import arch_of
from tirx_attn.runtime.errors import ArtifactError, ToolchainError
from tirx_attn.runtime.export import path_for
from tirx_attn.runtime.private import loaded
from tirx_attn.runtime.toolchain import CUDA_RUNTIME, cuda_library

LIBRARIES = ("libtvm_runtime.so", "libtvm_runtime_cuda.so", "libtvm_runtime_extra.so")
"""What an exported kernel needs of TVM, in the order of loading."""

SERIES = ("apache-tvm", "apache-tvm-ffi")
"""Packages of which the first two numbers of the version must be those that the kernel was exported with."""


@dataclass(frozen=True)
class Kernel:
    """An exported kernel, ready to be called with the parameters of its PrimFunc: Q, K, V, O[, LSE][, scale].

    Tensors speak DLPack and lie on a GPU of the kernel's architecture; Q, O [B, Sq, Hq, D], K, V [B, Skv, Hkv, D], LSE
    fp32 [B, Hq, Sq]. Those of torch are worked on in torch's current stream of their device. What does not fit is
    refused by name (TypeError, ValueError or RuntimeError, as TVM's launcher raises it); torch's tensors that have a
    tangent are too. Memory is read as it lies: a lazily negated view of torch has the other sign.

    Attributes:
        path: its file.
        description: what it is.
        function: what a call calls.
    """

    path: Path
    description: Description
    function: Callable[..., None] = field(repr=False)

    def __call__(self, *arguments: Any) -> None:
        forward_ad: Any = sys.modules.get("torch.autograd.forward_ad")
        if forward_ad is not None and forward_ad._current_level >= 0:
            from tirx_attn.runtime.torch_inputs import refuse_forward_mode

            refuse_forward_mode(*arguments[:3])
        self.function(*arguments)


def load(
    path: str | os.PathLike[str], *, device: int | None = 0, libraries: str | os.PathLike[str] | None = None
) -> Kernel:
    """The kernel of a file that `export` wrote.

    File, format, versions and GPU are checked before anything of it runs. What is loaded are the bytes that were
    checked, whatever becomes of the file: replaced under its name or overwritten, it is another kernel when it is
    loaded again. TVM's libraries stay loaded, with their symbols visible to the whole process.

    Args:
        path: the file; where several architectures were exported, the path that was given to `export`.
        device: the GPU that the kernel is for, by the driver's number; None asks for none.
        libraries: folder that holds `LIBRARIES`; None takes those of the installed apache-tvm.

    Raises:
        FileNotFoundError: there is no such file.
        ArtifactError: the file is no exported kernel, was cut off or altered, is of another format or of versions that
            do not fit, or is for another GPU.
        ToolchainError: TVM's runtime libraries cannot be found or loaded, or there is no folder for temporary files.
    """
    file = _file(Path(path).absolute(), device)  # a bare name would be searched for elsewhere
    content = file.read_bytes()
    description = unseal(content, str(path))
    _check_versions(description, str(path))
    if device is not None:
        _check_arch(description, str(path), device)
    import tvm_ffi  # noqa: F401  (brings the library that TVM's own need)

    _load_runtime(None if libraries is None else Path(libraries).absolute())
    try:
        function = loaded(content).get_function(description.function)
    except ToolchainError:
        raise
    except (RuntimeError, AttributeError) as error:
        raise ArtifactError(f"{path}: the library cannot be loaded ({error})") from error
    return Kernel(file, description, function)


def _file(path: Path, device: int | None) -> Path:
    if path.is_file():
        return path
    arch = arch_of(device or 0)
    several = sorted(path.parent.glob(f"{path.stem}.sm_*{path.suffix}")) if path.parent.is_dir() else []
    if not several:
        raise FileNotFoundError(f"path={str(path)!r}: allowed are files that `export` wrote")
    if arch is None or not path_for(path, arch).is_file():
        names = ", ".join(one.name for one in several)
        raise ArtifactError(f"{path.name}: there are {names}, but {_here(arch)}")
    return path_for(path, arch)


def _check_versions(description: Description, name: str) -> None:
    for package in SERIES:
        made = description.versions.get(package)
        try:
            here = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # the runtime libraries may come without the package
        if made is None or made.split(".")[:2] != here.split(".")[:2]:
            raise ArtifactError(f"{name}: exported with {package} {made}, here is {here}: export it again")


def _check_arch(description: Description, name: str, device: int) -> None:
    arch = arch_of(device)
    if arch != description.arch:
        raise ArtifactError(f"{name}: the kernel is for {description.arch}, but {_here(arch, device)}")


def _here(arch: str | None, device: int = 0) -> str:
    return "no GPU is found here" if arch is None else f"GPU {device} is {arch}"


def _load_runtime(folder: Path | None) -> None:
    with suppress(ToolchainError, OSError):  # else the process has one already, such as torch's
        ctypes.CDLL(str(cuda_library(CUDA_RUNTIME)), ctypes.RTLD_GLOBAL)
    place = _installed() if folder is None else folder
    for name in LIBRARIES:
        try:
            ctypes.CDLL(str(place / name), ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ToolchainError(f"{name} cannot be loaded: {error}") from error


def _installed() -> Path:
    spec = importlib.util.find_spec("tvm")
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError("TVM's runtime libraries cannot be found: install apache-tvm, or say where they lie")
    return Path(spec.submodule_search_locations[0]) / "lib"
