"""A kernel as a shared library that holds machine code and the host launcher: loading it needs no compiler."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirx_attn.family import DEFAULT_ARCH, AnySchedule, plan_for
from tirx_attn.runtime.errors import CompileError, ToolchainError
from tirx_attn.runtime.files import write_atomic
from tirx_attn.runtime.nvrtc import DEFAULT_SECONDS

if TYPE_CHECKING:
    from tirx_attn.config import AttentionConfig

FAILURE = "failure"
"""File in which the child leaves (class, message, log) of a CompileError."""


def export(
    config: AttentionConfig,
    path: str | os.PathLike[str],
    *,
    arch: str = DEFAULT_ARCH,
    schedule: AnySchedule | None = None,
    timeout: float = DEFAULT_SECONDS,
) -> Path:
    """Write the kernel of `config` as a shared library with its cubin. Needs no GPU and no driver.

    `tirx_attn.runtime.load` loads it. TVM compiles device code only where it finds a CUDA driver, so a process of its
    own gets a stand-in for one.

    Args:
        config: the problem; sizes left open are read from the tensors of each call.
        path: the file; its folder must exist.
        arch: one of `tirx_attn.targets.TARGETS`.
        schedule: values of the knobs; None takes the tuned ones.
        timeout: seconds that all of it may take.

    Returns:
        The path written.

    Raises:
        TypeError, ValueError: an argument, naming its value and what is allowed.
        FileNotFoundError: there is no such folder.
        ToolchainError: there is no C compiler, or a CUDA package is missing.
        CompileError: the kernel cannot be compiled, or the time is over.
    """
    plan_for(config, schedule, arch)
    if not timeout > 0:
        raise ValueError(f"timeout={timeout!r}: allowed values are positive seconds")
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r}: allowed are files in a folder that exists")
    if shutil.which("cc") is None:
        raise ToolchainError("exporting links a shared library: install a C compiler (cc)")
    with tempfile.TemporaryDirectory(prefix="tirx-attn-") as folder:
        made = Path(folder) / "kernel.so"
        _run_child((config, schedule, arch, folder, str(made), timeout), Path(folder), timeout)
        return write_atomic(target, made.read_bytes())


def _run_child(request: tuple[Any, ...], folder: Path, timeout: float) -> None:
    """Have the library made. What goes wrong in the child is raised here as what it was."""
    arch = request[2]
    child = subprocess.Popen(
        [sys.executable, "-m", "tirx_attn.runtime.export_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": _search_path()},
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


def _search_path() -> str:
    """PYTHONPATH with which the child finds the package also where it is not installed."""
    return os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parents[2])])
