"""The simulator's wrapper on small kernels: values, NaN in what stays unwritten, time limits, errors."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from tirx_attn import verify
from tirx_attn.verify import process, simulator

simulated = [pytest.mark.simulator]


def rows(count: int = 128, columns: int = 8):
    return np.arange(count * columns, dtype=np.float16).reshape(1, count, 1, columns)


def living(group: int) -> list[str]:
    """Members of a process group that have not ended, by their status lines (field 3 is the state, 5 the group)."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[2] == str(group) and fields[0] != "Z":
                    members.append(entry.name)
    return members


@pytest.fixture
def kernels():
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")
    from tests.verify import kernels

    return kernels


class TestRuns:
    pytestmark = simulated

    def test_value_and_second_input_without_a_build(self, kernels):
        func = kernels.sum_kernel()
        q = rows()
        first = verify.run(func, {"Q": q, "K": np.ones_like(q), "V": np.ones_like(q)})
        assert set(first.outputs) == {"O"}
        assert np.array_equal(first.outputs["O"], q + np.float16(2))
        again = verify.run(kernels.sum_kernel(), {"Q": q, "K": q, "V": np.zeros_like(q)})
        assert np.array_equal(again.outputs["O"], q + q)
        assert again.build_seconds == 0
        assert first.verdict == again.verdict == "clean"

    def test_what_a_kernel_leaves_unwritten_is_nan(self, kernels):
        o = verify.run(kernels.half_kernel(), {"Q": rows()}).outputs["O"]
        assert np.isnan(o[:, :64]).all()
        assert np.array_equal(o[:, 64:], rows()[:, 64:])

    def test_inputs_are_left_alone(self, kernels):
        q, o = rows(), np.full((1, 128, 1, 8), 777, np.float16)
        verify.run(kernels.half_kernel(), {"Q": q, "O": o})
        assert np.array_equal(q, rows())
        assert np.all(o == 777)

    def test_strided_inputs_are_read_by_value(self, kernels):
        q = np.ascontiguousarray(rows().transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
        assert not q.flags.c_contiguous
        assert np.array_equal(verify.run(kernels.half_kernel(), {"Q": q}).outputs["O"][:, 64:], q[:, 64:])

    def test_checkers(self, kernels):
        values = {"Q": np.arange(128, dtype=np.float32)}
        clean = verify.racecheck(kernels.shared_kernel(True), values)
        assert (clean.checker, clean.verdict, clean.findings, clean.clean) == ("racecheck", "clean", (), True)
        race = verify.racecheck(kernels.shared_kernel(False), values)
        assert race.verdict == "error"
        assert "data_race" in {kind for kind, _ in race.findings}

    def test_deadlock_is_an_error_not_a_hang(self, kernels):
        with pytest.raises(verify.SimulatorError, match=r"deadlock.*mbarrier.*arrival_count=0/1"):
            verify.run(kernels.stuck_kernel(), {})
        stuck = verify.synccheck(kernels.stuck_kernel(), {})
        assert (stuck.verdict, stuck.findings[0][0]) == ("error", "deadlock")

    def test_limit_ends_the_process_and_the_next_call_works(self, kernels):
        func = kernels.sum_kernel()
        q = rows()
        arrays = {"Q": q, "K": q, "V": q}
        verify.run(func, arrays)
        before = simulator._worker()._process
        with pytest.raises(TimeoutError, match=r"run passed its time limit of 0\.001 s"):
            verify.run(func, arrays, time_limit=0.001)
        assert before.poll() is not None
        assert np.array_equal(verify.run(func, arrays).outputs["O"], 3 * q)

    def test_limit_ends_a_build(self, kernels, tmp_path, monkeypatch):
        """The Rust compiler is a child of the child: it must go as well. The stand-in for it never ends."""
        compiler = tmp_path / "cargo"
        compiler.write_text(f"#!/bin/sh\necho started > {tmp_path}/started\nsleep 600\n")
        compiler.chmod(0o755)
        monkeypatch.setenv("NUMSIM_CARGO", str(compiler))
        verify.close()
        try:
            group = simulator._worker()._process.pid
            with pytest.raises(TimeoutError, match=r"build:run passed its time limit of 15 s while building"):
                verify.build(kernels.sum_kernel(columns=7), kinds=("run",), time_limit=15)  # built by no other test
        finally:
            verify.close()
        assert (tmp_path / "started").exists()
        deadline = time.monotonic() + 120
        while living(group) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert living(group) == []

    def test_notes_name_the_phase(self, kernels):
        notes: list[str] = []
        verify.close()
        verify.run(kernels.half_kernel(), {"Q": rows()}, notes=notes.append)
        assert notes[0].startswith("run: ")
        assert "run: running" in notes

    def test_build_ahead(self, kernels):
        func = kernels.half_kernel()
        assert set(verify.build(func, kinds=("run",))) == {"run"}
        assert verify.run(func, {"Q": rows()}).build_seconds == 0
        with pytest.raises(ValueError, match=r"kinds contains 'walk': allowed are run, synccheck, racecheck"):
            verify.build(func, kinds=("walk",))

    def test_a_users_files_are_none_of_the_childs(self, kernels, tmp_path, monkeypatch):
        """Neither modules beside him, nor a toolchain that is not installed."""
        for name in ("inspect", "json", "ml_dtypes", "tirx_harness", "tvm"):
            (tmp_path / f"{name}.py").write_text("raise RuntimeError('mine')\n")
        (tmp_path / "rust-toolchain.toml").write_text('[toolchain]\nchannel = "none-of-that-name"\n')
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend("")
        verify.close()
        try:
            func = kernels.half_kernel()
            assert np.array_equal(verify.run(func, {"Q": rows()}).outputs["O"][:, 64:], rows()[:, 64:])
            assert os.readlink(f"/proc/{simulator._worker()._process.pid}/cwd") == "/"
        finally:
            verify.close()

    def test_environment_stays_as_it_was(self, kernels):
        before = dict(os.environ)
        verify.run(kernels.half_kernel(), {"Q": rows()})
        assert dict(os.environ) == before


class TestBinding:
    """Arrays are held against the parameters before the child process is asked."""

    @pytest.fixture
    def half(self, monkeypatch):
        from tests.verify.kernels import half_kernel

        monkeypatch.setattr(simulator, "_worker", lambda: pytest.fail("reached the child process"))
        return half_kernel()

    @pytest.mark.parametrize(
        ("arrays", "error", "message"),
        [
            ({"X": rows()}, ValueError, r"arrays has 'X': allowed are the parameters Q, O"),
            ({"Q": rows().astype(np.float32)}, TypeError, r"Q has dtype float32: allowed is float16"),
            ({"Q": rows(64)}, ValueError, r"Q has shape \(1, 64, 1, 8\): allowed is \(1, 128, 1, 8\)"),
        ],
        ids=["name", "dtype", "shape"],
    )
    def test_misfits_are_named(self, half, arrays, error, message):
        with pytest.raises(error, match=message):
            verify.run(half, arrays)

    def test_limit_must_be_positive(self, half):
        with pytest.raises(ValueError, match=r"time_limit=0: allowed are positive seconds"):
            verify.run(half, {"Q": rows()}, time_limit=0)


class TestMissing:
    def test_simulator(self, monkeypatch):
        monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(verify.SimulatorUnavailable, match=r"pip install 'tirx-attn\[simulator\]'"):
            verify.require_simulator()

    @pytest.mark.parametrize("home", [None, "home"])
    def test_home(self, monkeypatch, home):
        def unknown(*_):
            raise KeyError("getpwuid(): uid not found")

        monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: object())
        monkeypatch.setattr("pwd.getpwuid", unknown)
        monkeypatch.delenv("HOME", raising=False)
        if home:
            monkeypatch.setenv("HOME", home)
        with pytest.raises(verify.SimulatorUnavailable, match=r"^there is no home folder .*: set HOME"):
            verify.require_simulator()

    def test_temporary_folder(self, monkeypatch):
        monkeypatch.setattr(process, "require_simulator", lambda: None)
        monkeypatch.setenv("TMPDIR", "/proc")
        monkeypatch.setattr(process.tempfile, "tempdir", "/proc")
        with pytest.raises(verify.SimulatorUnavailable, match=r"^TMPDIR='/proc': allowed are folders that can be writ"):
            process.SimulatorProcess()

    @pytest.mark.parametrize(("tool", "message"), [("cargo", "cargo is missing.*rustup"), ("cc", "gcc or clang")])
    def test_tools(self, monkeypatch, tool, message):
        found = shutil.which
        monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: object())
        monkeypatch.setattr(
            process.shutil, "which", lambda name: None if os.path.basename(name) == tool else found(name) or name
        )
        monkeypatch.delenv("CC", raising=False)
        with pytest.raises(verify.SimulatorUnavailable, match=message):
            verify.require_simulator()


