"""Files that are either whole or absent."""

from __future__ import annotations

import os

import pytest

from tirx_attn.runtime import write_atomic


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
