"""The C++ host of examples/cpp: what it says, what it launches over a stand-in for CUDA, and its results on an H200."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines import GPU_KERNELS
from tirx_attn import AttentionConfig
from tirx_attn.config import RUNTIME
from tirx_attn.runtime import export

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "examples" / "cpp"
MEAN_KERNEL = Path(__file__).parent / "runtime" / "mean_kernel.c"

BUILD_SECONDS, RUN_SECONDS = 1500, 600
STREAM = 4096
"""The stream that cuda_stub.c gives to a program."""

DEFAULT_SIZES = (2, 1000, 8, 2, 128)
"""B, S, Hq, Hkv, D."""

EXPORTED = {
    "sm_90a": (AttentionConfig(None, None, None, 8, 2, 128, True), DEFAULT_SIZES, ()),
    "sm_100a": (
        AttentionConfig(None, None, None, 6, 3, 64, scale=RUNTIME, return_lse=True),
        (3, 70, 6, 3, 64),
        ("--full", "--lse", "--scale", "0.11"),
    ),
}
"""Architecture -> kernel, sizes, and the words that tell the program of its parameters."""

ON_A_GPU = {
    "causal_8_2": DEFAULT_SIZES,
    "causal_8_8_d64": (1, 777, 8, 8, 64),
    "full_8_2": (3, 300, 8, 2, 128),
    "causal_128_1": (1, 33, 128, 1, 128),
}
"""Kernel of `tests.engines` -> sizes."""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The built program."""
    if lacking := missing_tools():
        pytest.skip(f"needs {lacking} to build examples/cpp")
    folder = tmp_path_factory.mktemp("cpp")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run(["cmake", "-S", SOURCE, "-B", folder, f"-DPython_EXECUTABLE={sys.executable}", *generator], BUILD_SECONDS)
    run(["cmake", "--build", folder], BUILD_SECONDS)
    return folder / "run_attention"


def missing_tools() -> str:
    """What a build lacks here, in words; "" where it lacks nothing."""
    if shutil.which("cmake") is None:
        return "cmake"
    if not ("CXX" in os.environ or any(map(shutil.which, ("c++", "g++", "clang++")))):
        return "a C++ compiler"
    return "" if any(map(shutil.which, ("ninja", "make"))) else "ninja or make"


def run(command: list[object], seconds: float) -> None:
    """A command that has to succeed; it finds the package also where it is not installed."""
    search_path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "PYTHONPATH": search_path},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def call(program: Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        env={**os.environ, **environment},
    )


def tvm_libraries() -> Path:
    """Folder of TVM's runtime libraries."""
    if folder := os.environ.get("TIRX_ATTN_LIBRARIES"):
        return Path(folder)
    return Path(importlib.util.find_spec("tvm").submodule_search_locations[0]) / "lib"


@pytest.fixture
def over_stubs(program, cuda_stubs, tmp_path):
    """Runs the program over the stand-in for CUDA, after other libraries; gives that and the recorded calls."""

    def stubbed(*words: object, before: tuple[Path, ...] = ()):
        log = tmp_path / "log"
        log.write_text("")
        preloaded = (*before, cuda_stubs / "libcuda.so.1", cuda_stubs / "libcudart.so.13")
        done = call(program, *words, LD_PRELOAD=" ".join(map(str, preloaded)), CUDA_STUB_LOG=str(log))
        return done, [json.loads(line) for line in log.read_text().splitlines()]

    return stubbed


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        (),
        ("kernel.so",),
        ("kernel.so", ".", "1", "2", "3", "3"),
        ("kernel.so", ".", "1", "128", "4", "3", "128"),
        ("kernel.so", ".", "1", "0", "4", "4", "128"),
        ("kernel.so", ".", "1", "1x", "4", "4", "128"),
        ("kernel.so", ".", "65536", "65536", "4", "4", "128"),
        ("kernel.so", ".", "--scale"),
        ("kernel.so", ".", "--scale", "-1"),
        ("kernel.so", ".", "--half"),
    ],
    ids=" ".join,
)
def test_wrong_arguments(program, words):
    done = call(program, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("usage: run_attention LIBRARY TVM_LIBRARIES")


@pytest.mark.slow
def test_a_missing_file_is_named(program, tmp_path):
    kernel = tmp_path / "kernel.so"
    done = call(program, kernel, tvm_libraries())
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"run_attention: {kernel}: no such file\n")
    kernel.touch()
    done = call(program, kernel, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"run_attention: {tmp_path}/libtvm_runtime.so: cannot open shared object file")


