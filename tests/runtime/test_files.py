"""Files that are either whole or absent, and folders for a while."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from tirx_attn.runtime import ToolchainError, write_atomic
from tirx_attn.runtime.files import scratch_folder


def test_bytes_and_text_arrive_whole(tmp_path):
    assert write_atomic(tmp_path / "a.cubin", b"\x7fELF").read_bytes() == b"\x7fELF"
    assert write_atomic(tmp_path / "a.cu", "QKᵀ").read_text(encoding="utf-8") == "QKᵀ"
    assert sorted(os.listdir(tmp_path)) == ["a.cu", "a.cubin"]


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "a.cubin"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_new_file_follows_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        path = write_atomic(tmp_path / "a.cubin", b"x")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.cubin"
    path.write_bytes(b"old")

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.cubin"]


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "absent" / "a.cubin", b"x")


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomic(path, b"cubin")
        assert os.read(reader, 100) == b"cubin"
    finally:
        os.close(reader)
    assert path.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize(("function", "number"), [("chmod", errno.EPERM), ("fsync", errno.EINVAL)])
def test_what_a_file_system_does_not_know_is_no_failure(tmp_path, monkeypatch, function, number):
    path = tmp_path / "a.cubin"
    path.write_bytes(b"old")

    def unknown(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, function, unknown)
    assert write_atomic(path, b"new").read_bytes() == b"new"


def test_a_failure_is_told_where_cleaning_up_fails_too(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(tmp_path / "a.cubin", b"new")


class TestScratchFolder:
    def test_it_is_removed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with scratch_folder() as folder:
            (folder / "file").touch()
            assert folder.parent == tmp_path
        assert not folder.exists()

    def test_removing_it_fails_nothing(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with scratch_folder() as folder:
            monkeypatch.setattr(os, "rmdir", lambda *_, **__: os.stat("/nothing/there"))
        assert folder.exists()

    @pytest.mark.parametrize("place", ["/dev/null", "/proc"])
    def test_where_none_can_be_made(self, monkeypatch, place):
        monkeypatch.setenv("TMPDIR", place)
        monkeypatch.setattr(tempfile, "tempdir", place)
        with pytest.raises(ToolchainError, match=f"^TMPDIR='{place}': allowed are folders that can be written to"):
            scratch_folder().__enter__()
