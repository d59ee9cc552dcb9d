"""The child process that holds the simulator: start it, ask it, end it with everything it started."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tirx_attn.runtime.child import command

Notes = Callable[[str], None]
"""Receives one line of progress at a time, such as "racecheck: building, 12 s"."""

_NOTE_SECONDS = 2.0
_FOLDERS = {"CARGO_HOME", "NUMSIM_BUILD_CACHE_DIR", "NUMSIM_CACHE_DIR", "RUSTUP_HOME"}
_TOOLS = {"NUMSIM_CARGO", "NUMSIM_RUSTC"}
"""Variables that name a folder, and a program by its name or its path; the simulator expands ~ in both."""


class SimulatorUnavailable(RuntimeError):
    """The simulator or its compiler is not installed; the message says what to install."""


class SimulatorError(RuntimeError):
    """The simulator refused the kernel or failed on it: an unsupported form, a deadlock, a bad access."""


class SimulatorDied(SimulatorError):
    """The simulator's process ended in the middle of a run: for want of memory, say. No word on the kernel."""


class SimulatorProcess:
    """Parent's side of the child process of `worker.py`."""

    def __init__(self) -> None:
        require_simulator()
        self._lock = threading.Lock()
        self._known: set[str] = set()
        try:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the child)
        except OSError as error:
            text = f"TMPDIR={os.environ.get('TMPDIR')!r}: allowed are folders that can be written to ({error})"
            raise SimulatorUnavailable(text) from None
        ours, theirs = multiprocessing.Pipe()
        self._connection = ours
        self._process = subprocess.Popen(
            command(Path(__file__).with_name("worker.py"), str(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=os.sep,  # a toolchain or cargo file of the user's folder is none of it
            env=_child_environment(),
            start_new_session=True,
        )
        theirs.close()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, kind: str, func: Any, arrays: dict[str, Any], limit: float, notes: Notes | None) -> dict[str, Any]:
        """One request; SimulatorError or TimeoutError as `simulator.run` describes them."""
        import tvm

        source = tvm.ir.save_json(func)
        key = hashlib.sha256(source.encode()).hexdigest()
        with self._lock:
            started, phase = time.monotonic(), "starting"
            try:
                self._connection.send((kind, key, None if key in self._known else source, arrays, limit))
                while True:
                    elapsed = time.monotonic() - started
                    if elapsed >= limit:
                        raise TimeoutError(f"{kind} passed its time limit of {limit:g} s while {phase}")
                    if not self._connection.poll(min(_NOTE_SECONDS, limit - elapsed)):
                        if notes is not None:
                            notes(f"{kind}: {phase}, {time.monotonic() - started:.0f} s")
                        continue
                    answer = self._connection.recv()
                    if answer[0] == "ok":
                        self._known.add(key)
                        return dict(answer[1])
                    if answer[0] == "error":
                        raise SimulatorError(f"{kind}: {answer[1]}: {answer[2]}")
                    phase = answer[1]
                    if notes is not None:
                        notes(f"{kind}: {phase}")
            except SimulatorError:
                raise
            except (EOFError, OSError) as error:
                self.close()
                if isinstance(error, TimeoutError):
                    raise
                raise SimulatorDied(f"{kind}: the simulator's process died while {phase}; {self._tail()}") from error
            except BaseException:  # an interrupt must not leave a half-read answer behind
                self.close()
                raise

    def close(self) -> None:
        """End the child and everything it started."""
        self._connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _tail(self) -> str:
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return f"exit status {self._process.returncode}, last output: {text[-2000:] or 'none'}"


def require_simulator() -> None:
    """Raise `SimulatorUnavailable` with what to install, unless simulator, cargo and a C linker are there."""
    if importlib.util.find_spec("tirx_harness") is None:
        raise SimulatorUnavailable(
            "the simulator is not installed: pip install 'tirx-attn[simulator]' (Python 3.12 or 3.13)"
        )
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise SimulatorUnavailable(f"there is no home folder ({home!r}): set HOME, below which the simulator builds")
    cargo = os.environ.get("NUMSIM_CARGO", "cargo")
    if shutil.which(cargo) is None and shutil.which(os.path.join(home, ".cargo", "bin", "cargo")) is None:
        raise SimulatorUnavailable("cargo is missing: the simulator compiles kernels with Rust, install it by rustup")
    if shutil.which(os.environ.get("CC", "cc")) is None:
        raise SimulatorUnavailable("a C linker is missing: install gcc or clang so that cc is on PATH")


def _child_environment() -> dict[str, str]:
    """The child's environment: this process's, a low optimisation level, and a PATH that does not wander.

    The simulator's build cache is keyed by PATH, so an activated environment would otherwise build everything
    again.
    """
    environment = dict(os.environ)
    environment.setdefault("NUMSIM_GENERATED_OPT_LEVEL", "1")
    entries = dict.fromkeys(environment.get("PATH", os.defpath).split(os.pathsep))
    if sys.prefix != sys.base_prefix:
        entries.pop(str(Path(sys.prefix) / "bin"), None)
    environment["PATH"] = os.pathsep.join(entries)
    for name in (_FOLDERS | _TOOLS) & environment.keys():  # the child's current folder is another
        if name in _FOLDERS or os.sep in environment[name]:
            environment[name] = os.path.abspath(os.path.expanduser(environment[name]))
    if not os.path.isabs(environment.get("XDG_CACHE_HOME", os.sep)):
        del environment["XDG_CACHE_HOME"]  # as its specification says
    if "TMPDIR" in environment:
        environment["TMPDIR"] = tempfile.gettempdir()  # what Python takes where that cannot be used; Rust would fail
    return environment
