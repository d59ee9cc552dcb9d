"""The process behind `export`: TVM over a stand-in for the CUDA driver, so that it takes machine code from us.

The driver is never asked to do anything here: the nine functions exist so that TVM's CUDA library can be loaded.
"""

from __future__ import annotations

import ctypes
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

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
NOT_SUPPORTED = 801
RUNTIME = "libcudart.so.13"


def main() -> None:
    """Read the request from stdin and write the library."""
    config, schedule, arch, folder, path = pickle.loads(sys.stdin.buffer.read())
    load_stand_ins(Path(folder))
    import tvm
    import tvm_ffi

    from tirx_attn.family import build_planned, family_of, plan_for
    from tirx_attn.runtime.nvrtc import compile_cubin

    @tvm_ffi.register_global_func("tvm_callback_cuda_compile", override=True)
    def machine_code(source: str) -> bytes:
        cubin = compile_cubin(source, arch)
        if family_of(plan.target).refuses_slow_code:
            cubin.refuse_slow_code()
        return cubin.image

    plan = plan_for(config, schedule, arch)
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    with target:
        func = build_planned(plan)
        executable = tvm.compile(tvm.IRModule({"main": func}), target=target, tir_pipeline="tirx")
    executable.export_library(path)


def load_stand_ins(folder: Path) -> None:
    """Load a driver without functions, and the CUDA runtime of the environment, ahead of TVM."""
    modules: dict[str, Any] = sys.modules
    modules["torch"] = None  # tvm_ffi would import it, and it brings a CUDA of its own
    source, driver = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text("".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in DRIVER_FUNCTIONS))
    command = ("cc", "-shared", "-fPIC", str(source), "-o", str(driver), f"-Wl,-soname,{driver.name}")
    subprocess.run(command, check=True, timeout=60)
    from tirx_attn.runtime.toolchain import cuda_library

    for library in (driver, cuda_library(RUNTIME)):
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


if __name__ == "__main__":
    main()
