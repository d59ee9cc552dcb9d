"""Exported kernels: libraries with machine code and no source, and what is refused before any work."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import tirx_attn
from tirx_attn import AttentionConfig, HopperSchedule
from tirx_attn.runtime import CompileError, ToolchainError, export
from tirx_attn.runtime.artifact import unseal
from tirx_attn.runtime.export_child import load_stand_ins

LIBRARIES = import_module("tirx_attn.runtime.load").LIBRARIES


def elf_size(image: bytes) -> int:
    """Bytes of a 64-bit ELF file whose section headers, or program headers, come last."""
    program, section = struct.unpack_from("<QQ", image, 32)
    program_size, programs, section_size, sections = struct.unpack_from("<HHHH", image, 54)
    return max(program + program_size * programs, section + section_size * sections)


OPEN = AttentionConfig(None, None, None, 2, 1, 128, True)


@pytest.mark.slow
def test_libraries_hold_a_cubin_and_no_source(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    archs, told = ["sm_90a", "sm_100a"], []
    paths = export(OPEN, tmp_path / "kernel.so", archs, progress=told.append)
    assert told == archs
    assert [path.name for path in paths] == ["kernel.sm_90a.so", "kernel.sm_100a.so"]
    for arch, path in zip(archs, paths, strict=True):
        content = path.read_bytes()
        assert content[:4] == b"\x7fELF"
        assert content.count(b"\x7fELF") >= 2  # the library and the cubin in it
        assert b"__global__" not in content
        assert re.search(rb"EIATTR|\.nv\.info", content)
        assert len(content) < 1 << 20
        description = unseal(content, path.name)
        assert (description.config, description.arch) == (OPEN, arch)
        assert description.versions["nvidia-cuda-nvrtc"].startswith("13.2.")
        assert re.fullmatch("[0-9a-f]{64}", description.cubin_sha256)
        cubins = [content[i:] for i in range(1, len(content)) if content.startswith(b"\x7fELF", i)]
        sizes = range(1000, len(cubins[0]))
        assert elf_size(cubins[0]) in sizes
        assert hashlib.sha256(cubins[0][: elf_size(cubins[0])]).hexdigest() == description.cubin_sha256
    assert sorted(file.name for file in tmp_path.iterdir()) == ["kernel.sm_100a.so", "kernel.sm_90a.so"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"archs": ["sm_80"]}, ValueError, "arch='sm_80'"),
        ({"archs": "sm_90a"}, ValueError, r"archs='sm_90a': allowed are lists of different architectures"),
        ({"archs": []}, ValueError, r"archs=\[\]: allowed are lists"),
        ({"archs": ["sm_90a", "sm_90a"]}, ValueError, r"archs=.*: allowed are lists of different architectures"),
        ({"path": "."}, IsADirectoryError, r"allowed are files, this is a folder"),
        ({"schedule": 3}, TypeError, "schedule=3: allowed values are None"),
        ({"timeout": 0}, ValueError, "timeout=0: allowed values are positive seconds"),
        ({"path": "missing/kernel.so"}, FileNotFoundError, r"path='.*kernel.so': allowed are files in a folder"),
    ],
)
def test_refused_before_any_work(tmp_path, arguments, error, message):
    path = tmp_path / arguments.pop("path", "kernel.so")
    with pytest.raises(error, match=message):
        export(OPEN, path, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_without_a_c_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"install a C compiler"):
        export(OPEN, tmp_path / "kernel.so")


def test_a_temporary_folder_from_which_nothing_can_be_loaded(tmp_path, monkeypatch):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")

    def no_exec(name, *_):
        raise OSError(f"{name}: failed to map segment from shared object")

    monkeypatch.setattr("ctypes.CDLL", no_exec)
    message = rf"^TMPDIR='{tmp_path}': allowed are folders from which shared libraries can be loaded \(.*failed to map"
    (tmp_path / "folder").mkdir()
    with pytest.raises(ToolchainError, match=message):
        load_stand_ins(tmp_path / "folder")


def test_a_temporary_folder_without_the_right_to_execute(tmp_path):
    """On a file system that forbids it; the whole way through the child."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    code = (
        "import sys\nfrom tirx_attn import AttentionConfig, export\n"
        "try:\n    export(AttentionConfig(None, None, None, 2, 1, 64), 'kernel.so')\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    mount = 'mount -t tmpfs -o noexec none "$0" && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", mount, tmp_path, sys.executable, "-c", code]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"ToolchainError TMPDIR='{tmp_path}': allowed are folders from which shared")
    assert len(done.stdout.splitlines()) == 1


def test_the_time_limit_leaves_nothing(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    with pytest.raises(CompileError, match=r"took longer than 0.2 s"):
        export(OPEN, tmp_path / "kernel.so", timeout=0.2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_goes_wrong_in_the_child_is_told_as_what_it_is(tmp_path):
    """Three consumers have too few registers for head size 128: ptxas spills, and says so."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    schedule = HopperSchedule(
        consumers=3, kv_stages=3, q_stages=1, consumer_registers=160, producer_registers=32
    )  # fmt: skip
    with pytest.raises(CompileError, match=r"^ptxas made slow machine code for sm_90a\n") as raised:
        export(OPEN, tmp_path / "kernel.so", ["sm_90a"], schedule=schedule)
    assert "spill" in raised.value.log
    assert "Traceback" not in str(raised.value)


MINIMAL = ("tvm_ffi", "numpy", "numpy.libs", "typing_extensions.py")
"""What an environment has after `pip install apache-tvm-ffi numpy`, beside our package."""

PROGRAM = """
import ctypes, sys
minimal, stubs, libraries, path = sys.argv[1:]
sys.path.insert(0, minimal)
for name in ("libcuda.so.1", "libcudart.so.13"):
    ctypes.CDLL(f"{stubs}/{name}", ctypes.RTLD_GLOBAL)
import numpy as np
from tirx_attn import load
kernel = load(path, device=None, libraries=libraries)
print(kernel.description.arch)
for name in ("tvm", "torch", "cuda.bindings", "ml_dtypes", "filelock", "rich"):
    try:
        __import__(name)
        print("there is", name)
    except ImportError:
        pass
q = np.zeros((1, 4, 2, 128), np.float16)
try:
    kernel(q, q[:, :, :1].copy(), q[:, :, :1].copy(), q.copy())
except Exception as error:
    print(str(error).splitlines()[0])
"""


@pytest.mark.slow
def test_it_loads_where_tvm_is_not_installed(tmp_path, cuda_stubs):
    """Over a stand-in for the driver; the launcher runs, and refuses tensors that are not on a GPU."""
    (path,) = export(OPEN, tmp_path / "kernel.so", ["sm_90a"])
    packages = tmp_path / "packages"
    packages.mkdir()
    installed = Path(np.__file__).parents[1]
    for name in MINIMAL:
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    (packages / "tirx_attn").symlink_to(Path(tirx_attn.__file__).parent)
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for name in LIBRARIES:
        shutil.copy(installed / "tvm" / "lib" / name, libraries)
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, packages, cuda_stubs, libraries, path]
    env = {**os.environ, "CUDA_STUB_LOG": str(tmp_path / "log")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    arch, *others, refused = done.stdout.splitlines()
    assert (arch, others) == ("sm_90a", [])
    assert refused.startswith("Mismatched Q.device_type on argument #0")
