"""The choice among several forms of one implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from benchmarks.inputs import Problem
from benchmarks.measure import Clock, Implementation, calls_for, error_text, time_calls

TUNING_SECONDS = 0.02
"""Time for which a variant is timed; the choice needs less accuracy than the result."""

COMPILE_THREADS = 8


class NoVariant(Exception):
    """No variant of an implementation runs this shape."""


def fastest(variants: Mapping[str, Callable[[], Implementation]], problem: Problem, clock: Clock) -> Implementation:
    """Build, check and time each variant, and return the fastest, with `tuning` telling of all.

    Raises:
        NoVariant: none of them runs and is right; the message holds each one's reason.
    """
    found: dict[str, Implementation] = {}
    tuning: dict[str, float | str] = {}
    for name, build in variants.items():
        try:
            implementation = build()
            first = time_calls(implementation, clock, 1)
            problem.difference(implementation.output())
            first = time_calls(implementation, clock, 2)
            tuning[name] = time_calls(implementation, clock, calls_for(first, TUNING_SECONDS))
            found[name] = implementation
        except Exception as error:
            tuning[name] = error_text(error, limit=300)
    if not found:
        raise NoVariant("; ".join(f"{name}: {reason}" for name, reason in tuning.items()) or "there are no variants")
    best = min(found, key=lambda name: tuning[name])
    return replace(found[best], variant=best, tuning=tuning)


def in_threads(jobs: Iterable[Callable[[], object]]) -> None:
    """Run `jobs`, which compile, side by side. A job that fails is left to fail again where its error is recorded."""

    def attempt(job: Callable[[], object]) -> None:
        try:
            job()
        except Exception:
            return

    with ThreadPoolExecutor(COMPILE_THREADS) as pool:
        list(pool.map(attempt, jobs))
