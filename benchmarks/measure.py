"""How a time is taken: steady state and from cool, all implementations of a shape in turn, in rotating order.

Steady state: calls back to back for some time, after a warm-up of their own. From cool: two calls after an idle time.
Times come from events on the device, so the host's work counts only where the device waits for it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

CHUNK_SECONDS = 0.05
"""Time between two events in steady state."""

COOL_CALLS = 2
"""Calls after each idle time."""

MAX_CALLS = 10_000


class Clock(Protocol):
    """Time on the device and on the host."""

    def mark(self) -> Any:
        """Put an event behind everything that is enqueued."""

    def wait(self, mark: Any) -> None:
        """Let the host wait until the device has reached `mark`."""

    def milliseconds(self, start: Any, end: Any) -> float:
        """Device time between two marks that have been reached."""

    def delay(self) -> None:
        """Keep the device busy, with little power, until the host has enqueued a few calls."""

    def now(self) -> float:
        """Host time in seconds."""

    def sleep(self, seconds: float) -> None:
        """Let the host, and so the device, rest."""


class Gauge(Protocol):
    """Clock rate and power of the GPU."""

    def read(self) -> dict[str, float]:
        """Values at this moment: `sm_mhz`, `watts`, `celsius`."""

    def window(self, start: float, end: float) -> dict[str, float]:
        """Medians of what was sampled between two host times, and `samples`, their number."""


def nothing() -> None:
    """No work."""


@dataclass(frozen=True)
class Implementation:
    """One implementation, ready to run one shape.

    Args:
        call: enqueues the attention once and returns at once.
        output: O [B, Sq, Hq, D] of the latest call, as a torch tensor.
        enter: what has to happen before some calls, behind the mark that starts their time.
        leave: what has to happen after them, before the mark that ends it.
        clock: takes the place of the common clock where the calls run on a stream of their own.
        variant: what was chosen, for instance tile sizes.
        note: what a reader has to know about the number.
        tuning: milliseconds, or the reason for its absence, of each variant that was tried.
    """

    call: Callable[[], object]
    output: Callable[[], Any]
    enter: Callable[[], None] = nothing
    leave: Callable[[], None] = nothing
    clock: Clock | None = None
    variant: str = ""
    note: str = ""
    tuning: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Settings:
    """How long everything is measured.

    Args:
        seconds: steady state per implementation and pass, in seconds.
        warmup: back-to-back calls before it, in seconds.
        passes: passes over the implementations.
        idle: rest before each sample from cool, in seconds.
        cool_samples: samples from cool per implementation; 0 leaves them out.

    Raises:
        ValueError: one of them is negative, or no pass is left.
    """

    seconds: float = 0.5
    warmup: float = 0.3
    passes: int = 2
    idle: float = 0.4
    cool_samples: int = 3

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 1 if name == "passes" else 0
            if not value >= least:
                raise ValueError(f"{name}={value}: allowed are numbers from {least}")


def rotation(names: Sequence[str], turn: int, offset: int = 0) -> list[str]:
    """The order of turn number `turn`: odd turns run backwards, and every second turn starts one name further on."""
    if not names:
        return []
    start = (turn // 2 + offset) % len(names)
    order = [*names[start:], *names[:start]]
    return order[::-1] if turn % 2 else order


def per_second(flops: int, milliseconds: float) -> float:
    """TFLOP/s of `flops` operations in `milliseconds`."""
    return flops / milliseconds * 1e-9


def time_calls(implementation: Implementation, clock: Clock, calls: int) -> float:
    """Milliseconds per call of `calls` calls back to back, waiting for them."""
    clock = implementation.clock or clock
    start, end = _enqueue(implementation, clock, calls)
    clock.wait(end)
    return clock.milliseconds(start, end) / calls


def calls_for(milliseconds: float, seconds: float) -> int:
    """Calls of `milliseconds` each that take about `seconds`, at least one."""
    return min(MAX_CALLS, max(1, math.ceil(seconds * 1e3 / max(milliseconds, 1e-6))))


def back_to_back(implementation: Implementation, clock: Clock, seconds: float, calls: int) -> list[float]:
    """Milliseconds per call of each chunk of `calls` calls; the device never waits for the host to look at one.

    Chunks are added until `seconds` have passed since the first was enqueued, two at least.
    """
    clock = implementation.clock or clock
    start = clock.now()
    pending: deque[tuple[Any, Any]] = deque()
    times: list[float] = []

    def finish() -> None:
        first, last = pending.popleft()
        clock.wait(last)
        times.append(clock.milliseconds(first, last) / calls)

    while len(times) + len(pending) < 2 or clock.now() - start < seconds:
        pending.append(_enqueue(implementation, clock, calls))
        if len(pending) > 1:
            finish()
    while pending:
        finish()
    return times


def steady_pass(implementation: Implementation, clock: Clock, gauge: Gauge, settings: Settings) -> dict[str, Any]:
    """One pass of steady state, after its warm-up.

    Returns:
        `ms` (median per call), `chunks_ms`, `calls`, `host_ms` (host time per call, a check on the events), and the
        gauge's `sm_mhz`, `watts`, `celsius` and `samples` of that time.
    """
    calls = calls_for(time_calls(implementation, clock, 2), CHUNK_SECONDS)
    warm = back_to_back(implementation, clock, settings.warmup, calls)
    calls = calls_for(median(warm), CHUNK_SECONDS)
    start = clock.now()
    chunks = back_to_back(implementation, clock, settings.seconds, calls)
    end = clock.now()
    total = calls * len(chunks)
    return {
        "ms": median(chunks),
        "chunks_ms": chunks,
        "calls": total,
        "host_ms": (end - start) * 1e3 / total,
        **gauge.window(start, end),
    }


def cool_sample(implementation: Implementation, clock: Clock, gauge: Gauge, settings: Settings) -> dict[str, float]:
    """Two calls after an idle time: `ms` per call, and the gauge's values read while they ran."""
    clock = implementation.clock or clock
    clock.sleep(settings.idle)
    clock.delay()
    start, end = _enqueue(implementation, clock, COOL_CALLS)
    reading = gauge.read()
    clock.wait(end)
    return {"ms": clock.milliseconds(start, end) / COOL_CALLS, **reading}


