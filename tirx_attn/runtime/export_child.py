"""The process behind `export`: TVM over a stand-in for the CUDA driver, so that it takes machine code from us.

The driver is never asked to do anything here: the nine functions exist so that TVM's CUDA library can be loaded.
"""

from __future__ import annotations

import ctypes
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirx_attn.family import build_planned, plan_for
from tirx_attn.runtime.builder import compile_planned
from tirx_attn.runtime.errors import CompileError, ToolchainError
from tirx_attn.runtime.export import FAILURE
from tirx_attn.runtime.toolchain import CUDA_RUNTIME, cuda_library

if TYPE_CHECKING:
    from tirx_attn.config import AttentionConfig
    from tirx_attn.family import AnySchedule

DRIVER_FUNCTIONS = (
    "cuDeviceGetName",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuLaunchKernelEx",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuTensorMapEncodeTiled",
)
"""What TVM's CUDA runtime library wants of a driver."""

NOT_SUPPORTED = 801


def main() -> None:
    """Read the request from stdin; write the library, or what went wrong."""
    config, schedule, arch, folder, path, timeout = pickle.loads(sys.stdin.buffer.read())
    try:
        load_stand_ins(Path(folder))
        export(config, schedule, arch, path, timeout)
    except CompileError as error:
        message = str(error).removesuffix(f"\n{error.log}")
        (Path(folder) / FAILURE).write_bytes(pickle.dumps((type(error).__name__, message, error.log)))
        sys.exit(1)


def export(config: AttentionConfig, schedule: AnySchedule | None, arch: str, path: str, timeout: float) -> None:
    """Compile the kernel and write the library."""
    import tvm
    import tvm_ffi

    plan = plan_for(config, schedule, arch)
    refused: list[CompileError] = []

    @tvm_ffi.register_global_func("tvm_callback_cuda_compile", override=True)
    def machine_code(source: str) -> bytes:
        try:
            return compile_planned(plan, source, timeout=timeout).image
        except CompileError as error:  # TVM would make an error of its own of it
            refused.append(error)
            raise

    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    with target:
        func = build_planned(plan)
        try:
            executable = tvm.compile(tvm.IRModule({"main": func}), target=target, tir_pipeline="tirx")
        except Exception:
            if refused:
                raise refused[0] from None
            raise
    executable.export_library(path)


def load_stand_ins(folder: Path) -> None:
    """Load a driver without functions, and the CUDA runtime of the environment, ahead of TVM."""
    modules: dict[str, Any] = sys.modules
    modules["torch"] = None  # tvm_ffi would import it, and it brings a CUDA of its own
    source, driver = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text("".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in DRIVER_FUNCTIONS))
    command = ("cc", "-shared", "-fPIC", str(source), "-o", str(driver), f"-Wl,-soname,{driver.name}")
    try:
        subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    except (subprocess.SubprocessError, OSError) as error:
        printed = str(getattr(error, "stderr", None) or "")
        raise ToolchainError(f"cc cannot link a shared library: {error}", printed) from None
    for library in (driver, cuda_library(CUDA_RUNTIME)):
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


if __name__ == "__main__":
    main()