@pytest.mark.slow
@pytest.mark.parametrize("arch", EXPORTED)
def test_over_a_stand_in_for_cuda(over_stubs, tmp_path, arch):
    """Loading and launching are real. Whether the check passes or fails is up to what stands in for the kernel."""
    config, sizes, words = EXPORTED[arch]
    (kernel,) = export(config, tmp_path / "kernel.so", [arch])
    words = (kernel, tvm_libraries(), *words, *(() if sizes is DEFAULT_SIZES else sizes))
    outputs = ["O", "LSE"] if config.return_lse else ["O"]
    elements = [sizes[0] * sizes[1] * sizes[2] * sizes[4], sizes[0] * sizes[1] * sizes[2]][: len(outputs)]

    done, records = over_stubs(*words)
    assert done.returncode == 1, done.stderr
    for name, count, line in zip(outputs, elements, done.stdout.splitlines(), strict=True):
        assert line == f"{name}: largest error inf, allowed 1.95e-03; {count} of {count} elements are wrong"
    *encodes, launch = records
    assert all(record["call"] == "encode" and record["allowed"] for record in encodes)
    assert (launch["call"], launch["stream"]) == ("launch", STREAM)
    assert launch["kernel"].startswith("flash_attention")

    done, records = over_stubs(*words, before=(mean_kernel(tmp_path, sizes, config.is_causal),))
    assert done.returncode == 0, done.stdout + done.stderr
    for name, count, line in zip(outputs, elements, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"{name}: ")
        assert line.endswith(f"; 0 of {count} elements are wrong")
    assert records[-1]["call"] == "launch"

    done, _ = over_stubs(*words, before=(mean_kernel(tmp_path, sizes, not config.is_causal),))
    assert done.returncode == 1
    for name, line in zip(outputs, done.stdout.splitlines(), strict=True):
        assert re.match(rf"{name}: largest error \d.*; [1-9]\d* of ", line)  # a number, so all were written

    done, records = over_stubs(kernel, tvm_libraries(), 1, 8, 2, 2, 128)  # other heads, or too few parameters
    assert (done.returncode, done.stdout, records) == (1, "", [])
    assert done.stderr.startswith("run_attention: ")


@pytest.mark.slow
def test_a_file_that_is_no_library(over_stubs, tmp_path):
    kernel = tmp_path / "kernel.so"
    kernel.write_text("no library")
    done, records = over_stubs(kernel, tvm_libraries())
    assert (done.returncode, done.stdout, records) == (1, "", [])
    assert f"Failed to load dynamic shared library {kernel}" in done.stderr


def mean_kernel(folder: Path, sizes: tuple[int, ...], is_causal: bool) -> Path:
    """A library in which a launch computes what the kernel has to, for one problem."""
    made = folder / f"mean_kernel_{is_causal}.so"
    values = zip(("B", "S", "HQ", "HKV", "D", "CAUSAL"), (*sizes, int(is_causal)), strict=True)
    defined = [f"-D{name}={value}" for name, value in values]
    run(["cc", "-std=c11", "-O1", "-shared", "-fPIC", *defined, MEAN_KERNEL, "-o", made, "-lm", "-ldl"], RUN_SECONDS)
    return made


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(program, name):
    kernel = GPU_KERNELS[name]
    words = ["--lse"]
    words += [] if kernel.is_causal else ["--full"]
    words += [] if kernel.scale is None else ["--scale", kernel.scale]
    done = call(program, Path(os.environ["TIRX_ATTN_KERNELS"]) / f"{name}.so", tvm_libraries(), *words, *ON_A_GPU[name])
    assert done.returncode == 0, done.stdout + done.stderr
