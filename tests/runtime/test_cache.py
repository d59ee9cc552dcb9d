"""The compile cache: one build however many ask, damaged entries built again, a bounded size, no trace of the dead."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from tests.runtime.artifacts import CONFIG, content
from tirx_attn import HopperSchedule
from tirx_attn.runtime import CompileError, KernelCache, cache
from tirx_attn.runtime.artifact import unseal
from tirx_attn.runtime.cache import key
from tirx_attn.runtime.origin import PACKAGES, origin

ARCH = "sm_90a"


class Compiler:
    """Counts its calls."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.calls, self.seconds, self.error = [], seconds, error

    def __call__(self, config, arch, schedule, timeout):
        self.calls.append((config, arch, schedule))
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return content(config=config, arch=arch, schedule=schedule)


@pytest.fixture
def compiler():
    return Compiler()


@pytest.fixture
def kernels(tmp_path, compiler):
    return KernelCache(tmp_path / "kernels", build=compiler)


def problems(count):
    return [replace(CONFIG, Hq=2 * (i + 1)) for i in range(count)]


def child(folder, seconds, calls, *more, **options):
    command = [sys.executable, "-m", "tests.runtime.cache_child", str(folder), str(seconds), str(calls), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


class TestEntries:
    def test_a_kernel_is_built_once(self, kernels, compiler):
        first = kernels.get(CONFIG, ARCH)
        assert kernels.get(CONFIG, ARCH) == first
        assert unseal(first.read_bytes(), "kernel").config == CONFIG
        assert len(compiler.calls) == 1
        assert compiler.calls[0][1:] == (ARCH, unseal(first.read_bytes(), "kernel").schedule)

    def test_the_name_holds_all_that_the_kernel_depends_on(self):
        schedule, ours = HopperSchedule(), origin()
        names = {key(CONFIG, ARCH, schedule, ours)}
        others = {"Hq": 8, "is_causal": False, "dtype": "bf16", "scale": "runtime", "Sq": 5, "return_lse": True}
        for name, value in others.items():
            names.add(key(replace(CONFIG, **{name: value}), ARCH, schedule, ours))
        names.add(key(CONFIG, ARCH, HopperSchedule(ping_pong=False), ours))
        names.add(key(CONFIG, "sm_100a", schedule, ours))
        for package in PACKAGES:
            names.add(key(CONFIG, ARCH, schedule, replace(ours, versions={**ours.versions, package: "9.9"})))
        names.add(key(CONFIG, ARCH, schedule, replace(ours, source="edited")))
        assert len(names) == 10 + len(PACKAGES)

    def test_the_tuned_schedule_and_none_are_one_kernel(self, kernels, compiler):
        kernels.get(CONFIG, ARCH)
        kernels.get(CONFIG, ARCH, compiler.calls[0][2])
        assert len(compiler.calls) == 1

    def test_l2_arguments_that_are_equal_are_one_kernel(self, kernels, compiler):
        import numpy as np

        for hq, causal in ((4, True), (np.int64(4), True), (np.array(4).item(), bool(1))):
            kernels.get(replace(CONFIG, Hq=hq, is_causal=causal), ARCH)
        assert len(compiler.calls) == 1

    @pytest.mark.parametrize("damage", ["truncated", "altered", "empty"])
    def test_a_damaged_entry_is_built_again(self, kernels, compiler, caplog, damage):
        path = kernels.get(CONFIG, ARCH)
        whole = path.read_bytes()
        path.write_bytes({"truncated": whole[:-9], "altered": whole.replace(b"ELF", b"elf"), "empty": b""}[damage])
        with caplog.at_level(logging.WARNING, "tirx_attn"):
            assert kernels.get(CONFIG, ARCH) == path
        assert path.read_bytes() == whole
        assert len(compiler.calls) == 2
        assert "it is built again" in caplog.text

    def test_a_build_that_fails_leaves_nothing_and_holds_nobody_up(self, kernels, compiler):
        compiler.error = CompileError("no")
        for _ in range(2):
            with pytest.raises(CompileError, match="no"):
                kernels.get(CONFIG, ARCH, timeout=60)  # a lock that is kept would be another error
        assert kernels.entries() == []
        compiler.error = None
        assert kernels.get(CONFIG, ARCH, timeout=60).is_file()

    def test_those_not_used_for_longest_go(self, tmp_path, compiler):
        size = len(content())
        kernels = KernelCache(tmp_path, limit=int(2.5 * size), build=compiler)
        first, second, third = problems(3)
        for age, config in ((300, first), (200, second)):
            path = kernels.get(config, ARCH)
            os.utime(path, (time.time() - age,) * 2)
        kernels.get(first, ARCH)  # now it is the second that was not used for longest
        kernels.get(third, ARCH)
        assert {one.description.config for one in kernels.entries()} == {first, third}

    def test_a_kernel_larger_than_the_limit_stays_until_the_next(self, tmp_path, compiler):
        kernels = KernelCache(tmp_path, limit=10, build=compiler)
        for config in problems(3):
            assert kernels.get(config, ARCH).is_file()
            assert [one.description.config for one in kernels.entries()] == [config]

    def test_clearing(self, kernels):
        for config in problems(3):
            kernels.get(config, ARCH)
        old, fresh = kernels.folder / ".a.so.1.part", kernels.folder / ".b.so.2.part"
        for path in (old, fresh):
            path.write_bytes(b"half")
        os.utime(old, (time.time() - 7200,) * 2)
        assert kernels.clear() == 3
        assert kernels.entries() == []
        assert not old.exists()
        assert fresh.exists()  # somebody may be writing it

    def test_where_it_is_and_how_large(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
        monkeypatch.delenv("TIRX_ATTN_CACHE", raising=False)
        assert KernelCache().folder == tmp_path / "home" / "tirx_attn" / "kernels"
        monkeypatch.setenv("TIRX_ATTN_CACHE", str(tmp_path / "own"))
        monkeypatch.setenv("TIRX_ATTN_CACHE_BYTES", "12345")
        assert (KernelCache().folder, KernelCache().limit) == (tmp_path / "own", 12345)
        for wrong in ("0", "-5", "1e9", "much"):
            monkeypatch.setenv("TIRX_ATTN_CACHE_BYTES", wrong)
            with pytest.raises(ValueError, match=rf"TIRX_ATTN_CACHE_BYTES='{wrong}': allowed are positive numbers"):
                KernelCache()
        with pytest.raises(ValueError, match=r"limit=0: allowed are positive numbers of bytes"):
            KernelCache(tmp_path, limit=0)

    def test_wrong_arguments_before_any_work(self, kernels, compiler):
        with pytest.raises(ValueError, match=r"timeout=0: allowed values are positive seconds"):
            kernels.get(CONFIG, ARCH, timeout=0)
        with pytest.raises(ValueError, match=r"arch='sm_80'"):
            kernels.get(CONFIG, "sm_80")
        assert not kernels.folder.exists()
        assert compiler.calls == []


class TestTogether:
    def test_threads(self, tmp_path):
        compiler = Compiler(0.2)
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(KernelCache(tmp_path, build=compiler).get(CONFIG, ARCH)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert len(found) == 8
        assert len(set(found)) == 1
        assert len(compiler.calls) == 1

    def test_who_waits_too_long_is_told(self, tmp_path, monkeypatch, caplog):
        monkeypatch.setattr(cache, "NOTE_SECONDS", 0.1)
        started, ended = threading.Event(), threading.Event()

        def slow(config, arch, schedule, timeout):
            started.set()
            assert ended.wait(300)
            return content(config=config, arch=arch, schedule=schedule)

        other = threading.Thread(target=lambda: KernelCache(tmp_path, build=slow).get(CONFIG, ARCH))
        other.start()
        assert started.wait(120)
        try:
            caplog.set_level(logging.WARNING, "tirx_attn")
            with pytest.raises(CompileError, match=r"another process took"):
                KernelCache(tmp_path, build=Compiler()).get(CONFIG, ARCH, timeout=0.4)
        finally:
            ended.set()
            other.join(120)
        assert "waiting up to 0.4 s for another process" in caplog.text
        assert len(KernelCache(tmp_path).entries()) == 1

    @pytest.mark.slow
    def test_eight_processes_and_twenty_cold_rounds(self, tmp_path):
        calls = tmp_path / "calls"
        calls.touch()
        children = [child(tmp_path, 0.05, calls, "rounds", stdin=subprocess.PIPE) for _ in range(8)]
        try:
            for one in children:
                assert one.stdout.readline() == "ready\n"
            for number in range(20):
                folder = tmp_path / f"round{number}"
                for one in children:
                    one.stdin.write(f"{folder.name}\n")
                    one.stdin.flush()
                found = {one.stdout.readline().strip() for one in children}
                (path,) = found
                assert len(calls.read_text().splitlines()) == number + 1
                assert [str(each) for each in folder.iterdir() if each.suffix != ".lock"] == [path]
                assert len(KernelCache(folder).entries()) == 1
                assert KernelCache(folder).entries()[0].description.config == CONFIG
            assert len(set(calls.read_text().split())) > 1  # not always the same one was first
        finally:
            for one in children:
                one.kill()
                one.communicate()

    @pytest.mark.slow
    def test_who_is_killed_in_a_build_is_not_waited_for(self, tmp_path):
        calls = tmp_path / "calls"
        dying = child(tmp_path, 600, calls)
        start = time.monotonic()
        while not calls.exists() and time.monotonic() - start < 300:
            time.sleep(0.02)
        assert calls.exists()
        dying.send_signal(signal.SIGKILL)
        dying.communicate()
        path = KernelCache(tmp_path, build=Compiler()).get(CONFIG, ARCH, timeout=1500)  # a lock kept would raise
        assert unseal(path.read_bytes(), "kernel").config == CONFIG


@pytest.mark.slow
def test_l1_a_second_process_calls_no_compiler(tmp_path):
    """With the real compiler: the second process would find none."""
    start = "from tests.runtime.artifacts import CONFIG\nfrom tirx_attn.runtime import KernelCache\n"
    end = "print(KernelCache().get(CONFIG, 'sm_90a'))"
    without = "import os, subprocess\nos.environ['PATH'] = ''\nsubprocess.Popen = None\n"
    found = []
    for more in ("", without):
        env = {**os.environ, "TIRX_ATTN_CACHE": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", start + more + end], env=env, capture_output=True, text=True, timeout=1500
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found.append(done.stdout)
    assert found[0] == found[1]
