"""Run generated PrimFuncs on the simulator: numbers, synccheck, racecheck. No GPU.

Everything runs in one child process that stays alive between calls, or in one for each lane that a thread takes. It
keeps compiled kernels loaded, so that many inputs on one PrimFunc cost one build per kind of run, and it is ended
with all its own children when a call passes its time limit. Nothing is set in this process's environment.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tirx_attn.verify.binding import bind, output_names
from tirx_attn.verify.process import Notes, SimulatorProcess
from tirx_attn.verify.reference import Array

KINDS = ("run", "synccheck", "racecheck")
"""Each kind has its own compiled form of a kernel."""

DEFAULT_LIMIT = 600.0
"""Seconds for one call with its build. The first build of each kind on a machine takes minutes."""


@dataclass(frozen=True)
class Run:
    """Outputs of one simulated launch.

    Attributes:
        outputs: name of the parameter -> array.
        verdict: "clean", or "review" where the launch read memory that nothing had written.
        findings: (kind, message) behind a verdict of review.
        seconds, build_seconds: wall time of the launch and of the build before it (0 when already loaded).
    """

    outputs: Mapping[str, Array]
    verdict: str
    findings: tuple[tuple[str, str], ...]
    seconds: float
    build_seconds: float


@dataclass(frozen=True)
class Check:
    """Verdict of one checker on one launch.

    Attributes:
        checker: "synccheck" or "racecheck".
        verdict: "clean", "review", "incomplete" or "error".
        findings: (kind, message) of each finding.
        seconds, build_seconds: wall time of the check and of the build before it (0 when already loaded).
    """

    checker: str
    verdict: str
    findings: tuple[tuple[str, str], ...]
    seconds: float
    build_seconds: float

    @property
    def clean(self) -> bool:
        """Whether the checker found nothing."""
        return self.verdict == "clean"


def run(func: Any, arrays: Mapping[str, Any], *, time_limit: float = DEFAULT_LIMIT, notes: Notes | None = None) -> Run:
    """Launch a PrimFunc on the simulator.

    Args:
        func: `tvm.tirx.PrimFunc` with a static grid.
        arrays: parameter name -> NumPy array or scalar. A buffer parameter that is not named is an output: it
            is allocated, filled with NaN, and returned. The arrays given are not changed.
        time_limit: seconds for the call, builds included.
        notes: called with progress.

    Raises:
        TypeError, ValueError: an array that does not fit its parameter.
        SimulatorUnavailable: simulator or Rust compiler missing.
        SimulatorError: the simulator's own error, with its text.
        TimeoutError: the limit passed; the child process is gone, the next call starts another.
    """
    answer = _ask("run", func, bind(func, arrays), time_limit, notes)
    outputs = {name: answer["outputs"][name] for name in output_names(func) if name not in arrays}
    return Run(outputs, answer["verdict"], _findings(answer), answer["seconds"], answer["build_seconds"])


def synccheck(
    func: Any, arrays: Mapping[str, Any], *, time_limit: float = DEFAULT_LIMIT, notes: Notes | None = None
) -> Check:
    """Check the synchronisation of one launch: deadlocks, counts, phases. Arguments and errors as `run`."""
    return _check("synccheck", func, arrays, time_limit, notes)


def racecheck(
    func: Any, arrays: Mapping[str, Any], *, time_limit: float = DEFAULT_LIMIT, notes: Notes | None = None
) -> Check:
    """Check one launch for accesses that no synchronisation orders. Arguments and errors as `run`."""
    return _check("racecheck", func, arrays, time_limit, notes)


def build(
    func: Any, *, kinds: Iterable[str] = KINDS, time_limit: float = DEFAULT_LIMIT, notes: Notes | None = None
) -> dict[str, float]:
    """Build the compiled forms ahead of the calls that use them.

    Returns:
        Kind -> seconds. `time_limit` holds for each kind.
    """
    seconds = {}
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"kinds contains {kind!r}: allowed are {', '.join(KINDS)}")
        seconds[kind] = float(_ask(f"build:{kind}", func, {}, time_limit, notes)["build_seconds"])
    return seconds


@contextmanager
def lane(name: str) -> Iterator[None]:
    """Calls of this thread go to a child process of that name, beside those of others: builds then run side by side."""
    before, _lane.name = _lane_name(), name
    try:
        yield
    finally:
        _lane.name = before


def close() -> None:
    """End all child processes; the next call starts another. Builds stay in the simulator's disk cache."""
    with _starting:
        workers = list(_workers.values())
        _workers.clear()
    for worker in workers:
        worker.close()


def _check(checker: str, func: Any, arrays: Mapping[str, Any], time_limit: float, notes: Notes | None) -> Check:
    answer = _ask(checker, func, bind(func, arrays), time_limit, notes)
    return Check(checker, answer["verdict"], _findings(answer), answer["seconds"], answer["build_seconds"])


def _findings(answer: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((str(kind), str(message)) for kind, message in answer["findings"])


_workers: dict[str, SimulatorProcess] = {}
"""Lane -> its child process."""
_starting = threading.Lock()
_lane = threading.local()


def _lane_name() -> str:
    return getattr(_lane, "name", "")


def _ask(kind: str, func: Any, arrays: dict[str, Any], time_limit: float, notes: Notes | None) -> dict[str, Any]:
    if not time_limit > 0:
        raise ValueError(f"time_limit={time_limit}: allowed are positive seconds")
    return _worker().ask(kind, func, arrays, time_limit, notes)


def _worker() -> SimulatorProcess:
    name = _lane_name()
    with _starting:
        worker = _workers.get(name)
        if worker is None or not worker.alive:
            if worker is not None:
                worker.close()
            worker = _workers[name] = SimulatorProcess()
        return worker


atexit.register(close)