def summary(flops: int, measured: Sequence[Mapping[str, Any]], times: Sequence[float]) -> dict[str, Any]:
    """Median time in `ms`, `tflops`, and medians of the readings that came with the `measured` parts."""
    middle = median(times)
    readings = {key: median([part[key] for part in measured]) for key in ("sm_mhz", "watts", "celsius")}
    return {"ms": middle, "tflops": per_second(flops, middle), **readings}


def measure(
    implementations: Mapping[str, Implementation],
    flops: int,
    clock: Clock,
    gauge: Gauge,
    settings: Settings,
    offset: int = 0,
) -> dict[str, dict[str, Any]]:
    """Measure all implementations of one shape in rotating order.

    Returns:
        For each name `steady` and `cool` (`ms`, `tflops`, `sm_mhz`, `watts`, `celsius`, and the single `passes` or
        `samples`), or `error` if it failed; the others go on without it.
    """
    passes: dict[str, list[dict[str, Any]]] = {name: [] for name in implementations}
    cool: dict[str, list[dict[str, float]]] = {name: [] for name in implementations}
    errors: dict[str, str] = {}

    def each(turn: int, action: Callable[[str], None]) -> None:
        for name in rotation(list(implementations), turn, offset):
            if name in errors:
                continue
            try:
                action(name)
            except Exception as error:
                errors[name] = error_text(error)

    for turn in range(settings.passes):
        each(turn, lambda name: passes[name].append(steady_pass(implementations[name], clock, gauge, settings)))
    for turn in range(settings.cool_samples):
        each(turn, lambda name: cool[name].append(cool_sample(implementations[name], clock, gauge, settings)))

    results: dict[str, dict[str, Any]] = {}
    for name in implementations:
        if name in errors:
            results[name] = {"error": errors[name]}
            continue
        chunks = [ms for one in passes[name] for ms in one["chunks_ms"]]
        results[name] = {"steady": {**summary(flops, passes[name], chunks), "passes": passes[name]}}
        if cool[name]:
            times = [one["ms"] for one in cool[name]]
            results[name]["cool"] = {**summary(flops, cool[name], times), "samples": cool[name]}
    return results


def error_text(error: BaseException, limit: int = 2000) -> str:
    """Type and message of an exception, at most `limit` characters."""
    text = f"{type(error).__name__}: {error}".strip()
    return text if len(text) <= limit else f"{text[:limit]} ..."


def _enqueue(implementation: Implementation, clock: Clock, calls: int) -> tuple[Any, Any]:
    start = clock.mark()
    implementation.enter()
    try:
        for _ in range(calls):
            implementation.call()
    finally:
        implementation.leave()
    return start, clock.mark()
