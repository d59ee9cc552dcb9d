"""Compiling CUDA source: right machine code, right figures, clear errors, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from tests.runtime.kernels import (
    LOCAL_ARRAY_CUDA,
    SETMAXNREG_CUDA,
    SPILLING_CUDA,
    STATIC_SMEM_CUDA,
    copy_kernel,
)
from tirx_attn.runtime import CompileError, ToolchainError, compile_cubin, generate_cuda, toolchain

compiled = cache(compile_cubin)
"""For what does not depend on when a source is compiled."""


def test_figures_of_a_kernel_with_static_shared_memory():
    resources = compiled(STATIC_SMEM_CUDA).resources()
    assert resources.kernel == "reversed"
    assert resources.static_smem == 1000 * 4
    assert resources.dynamic_smem is None
    assert resources.barriers == 4
    assert (resources.local_bytes, resources.spill_bytes, resources.spill_instructions) == (0, 0, 0)


def test_local_array_is_local_memory_but_no_spill():
    resources = compiled(LOCAL_ARRAY_CUDA).resources()
    assert resources.local_bytes == 64 * 4
    assert resources.spill_bytes == 0
    assert resources.spill_instructions > 0
    assert resources.static_smem == 0


def test_spills_are_reported_and_agree_with_the_frame():
    cubin = compiled(SPILLING_CUDA)
    resources = cubin.resources()
    assert resources.registers == 64
    assert resources.spill_bytes > 0
    assert resources.spill_instructions > 0
    assert resources.local_bytes > 0
    assert any("Local memory used" in warning for warning in cubin.warnings)


@pytest.mark.parametrize("source", [STATIC_SMEM_CUDA, LOCAL_ARRAY_CUDA, SPILLING_CUDA])
def test_elf_and_compiler_log_agree(source):
    cubin = compiled(source)
    resources = cubin.resources()
    used = re.search(r"Used (\d+) registers, used (\d+) barriers(.*)", cubin.log)
    assert (resources.registers, resources.barriers) == (int(used[1]), int(used[2]))
    smem = re.search(r"(\d+) bytes smem", used[3])
    assert resources.static_smem == (int(smem[1]) if smem else 0)
    assert resources.local_bytes == int(re.search(r"(\d+) bytes stack frame", cubin.log)[1])


def test_setmaxnreg_is_seen_where_ptxas_keeps_it():
    honoured = compile_cubin(SETMAXNREG_CUDA % {"bounds": "__launch_bounds__(256, 1)"})
    assert sorted(honoured.resources().register_requests) == [40, 120]
    ignored = compile_cubin(SETMAXNREG_CUDA % {"bounds": ""})
    assert ignored.resources().register_requests == ()
    assert "setmaxnreg" in ignored.log


@pytest.mark.parametrize(("arch", "number"), [("sm_100a", 100), ("sm_103a", 103)])
def test_machine_code_is_for_the_architecture_asked_for(arch, number):
    cubin = compile_cubin(STATIC_SMEM_CUDA, arch)
    (flags,) = struct.unpack_from("<I", cubin.image, 0x30)
    assert flags >> 8 & 0xFF == number
    assert re.search(rf"\.target\s+{arch}\b", cubin.sass())


def test_versions_are_of_one_release():
    cubin = compiled(STATIC_SMEM_CUDA)
    assert cubin.nvrtc_version == cubin.resources().assembler_version
    assert cubin.nvrtc_version.startswith("13.")


def test_code_size_is_sixteen_bytes_an_instruction():
    resources = compiled(STATIC_SMEM_CUDA).resources()
    assert resources.code_bytes == 16 * resources.instructions


@pytest.mark.slow
def test_same_machine_code_as_tvms_own_helper(tmp_path):
    """TVM's helper is steered by environment variables, so it runs in a child process."""
    source = generate_cuda(copy_kernel(256))
    (tmp_path / "kernel.cu").write_text(source)
    root = next(root for root in toolchain.cuda_roots() if (root / "include" / "cuda_runtime.h").is_file())
    script = (
        "import sys, pathlib; from tvm.support.nvcc import compile_cuda; folder = pathlib.Path(sys.argv[1]);"
        "image = compile_cuda((folder / 'kernel.cu').read_text(), 'cubin', 'sm_100a', compiler='nvrtc');"
        "(folder / 'tvm.cubin').write_bytes(bytes(image))"
    )
    environment = {
        **os.environ,
        "CUDA_PATH": str(root),
        "TVM_CUDA_NVRTC_EXTRA_OPTS": f"-I{root}/include/cccl",
    }
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, check=True, timeout=600)
    theirs = _code((tmp_path / "tvm.cubin").read_bytes())
    assert _code(compile_cubin(source).image) == theirs
    assert theirs["main_kernel"]


def _code(image: bytes) -> dict[str, bytes]:
    from tirx_attn.runtime.elf import sections

    return {section.name[6:]: section.data for section in sections(image) if section.name.startswith(".text.")}


def test_a_refused_source_names_line_and_reason():
    with pytest.raises(CompileError, match="expected an expression") as caught:
        compile_cubin("int x;\nint y = ;\n")
    assert "kernel.cu(2)" in caught.value.log


def test_a_source_without_a_kernel_has_no_figures():
    with pytest.raises(ValueError, match="kernel=None"):
        compile_cubin("__device__ int x;").resources()


def test_a_wrong_kernel_name_is_answered_with_the_right_ones():
    with pytest.raises(ValueError, match=r"kernel='nope'.*reversed"):
        compiled(STATIC_SMEM_CUDA).resources("nope")


def test_time_limit_cancels_the_compilation():
    source = generate_cuda(copy_kernel(256))
    with pytest.raises(CompileError, match=r"longer than 0\.05 s"):
        compile_cubin(source, timeout=0.05)


def test_an_interrupt_stops_the_compilation_and_is_passed_on():
    source = generate_cuda(copy_kernel(256))

    def interrupt(_number, _frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            compile_cubin(source)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("arch", ["compute_100a", "sm_100x", "", "sm_100a -I/"])
def test_bad_architecture_is_refused_before_anything_runs(arch):
    with pytest.raises(ValueError, match="arch="):
        compile_cubin(STATIC_SMEM_CUDA, arch)


@pytest.mark.slow
def test_threads_may_compile_at_the_same_time():
    sources = [STATIC_SMEM_CUDA.replace("1000", str(words)) for words in (256, 512, 768, 1024)]
    with ThreadPoolExecutor(4) as pool:
        cubins = list(pool.map(compile_cubin, sources))
    assert [cubin.resources().static_smem for cubin in cubins] == [1024, 2048, 3072, 4096]


def test_equal_sources_give_equal_machine_code():
    assert compile_cubin(SPILLING_CUDA).image == compiled(SPILLING_CUDA).image


def test_environment_is_left_alone():
    before = dict(os.environ)
    compile_cubin(STATIC_SMEM_CUDA).sass()
    assert dict(os.environ) == before


def test_missing_nvdisasm_names_the_package(monkeypatch):
    cubin = compile_cubin(STATIC_SMEM_CUDA)
    monkeypatch.setattr(toolchain, "cuda_roots", tuple)
    toolchain.nvdisasm.cache_clear()
    try:
        with pytest.raises(ToolchainError, match="install nvidia-cuda-nvdisasm"):
            cubin.sass()
    finally:
        toolchain.nvdisasm.cache_clear()


def test_missing_headers_name_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "cuda_roots", tuple)
    with pytest.raises(ToolchainError, match="install nvidia-cuda-runtime"):
        toolchain._include_dirs(tmp_path / "lib" / "libnvrtc.so.13")
