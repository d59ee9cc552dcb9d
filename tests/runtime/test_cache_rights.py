"""A cache that others own or that can only be read: what is in it is used, and no bookkeeping fails what it serves."""

from __future__ import annotations

import errno
import fcntl
import logging
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import filelock  # noqa: F401  (another user may not be able to read it)
import pytest

from tests.runtime.artifacts import CONFIG, content
from tirx_attn.runtime import KernelCache

ARCH = "sm_90a"
NOBODY = 65534
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")


def build(config, arch, schedule, timeout):
    return content(config=config, arch=arch, schedule=schedule)


def refuse(*_):
    pytest.fail("compiled")


def raises(number):
    def function(*_, **__):
        raise OSError(number, os.strerror(number))

    return function


@pytest.fixture
def kernels(tmp_path):
    return KernelCache(tmp_path / "kernels", build=build)


@pytest.fixture
def shared():
    """A folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="tirx-attn-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(function):
    """What `function` returns in a process of another user, or the name and text of its error."""

    def run(end):
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            end.send(str(function()))
        except BaseException as error:
            end.send(f"{type(error).__name__}: {error}")

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=run, args=(theirs,))
    process.start()
    assert ours.poll(300)
    found = ours.recv()
    process.join(300)
    return found


class TestHits:
    @pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.ESTALE])
    def test_the_time_of_use_cannot_be_written(self, kernels, monkeypatch, number):
        path = kernels.get(CONFIG, ARCH)
        monkeypatch.setattr(os, "utime", raises(number))
        assert KernelCache(kernels.folder, build=refuse).get(CONFIG, ARCH) == path

    @root_only
    def test_of_another_user(self, shared):
        path = KernelCache(shared, build=build).get(CONFIG, ARCH)
        assert as_nobody(lambda: KernelCache(shared, build=refuse).get(CONFIG, ARCH)) == str(path)

    @root_only
    def test_on_a_file_system_that_can_only_be_read(self, shared):
        path = KernelCache(shared, build=build).get(CONFIG, ARCH)
        code = (
            "from tests.runtime.artifacts import CONFIG, content\nfrom tirx_attn.runtime import KernelCache\n"
            "from dataclasses import replace\nkernels = KernelCache(__import__('sys').argv[1], build=print)\n"
            "print(kernels.get(CONFIG, 'sm_90a'))\n"
            "try:\n    kernels.get(replace(CONFIG, Hq=8), 'sm_90a')\nexcept OSError as error:\n    print(error)\n"
        )
        mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", mount, shared, sys.executable, "-c", code, shared]
        if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
            pytest.skip("needs the right to mount")
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        reason = "the kernel is not in this cache and cannot be put there (Read-only file system)"
        assert done.stdout == f"{path}\n[Errno 30] folder={shared}: {reason}\n"


class TestBuilds:
    @pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOLCK])
    def test_no_lock(self, kernels, monkeypatch, caplog, number):
        monkeypatch.setattr(fcntl, "flock", raises(number) if number == errno.ENOLCK else fcntl.flock)
        if number != errno.ENOLCK:
            monkeypatch.setattr("filelock.FileLock.acquire", raises(number))
        with caplog.at_level(logging.WARNING, "tirx_attn"):
            assert kernels.get(CONFIG, ARCH).is_file()
        assert "another process may build the same kernel" in caplog.text

    def test_a_lock_that_cannot_be_given_back(self, kernels, monkeypatch):
        monkeypatch.setattr("filelock.FileLock.release", raises(errno.EIO))
        assert kernels.get(CONFIG, ARCH).is_file()

    @pytest.mark.parametrize("method", ["unlink", "stat"])
    def test_eviction(self, kernels, monkeypatch, method):
        kernels.limit = 10
        first = kernels.get(CONFIG, ARCH)
        half = kernels.folder / ".x.so.1.part"
        half.write_bytes(b"half")
        os.utime(half, (time.time() - 7200,) * 2)
        whole = getattr(Path, method)

        def forbidden(self, **options):
            if self in (first, half):
                raise PermissionError(errno.EPERM, "Operation not permitted", str(self))
            return whole(self, **options)

        monkeypatch.setattr(Path, method, forbidden)
        second = kernels.get(replace(CONFIG, Hq=8), ARCH)
        monkeypatch.undo()
        assert second.is_file()
        assert first.is_file()

    def test_eviction_goes_on_after_what_it_may_not_remove(self, kernels, monkeypatch):
        oldest, older = (kernels.get(replace(CONFIG, Hq=heads), ARCH) for heads in (2, 6))
        os.utime(oldest, (1, 1))
        os.utime(older, (2, 2))
        kernels.limit = 10
        unlink = Path.unlink
        monkeypatch.setattr(
            Path, "unlink", lambda self, **options: raises(1)() if self == oldest else unlink(self, **options)
        )
        kernels.get(CONFIG, ARCH)
        assert (oldest.exists(), older.exists()) == (True, False)

    @root_only
    def test_in_a_folder_that_users_share(self, shared):
        """Of root there: a lock that only root may open, a kernel that only root may read, none of which others may
        remove (the folder is as /tmp is)."""
        ours = KernelCache(shared, build=build)
        path = ours.get(CONFIG, ARCH)
        path.chmod(0o600)
        for number in range(256):
            (shared / f"{number:02x}.lock").touch()
            (shared / f"{number:02x}.lock").chmod(0o644)
        shared.chmod(0o1777)
        other = replace(CONFIG, Hq=8)
        found = as_nobody(lambda: KernelCache(shared, build=build, limit=10).get(other, ARCH))
        assert found == str(ours.path(other, ARCH, ours.entries()[0].description.schedule))
        assert path.is_file()
        described = as_nobody(lambda: [one.description is None for one in KernelCache(shared).entries()])
        assert sorted(described) == sorted("[False, True]")

    @root_only
    def test_a_kernel_that_may_not_be_read_is_built_again_or_refused_with_a_reason(self, shared):
        path = KernelCache(shared, build=build).get(CONFIG, ARCH)
        path.chmod(0o600)
        assert "Permission denied" in as_nobody(lambda: KernelCache(shared, build=refuse).get(CONFIG, ARCH))
        shared.chmod(0o777)
        assert as_nobody(lambda: KernelCache(shared, build=build).get(CONFIG, ARCH)) == str(path)

    def test_locks_are_for_all_who_may_write(self, kernels):
        kernels.folder.mkdir()
        for mode, rights in ((0o755, 0o644), (0o775, 0o664), (0o1777, 0o666), (0o700, 0o600)):
            kernels.folder.chmod(mode)
            kernels.get(CONFIG, ARCH).unlink()
            (lock,) = kernels.folder.glob("*.lock")
            assert stat.S_IMODE(lock.stat().st_mode) == rights
            lock.unlink()

    def test_a_folder_that_was_removed_during_a_build(self, tmp_path):
        def removing(config, arch, schedule, timeout):
            shutil.rmtree(tmp_path / "kernels")
            return content(config=config, arch=arch, schedule=schedule)

        assert KernelCache(tmp_path / "kernels", build=removing).get(CONFIG, ARCH).is_file()

    @root_only
    def test_a_folder_that_may_not_be_written_is_told_before_a_build(self, shared, monkeypatch):
        monkeypatch.setenv("TIRX_ATTN_CACHE", str(shared))
        found = as_nobody(lambda: KernelCache(build=refuse).get(CONFIG, ARCH))
        assert found.startswith("PermissionError: [Errno 13] TIRX_ATTN_CACHE=/")
        assert found.endswith("(Permission denied); set TIRX_ATTN_CACHE to a folder that can be written to")


def test_clearing_removes_what_it_can_and_tells_the_rest(kernels, monkeypatch):
    kept, *gone = (kernels.get(replace(CONFIG, Hq=heads), ARCH) for heads in (2, 4, 6))
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda self, **more: raises(1)() if self == kept else unlink(self, **more))
    with pytest.raises(PermissionError, match=r"folder=.*: 1 of 3 files cannot be removed \(Operation not permitted\)"):
        kernels.clear()
    assert kept.exists()
    assert not any(path.exists() for path in gone)
