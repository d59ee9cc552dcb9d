"""Generating CUDA source from PrimFuncs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.runtime.kernels import COLUMNS, ROWS, copy_kernel, scale_kernel
from tirx_attn.runtime import CompileError, compile_cubin, dynamic_smem_bytes, generate_cuda
from tirx_attn.runtime.export_child import DRIVER_FUNCTIONS


def test_source_holds_the_kernel_as_written():
    source = generate_cuda(scale_kernel(4, 3.0))
    assert 'extern "C" __global__ void __launch_bounds__(128) main_kernel(float* __restrict__ X_ptr' in source
    assert "0x1.8p+1f" in source


def test_dynamic_shared_memory_is_the_pools_size():
    assert dynamic_smem_bytes(copy_kernel(256)) == ROWS * COLUMNS * 2 + 8
    assert dynamic_smem_bytes(scale_kernel(4, 3.0)) == 0


def test_dynamic_shared_memory_reaches_the_figures():
    func = copy_kernel(256)
    cubin = compile_cubin(generate_cuda(func), dynamic_smem=dynamic_smem_bytes(func))
    assert cubin.resources().dynamic_smem == 16392
    assert cubin.resources().static_smem == 0


def test_source_does_not_depend_on_the_run():
    assert generate_cuda(copy_kernel(256)) == generate_cuda(copy_kernel(256))


def test_threads_take_turns():
    factors = [2.0, 3.0, 4.0, 5.0]
    with ThreadPoolExecutor(4) as pool:
        sources = list(pool.map(lambda factor: generate_cuda(scale_kernel(4, factor)), factors))
    for source, number in zip(sources, ["0x1p+1f", "0x1.8p+1f", "0x1p+2f", "0x1.4p+2f"], strict=True):
        assert number in source


def test_unknown_architecture_is_refused():
    with pytest.raises(ValueError, match=r"arch='sm_80'.*sm_100a"):
        generate_cuda(scale_kernel(4, 3.0), "sm_80")


def test_what_tvm_refuses_is_a_compile_error():
    from tvm.script import tirx as T

    @T.prim_func
    def host_only(X_ptr: T.handle):
        X = T.match_buffer(X_ptr, (4,), "float32")
        X[0] = T.float32(1)

    with pytest.raises(CompileError, match="sm_100a"):
        generate_cuda(host_only)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to make a stand-in for the CUDA driver")
def test_a_loadable_driver_changes_nothing(tmp_path):
    """With a driver TVM would run NVRTC by itself; the source must be the same and no variable may stay set."""
    stub = tmp_path / "stub.c"
    stub.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in DRIVER_FUNCTIONS))
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", stub, "-o", library, "-Wl,-soname,libcuda.so.1"], check=True)
    script = """
import ctypes, os, sys
from tirx_attn.runtime import toolchain
cudart = next(path for root in toolchain.cuda_roots() for path in (root / "lib").glob("libcudart.so.*"))
for path in (sys.argv[1], cudart):
    ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
import tvm
assert tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True) is not None, "the driver was not seen"
from tests.runtime.kernels import copy_kernel
from tirx_attn.runtime import generate_cuda
before = dict(os.environ)
source = generate_cuda(copy_kernel(256))
assert dict(os.environ) == before
sys.stdout.write(source)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, library],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == generate_cuda(copy_kernel(256))


def test_environment_is_left_alone():
    before = dict(os.environ)
    generate_cuda(scale_kernel(4, 3.0))
    assert dict(os.environ) == before
