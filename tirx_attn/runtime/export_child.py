"""The process behind `export`: TVM over a stand-in for the CUDA driver, so that it takes machine code from us.

The driver is never asked to do anything here: the nine functions exist so that TVM's CUDA library can be loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tirx_attn.family import build_planned, family_of, plan_for
from tirx_attn.runtime.artifact import Description
from tirx_attn.runtime.builder import compile_planned
from tirx_attn.runtime.errors import CompileError, ToolchainError
from tirx_attn.runtime.export import DESCRIPTION, FAILURE, LIBRARY
from tirx_attn.runtime.origin import PACKAGES, installed, source_hash
from tirx_attn.runtime.toolchain import CUDA_RUNTIME, cuda_library

if TYPE_CHECKING:
    from tirx_attn.config import AttentionConfig
    from tirx_attn.family import AnySchedule
    from tirx_attn.runtime.cubin import Cubin

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
    config, schedule, arch, name, timeout = pickle.loads(sys.stdin.buffer.read())
    folder = Path(name)
    try:
        load_stand_ins(folder)
        description = export(config, schedule, arch, folder / LIBRARY, timeout)
        (folder / DESCRIPTION).write_text(json.dumps(description.to_dict()))
    except CompileError as error:
        message = str(error).removesuffix(f"\n{error.log}")
        (folder / FAILURE).write_bytes(pickle.dumps((type(error).__name__, message, error.log)))
        sys.exit(1)


def export(config: AttentionConfig, schedule: AnySchedule | None, arch: str, path: Path, timeout: float) -> Description:
    """Compile the kernel, write the library, and say what it is and what made it."""
    before = installed(*PACKAGES)
    import tvm
    import tvm_ffi

    plan = plan_for(config, schedule, arch)
    family = family_of(plan.target)
    refused: list[CompileError] = []
    compiled: list[Cubin] = []

    @tvm_ffi.register_global_func("tvm_callback_cuda_compile", override=True)
    def machine_code(source: str) -> bytes:
        try:
            compiled.append(compile_planned(plan, source, timeout=timeout))
            return compiled[-1].image
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
    executable.export_library(str(path))
    (cubin,) = compiled
    return Description(
        config=config,
        schedule=plan.schedule,
        arch=arch,
        function=family.stem,
        versions=loaded(before, {"apache-tvm": tvm.__version__, "apache-tvm-ffi": tvm_ffi.__version__}, cubin),
        generator_sha256=source_hash(),
        cubin_sha256=hashlib.sha256(cubin.image).hexdigest(),
        source_sha256=cubin.source_hash,
    )


def loaded(before: dict[str, str], modules: dict[str, str], cubin: Cubin) -> dict[str, str]:
    """Versions of what made the kernel: what TVM and NVRTC say of themselves, for the others what is installed.

    Raises:
        CompileError: packages were installed while the kernel was made.
    """
    if installed(*PACKAGES) != before:
        raise CompileError("packages were installed while the kernel was compiled: compile it again")
    return installed("tirx-attn") | before | modules | {"nvidia-cuda-nvrtc": cubin.nvrtc_version}


def load_stand_ins(folder: Path) -> None:
    """Load a driver without functions, and the CUDA runtime of the environment, ahead of TVM.

    Raises:
        ToolchainError: a C compiler or the CUDA runtime is missing, or nothing in `folder` may be executed.
    """
    source, driver = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text("".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in DRIVER_FUNCTIONS))
    command = ("cc", "-shared", "-fPIC", str(source), "-o", str(driver), f"-Wl,-soname,{driver.name}")
    try:
        subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    except (subprocess.SubprocessError, OSError) as error:
        printed = str(getattr(error, "stderr", None) or "")
        raise ToolchainError(f"cc cannot link a shared library: {error}", printed) from None
    runtime = cuda_library(CUDA_RUNTIME)
    try:
        ctypes.CDLL(str(driver), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ToolchainError(
            f"TMPDIR={str(folder.parent)!r}: allowed are folders from which shared libraries can be loaded ({error})"
        ) from None
    ctypes.CDLL(str(runtime), ctypes.RTLD_GLOBAL)


if __name__ == "__main__":
    main()