def test_importing_the_package_imports_no_tvm():
    import subprocess
    import sys

    code = "import sys, tirx_attn.verify; assert 'tvm' not in sys.modules and 'tirx_harness' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_child_environment_ignores_activation(monkeypatch, tmp_path):
    monkeypatch.setattr(process.sys, "prefix", str(tmp_path))
    monkeypatch.delenv("NUMSIM_GENERATED_OPT_LEVEL", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin:/usr/bin")
    plain = process._child_environment()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert process._child_environment() == plain
    assert plain["PATH"] == "/usr/bin:/bin"
    assert plain["NUMSIM_GENERATED_OPT_LEVEL"] == "1"
    assert "NUMSIM_GENERATED_OPT_LEVEL" not in os.environ


def test_child_environment_does_not_depend_on_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/h")
    given = {
        "NUMSIM_CACHE_DIR": ("builds", f"{tmp_path}/builds"),
        "NUMSIM_BUILD_CACHE_DIR": ("~/builds", "/h/builds"),
        "CARGO_HOME": ("/cargo", "/cargo"),
        "NUMSIM_CARGO": ("tools/cargo", f"{tmp_path}/tools/cargo"),
        "NUMSIM_RUSTC": ("rustc", "rustc"),
        "XDG_CACHE_HOME": ("cache", None),
    }
    for name, (value, _) in given.items():
        monkeypatch.setenv(name, value)
    made = process._child_environment()
    assert {name: made.get(name) for name in given} == {name: wanted for name, (_, wanted) in given.items()}
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert process._child_environment()["XDG_CACHE_HOME"] == "/x"


def test_child_environment_has_a_temporary_folder_that_is_there(monkeypatch, tmp_path):
    monkeypatch.setattr(process.tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    assert process._child_environment()["TMPDIR"] == process.tempfile.gettempdir() != str(tmp_path / "absent")
    monkeypatch.delenv("TMPDIR")
    assert "TMPDIR" not in process._child_environment()
