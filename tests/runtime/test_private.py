"""Libraries by their contents: whatever becomes of a file, what is loaded are the bytes that were checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.runtime.artifacts import CONFIG, LOADER
from tests.runtime.libraries import numbered
from tirx_attn.runtime import ArtifactError, ToolchainError, load, private

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to make small libraries")


@pytest.fixture(autouse=True)
def without_cuda(monkeypatch):
    """The small libraries need none of TVM's, and each test loads as a new process does."""
    monkeypatch.setattr(LOADER, "_load_runtime", lambda folder: None)
    monkeypatch.setattr(private, "_modules", {})


@pytest.fixture
def made(tmp_path):
    """Contents of two kernels of one signature."""
    folder = tmp_path / "built"
    folder.mkdir()
    return [numbered(folder, number) for number in (41, 42)]


def called(path: Path) -> int:
    return load(path, device=None).function()


def replaced(path: Path, content: bytes) -> None:
    new = path.with_name("new")
    new.write_bytes(content)
    os.replace(new, path)


def linked(path: Path, content: bytes, link) -> None:
    """The path is a link to another file."""
    other = path.with_name(f"other{len(list(path.parent.iterdir()))}.so")
    other.write_bytes(content)
    path.unlink(missing_ok=True)
    link(other, path)


WAYS = {
    "renamed over it": replaced,
    "overwritten in place": lambda path, content: path.write_bytes(content),
    "a symlink elsewhere": lambda path, content: linked(path, content, lambda other, it: it.symlink_to(other)),
    "a hard link elsewhere": lambda path, content: linked(path, content, os.link),
}


@pytest.mark.parametrize("change", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("memory", [True, False], ids=["memory", "file"])
def test_a_file_loaded_again_is_what_it_holds(monkeypatch, tmp_path, made, change, memory):
    if not memory:
        monkeypatch.setattr(private, "_memory", lambda name: None)
    path = tmp_path / "attention.so"
    kept = []
    for content, number in [(made[0], 41), (made[1], 42), (made[0], 41)]:
        change(path, content)
        kept.append(load(path, device=None))
        assert kept[-1].function() == number
    assert [kernel.function() for kernel in kept] == [41, 42, 41]  # the older ones stay what they were


def test_a_file_that_is_copied_back_over_is_found_after_all_was_dropped(tmp_path, made):
    path = tmp_path / "attention.so"
    for content, number in zip(made, (41, 42), strict=True):
        path.write_bytes(content)
        kernel = load(path, device=None)
        assert kernel.function() == number
        del kernel


def test_the_same_bytes_are_loaded_once(monkeypatch, tmp_path, made):
    import tvm_ffi

    loads = []
    load_module = tvm_ffi.load_module
    monkeypatch.setattr(tvm_ffi, "load_module", lambda path: loads.append(path) or load_module(path))
    for name in ("a.so", "b.so", "a.so"):
        (tmp_path / name).write_bytes(made[0])
        assert called(tmp_path / name) == 41
    assert len(loads) == 1


def test_nothing_is_left_behind(monkeypatch, tmp_path, made):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    descriptors = len(os.listdir("/proc/self/fd"))
    (tmp_path / "a.so").write_bytes(made[0])
    assert called(tmp_path / "a.so") == 41
    assert list((tmp_path / "temporary").iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_from_a_folder_that_may_only_be_read(tmp_path, made):
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "a.so").write_bytes(made[0])
    (tmp_path / "closed").chmod(0o555)
    try:
        assert called(tmp_path / "closed" / "a.so") == 41
    finally:
        (tmp_path / "closed").chmod(0o755)


def test_a_library_that_is_none_is_named(tmp_path):
    from tests.runtime.artifacts import content

    (tmp_path / "bad.so").write_bytes(content())
    with pytest.raises(ArtifactError, match=r"bad.so: the library cannot be loaded"):
        load(tmp_path / "bad.so", device=None)


class TestTemporaryFolder:
    def test_one_that_forbids_execution_is_named(self, monkeypatch, tmp_path, made):
        """As a real one answers, where there is no anonymous memory."""
        import tvm_ffi

        def refuse(path):
            raise RuntimeError(f"{path}: failed to map segment from shared object")

        monkeypatch.setattr(private, "_memory", lambda name: None)
        monkeypatch.setattr(tvm_ffi, "load_module", refuse)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        (tmp_path / "a.so").write_bytes(made[0])
        with pytest.raises(ToolchainError, match=rf"TMPDIR={tmp_path}: must allow shared libraries"):
            load(tmp_path / "a.so", device=None)

    def test_none_at_all_is_named(self, monkeypatch, tmp_path, made):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
        (tmp_path / "a.so").write_bytes(made[0])
        with pytest.raises(ToolchainError, match=r"TMPDIR=.*: allowed are folders that can be written to"):
            load(tmp_path / "a.so", device=None)

    @pytest.mark.slow
    def test_noexec_does_not_matter(self, tmp_path, made):
        """On a real mount, in a process of its own; it takes the right to mount."""
        (tmp_path / "a.so").write_bytes(made[0])
        (tmp_path / "noexec").mkdir()
        mount = f"mount -t tmpfs -o noexec none {tmp_path / 'noexec'}"
        if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, timeout=600).returncode:
            pytest.skip("needs the right to mount a folder")
        program = (
            "from tests.runtime.artifacts import LOADER; LOADER._load_runtime = lambda folder: None\n"
            f"print(LOADER.load({str(tmp_path / 'a.so')!r}, device=None).function())"
        )
        environment = {**os.environ, "TMPDIR": str(tmp_path / "noexec")}
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, program],
            capture_output=True, text=True, timeout=600, env=environment, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert done.stdout == "41\n", done.stderr


@pytest.mark.torch
def test_preload_gives_the_new_kernel(monkeypatch, tmp_path, made):
    """The second file under a name takes the place of the first in `flash_attention`."""
    torch = pytest.importorskip("torch")
    from tirx_attn import preload
    from tirx_attn.runtime import torch_op

    monkeypatch.setattr(torch_op, "_ready", {})
    monkeypatch.setattr(torch_op, "load", lambda path, **_: load(path, device=None))
    path = tmp_path / "attention.so"
    for content, number in zip(made, (41, 42), strict=True):
        replaced(path, content)
        preload(path, device=0)
        (ready,) = torch_op._ready.values()
        assert ready.function() == number
    assert torch_op._key(CONFIG, torch.device("cuda", 0)) in torch_op._ready
