"""Finds the CUDA tools that packages of the environment bring: headers, NVRTC, nvdisasm."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirx_attn.runtime.errors import ToolchainError

CUDA_RUNTIME = "libcudart.so.13"
"""The CUDA runtime that TVM's CUDA library is linked with."""

NVDISASM_SECONDS = 120.0
"""How long a disassembly may take before it is given up."""


@dataclass(frozen=True)
class Nvrtc:
    """The NVRTC of the environment.

    Attributes:
        api: module cuda.bindings.nvrtc.
        library: the shared library in use.
        include_dirs: folders with the CUDA headers and the C++ core libraries of the same environment.
        version: version of the package that brings the library, such as 13.2.78.
    """

    api: Any
    library: Path
    include_dirs: tuple[Path, ...]
    version: str


def cuda_roots() -> tuple[Path, ...]:
    """Folders in which the nvidia-cuda-* packages of this environment keep their files, in import order."""
    spec = importlib.util.find_spec("nvidia")
    if spec is None or spec.submodule_search_locations is None:
        return ()
    return tuple(root for place in spec.submodule_search_locations for root in Path(place).glob("cu1[0-9]"))


def cuda_library(name: str) -> Path:
    """A shared library of the nvidia-cuda-* packages.

    Raises:
        ToolchainError: no package of the environment brings it.
    """
    for root in cuda_roots():
        if (root / "lib" / name).is_file():
            return root / "lib" / name
    raise ToolchainError(f"{name} is not installed: install nvidia-cuda-runtime")


@functools.cache
def nvrtc() -> Nvrtc:
    """Load NVRTC.

    Raises:
        ToolchainError: the binding, the library or the headers are missing; the message names the package.
    """
    try:
        from cuda.bindings import nvrtc as api
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError as error:
        raise ToolchainError(f"NVRTC cannot be called ({error}): install cuda-bindings") from error
    try:
        library = Path(load_nvidia_dynamic_lib("nvrtc").abs_path or "").resolve()
        status, major, minor = api.nvrtcVersion()
    except Exception as error:
        raise ToolchainError(f"NVRTC cannot be loaded ({error}): install nvidia-cuda-nvrtc") from error
    if int(status) != 0:
        raise ToolchainError(f"NVRTC does not answer ({status.name}): reinstall nvidia-cuda-nvrtc")
    return Nvrtc(api, library, _include_dirs(library), _package_version(f"{major}.{minor}"))


def _include_dirs(library: Path) -> tuple[Path, ...]:
    """Header folders, those beside the library first, so that compiler and headers are of one release."""
    wanted = {
        "cuda_runtime.h": ("nvidia-cuda-runtime", "include"),
        "crt/host_defines.h": ("nvidia-cuda-crt", "include"),
        "cuda/std/cstdint": ("nvidia-cuda-cccl", "include/cccl"),
    }
    roots = [library.parent.parent, *cuda_roots()]
    folders: list[Path] = []
    for header, (package, subfolder) in wanted.items():
        for folder in (root / subfolder for root in roots):
            if (folder / header).is_file():
                if folder not in folders:
                    folders.append(folder)
                break
        else:
            raise ToolchainError(f"the header {header} is missing: install {package}")
    return tuple(folders)


def _package_version(release: str) -> str:
    """The package's version where it is of the release that the library reports, else that release."""
    try:
        version = importlib.metadata.version("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        return release
    return version if re.match(rf"{re.escape(release)}(\.|$)", version) else release


@functools.cache
def nvdisasm() -> Path:
    """The disassembler.

    Raises:
        ToolchainError: it is missing or may not be executed; the message names the package.
    """
    for root in cuda_roots():
        tool = root / "bin" / "nvdisasm"
        if tool.is_file():
            if not os.access(tool, os.X_OK):
                raise ToolchainError(f"{tool} may not be executed: reinstall nvidia-cuda-nvdisasm")
            return tool
    raise ToolchainError("nvdisasm is missing: install nvidia-cuda-nvdisasm")


def run_nvdisasm(cubin: Path) -> str:
    """Disassembly of the code of a cubin file, with addresses.

    Raises:
        ToolchainError: nvdisasm is missing, fails, or takes longer than `NVDISASM_SECONDS`.
    """
    command = [str(nvdisasm()), "--print-code", str(cubin)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NVDISASM_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"nvdisasm did not finish: {error}") from error
    if done.returncode != 0:
        raise ToolchainError(f"nvdisasm failed with status {done.returncode}", done.stderr or done.stdout)
    return done.stdout
