"""A kernel as a shared library that holds machine code and the host launcher: loading it needs no compiler."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tirx_attn.family import DEFAULT_ARCH, AnySchedule, plan_for
from tirx_attn.runtime.errors import CompileError, ToolchainError
from tirx_attn.runtime.files import write_atomic
from tirx_attn.runtime.nvrtc import DEFAULT_SECONDS

if TYPE_CHECKING:
    from tirx_attn.config import AttentionConfig


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
        ToolchainError: there is no C compiler.
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
        command = [sys.executable, "-m", "tirx_attn.runtime.export_child"]
        request = pickle.dumps((config, schedule, arch, folder, str(made)))
        try:
            done = subprocess.run(
                command, input=request, capture_output=True, timeout=timeout, check=False, env=_environment()
            )
        except subprocess.TimeoutExpired:
            raise CompileError(f"exporting for {arch} took longer than {timeout:g} s") from None
        if done.returncode != 0 or not made.is_file():
            log = done.stderr.decode(errors="replace")[-4000:]
            raise CompileError(f"the kernel cannot be exported for {arch}", log)
        return write_atomic(target, made.read_bytes())


def _environment() -> dict[str, str]:
    """This process's, with the package importable also where it is not installed."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
