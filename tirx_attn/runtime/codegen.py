"""PrimFunc -> CUDA source."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tirx_attn.runtime.errors import CompileError
from tirx_attn.targets import target_for

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

_FORCE_SOURCE = "TVM_COMPILE_FORCE_FALLBACK"
_lowering = threading.Lock()


def generate_cuda(func: PrimFunc, arch: str = "sm_100a") -> str:
    """CUDA source of `func` for `arch`, as TVM's "tirx" pipeline writes it.

    The same on every machine: where a CUDA driver can be loaded TVM would go on and run NVRTC, which is held
    back. Calls from several threads take turns.

    Raises:
        ValueError: `arch` is not one of `tirx_attn.targets.TARGETS`.
        CompileError: TVM cannot lower the function.
    """
    target_for(arch)
    import tvm

    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    with _lowering, _source_only():
        try:
            executable = tvm.compile(tvm.IRModule({"main": func}), target=target, tir_pipeline="tirx")
            devices = [module for module in executable.mod.imports if module.kind == "cuda"]
        except Exception as error:
            raise CompileError(f"TVM cannot lower the kernel for {arch}: {error}") from error
    if len(devices) != 1:
        raise CompileError(f"TVM made {len(devices)} CUDA modules of the kernel for {arch}, expected 1")
    return devices[0].inspect_source("cuda")


@contextmanager
def _source_only() -> Iterator[None]:
    """Keep TVM from compiling what it generates, which it does where a driver can be loaded."""
    import tvm

    if tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True) is None:
        yield
        return
    before = os.environ.get(_FORCE_SOURCE)
    os.environ[_FORCE_SOURCE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FORCE_SOURCE]
        else:
            os.environ[_FORCE_SOURCE] = before


def dynamic_smem_bytes(func: PrimFunc) -> int:
    """Dynamic shared memory that a launch of `func` asks for, in bytes.

    It is the annotation that TIRx's shared-memory pool leaves in the function; neither the CUDA source nor a
    cubin holds it.
    """
    from tvm import tirx
    from tvm_ffi import structural_walk

    sizes: list[int] = []

    def visit(attribute: tirx.AttrStmt) -> None:
        if attribute.attr_key == "tirx.dyn_smem_bytes":
            sizes.append(int(attribute.value))

    structural_walk(func.body, (tirx.AttrStmt, visit))
    return max(sizes, default=0)
