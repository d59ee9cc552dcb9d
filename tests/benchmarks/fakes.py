"""Stand-ins for a GPU: time that passes by the calls made, readings that are fixed, inputs without tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.document import new, put, record
from benchmarks.inputs import WrongResult
from benchmarks.measure import Implementation
from benchmarks.shapes import Shape

READING = {"sm_mhz": 1755.0, "watts": 650.0, "celsius": 60.0}


class FakeClock:
    """A host and a device that work side by side; `busy` adds work to the device."""

    def __init__(self) -> None:
        self.host = 0.0
        self.device = 0.0
        self.slept: list[float] = []
        self.lost = False

    def busy(self, seconds: float) -> None:
        self.device = max(self.device, self.host) + seconds
        self.host += 1e-6

    def mark(self) -> float:
        self.device = max(self.device, self.host)
        return self.device

    def wait(self, mark: float) -> None:
        if self.lost:
            raise RuntimeError("illegal memory access")
        self.host = max(self.host, mark)

    def milliseconds(self, start: float, end: float) -> float:
        return (end - start) * 1e3

    def delay(self) -> None:
        self.busy(1e-3)

    def now(self) -> float:
        return self.host

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.host = max(self.host, self.device) + seconds


class FakeGauge:
    """Gives the same readings always, and keeps the windows that were asked for."""

    def __init__(self) -> None:
        self.windows: list[tuple[float, float]] = []

    def read(self) -> dict[str, float]:
        return dict(READING)

    def window(self, start: float, end: float) -> dict[str, float]:
        self.windows.append((start, end))
        return {**READING, "samples": 5}


@dataclass
class FakeProblem:
    """Inputs whose check knows the right output by its name."""

    config: Any

    def difference(self, output: Any) -> float:
        if output != "right":
            raise WrongResult(f"O is {output}")
        return 1e-4


@dataclass
class FakePeer:
    """A peer whose calls take `milliseconds`; `fails` raises when it is made ready, `breaks` at that call."""

    milliseconds: float
    output: str = "right"
    fails: str = ""
    breaks: int = 0
    calls: list[float] = field(default_factory=list)

    def __call__(self, problem: Any, clock: FakeClock) -> Implementation:
        if self.fails:
            raise RuntimeError(self.fails)

        def call() -> None:
            self.calls.append(clock.host)
            if len(self.calls) == self.breaks:
                raise RuntimeError("broke")
            clock.busy(self.milliseconds * 1e-3)

        return Implementation(call, lambda: self.output, variant="v", note="n")


def measured(tflops: float, **more: Any) -> dict[str, Any]:
    """A result as the measurement writes it, with the parts that reports read."""
    part = {"ms": 0.5, "tflops": tflops, **READING}
    return {"difference": 5e-4, "note": "", "steady": part, "cool": {**part, "tflops": tflops * 1.25}, **more}


def document_of(results: dict[Shape, dict[str, Any]]) -> dict[str, Any]:
    """A document of one run on a made-up GPU."""
    document = new()
    gpu = {"name": "GPU of tests", "uuid": "GPU-1", "driver": "1.2", "power_limit_watts": 700.0}
    document["runs"].append(
        {"gpu": gpu, "versions": {"torch": "9.9"}, "date": "2026-01-02", "commit": "abc", "command": ["run", "it"]}
    )
    for shape, result in results.items():
        put(document, record(shape, 0, result))
    return document
