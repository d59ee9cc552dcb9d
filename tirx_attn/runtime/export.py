"""A kernel as a shared library that holds machine code and the host launcher: loading it needs no compiler."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirx_attn.family import DEFAULT_ARCH, AnySchedule, plan_for
from tirx_attn.runtime.artifact import seal
from tirx_attn.runtime.child import command
from tirx_attn.runtime.errors import CompileError, ToolchainError
from tirx_attn.runtime.files import scratch_folder, write_atomic
from tirx_attn.runtime.nvrtc import DEFAULT_SECONDS
from tirx_attn.runtime.origin import PACKAGE, copy_source

if TYPE_CHECKING:
    from tirx_attn.config import AttentionConfig

LIBRARY, DESCRIPTION, FAILURE = "kernel.so", "description.json", "failure"
"""Files that the child leaves: the library and its description, or (class, message, log) of a CompileError."""

SOURCE = "source"
"""Folder of the copy of this package that the child imports."""


def export(
    config: AttentionConfig,
    path: str | os.PathLike[str],
    archs: Sequence[str] = (DEFAULT_ARCH,),
    *,
    schedule: AnySchedule | None = None,
    timeout: float = DEFAULT_SECONDS,
    progress: Callable[[str], object] = lambda arch: None,
) -> tuple[Path, ...]:
    """Write the kernel of `config` as a shared library with machine code. Needs no GPU, no driver and no CUDA toolkit.

    `tirx_attn.load` loads it, and so does any program with tvm-ffi. TVM compiles device code only where it finds a CUDA
    driver, so a process of its own gets a stand-in for one.

    Args:
        config: the problem; sizes left open are read from the tensors of each call.
        path: the file, in a folder that exists. With several architectures each has a file of its own, with its name
            before the suffix (kernel.sm_90a.so), and `tirx_attn.load` picks that of the GPU.
        archs: of `tirx_attn.targets.TARGETS`.
        schedule: values of the knobs; None takes the tuned ones of each architecture.
        timeout: seconds that each architecture may take.
        progress: is told of each architecture when its turn comes.

    Returns:
        The files written, in the order of `archs`. A file is replaced as a whole, when its library is complete.

    Raises:
        TypeError, ValueError: an argument, naming its value and what is allowed.
        FileNotFoundError: there is no such folder.
        ToolchainError: there is no C compiler, a CUDA package is missing, or $TMPDIR cannot be used.
        CompileError: the kernel cannot be compiled, the time is over, or the files of this package are no longer those
            that the process started with.
    """
    if isinstance(archs, str) or not archs or len(set(archs)) < len(archs):
        raise ValueError(f"archs={archs!r}: allowed are lists of different architectures, one at least")
    for arch in archs:
        plan_for(config, schedule, arch)
    if not timeout > 0:
        raise ValueError(f"timeout={timeout!r}: allowed values are positive seconds")
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r}: allowed are files in a folder that exists")
    if target.is_dir():
        raise IsADirectoryError(f"path={str(path)!r}: allowed are files, this is a folder")
    if shutil.which("cc") is None:
        raise ToolchainError("exporting links a shared library: install a C compiler (cc)")
    files = [target] if len(archs) == 1 else [path_for(target, arch) for arch in archs]
    for arch, file in zip(archs, files, strict=True):
        progress(arch)
        write_atomic(file, library(config, arch, schedule, timeout))
    return tuple(files)


def path_for(path: Path, arch: str) -> Path:
    """The file of one architecture where there are several."""
    return path.with_name(f"{path.stem}.{arch}{path.suffix}")


def library(config: AttentionConfig, arch: str, schedule: AnySchedule | None, timeout: float) -> bytes:
    """Content of the file for one architecture. Arguments and errors are those of `export`."""
    with scratch_folder() as folder:
        copy_source(folder / SOURCE)
        _run_child((config, schedule, arch, str(folder), timeout), folder, timeout)
        return seal((folder / LIBRARY).read_bytes(), json.loads((folder / DESCRIPTION).read_text()))


def _run_child(request: tuple[Any, ...], folder: Path, timeout: float) -> None:
    """Have the library made. What goes wrong in the child is raised here as what it was."""
    arch, source = request[2], folder / SOURCE
    child = subprocess.Popen(
        command(source / PACKAGE.name / "runtime" / "export_child.py", first=[str(source)]),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        start_new_session=True,  # the compilers that it starts end with it
    )
    try:
        _, printed = child.communicate(pickle.dumps(request), timeout)
    except BaseException as error:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise CompileError(f"exporting for {arch} took longer than {timeout:g} s") from None
        raise
    if child.returncode != 0:
        failure = folder / FAILURE
        if failure.is_file():
            kind, message, log = pickle.loads(failure.read_bytes())
            raise {"ToolchainError": ToolchainError}.get(kind, CompileError)(message, log)
        raise CompileError(f"the kernel cannot be exported for {arch}", printed.decode(errors="replace")[-4000:])
