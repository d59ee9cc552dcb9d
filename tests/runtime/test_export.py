"""Exported kernels: libraries with machine code and no source, and what is said where there is nothing to load."""

from __future__ import annotations

import re
import shutil

import pytest

from tirx_attn import AttentionConfig, HopperSchedule
from tirx_attn.runtime import CompileError, ToolchainError, export
from tirx_attn.runtime.load import load

OPEN = AttentionConfig(None, None, None, 2, 1, 128, True)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_library_holds_a_cubin_and_no_source(tmp_path, arch):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    path = export(OPEN, tmp_path / "kernel.so", arch=arch)
    content = path.read_bytes()
    assert content[:4] == b"\x7fELF"
    assert content.count(b"\x7fELF") >= 2  # the library and the cubin in it
    assert b"__global__" not in content
    assert re.search(rb"EIATTR|\.nv\.info", content)
    assert len(content) < 1 << 20
    assert [file.name for file in tmp_path.iterdir()] == ["kernel.so"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"arch": "sm_80"}, ValueError, "arch='sm_80'"),
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
        export(OPEN, tmp_path / "kernel.so", arch="sm_90a", schedule=schedule)
    assert "spill" in raised.value.log
    assert "Traceback" not in str(raised.value)


def test_loading_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path='.*none.so': allowed are files that `export` wrote"):
        load(tmp_path / "none.so")


def test_a_bare_name_is_a_file_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.so").touch()
    (tmp_path / "libtvm_runtime.so").touch()
    with pytest.raises(ToolchainError, match=rf"libtvm_runtime.so cannot be loaded: {tmp_path}/libtvm_runtime.so"):
        load("kernel.so", libraries=".")


def test_loading_without_the_runtime_libraries(tmp_path):
    (tmp_path / "kernel.so").touch()
    with pytest.raises(ToolchainError, match=r"libtvm_runtime.so cannot be loaded"):
        load(tmp_path / "kernel.so", libraries=tmp_path)
