"""The measurement of a list of shapes, from inputs to the record of each."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.document import Document, is_done, put, record
from benchmarks.inputs import Problem
from benchmarks.measure import Clock, Gauge, Implementation, Settings, error_text, measure, time_calls
from benchmarks.peers import Peer
from benchmarks.shapes import Shape
from tirx_attn.config import AttentionConfig


class DeviceLost(Exception):
    """The GPU answers no more, so that no further number can be taken in this process."""


def run(
    shapes: Sequence[Shape],
    peers: Mapping[str, Peer],
    document: Document,
    clock: Clock,
    gauge: Gauge,
    settings: Settings,
    *,
    save: Callable[[], object],
    say: Callable[[str], object],
    problem: Callable[[AttentionConfig], Problem] = Problem.random,
    budget: float | None = None,
) -> bool:
    """Measure `shapes` that the document lacks into it; its latest run is the current one.

    Args:
        save: called after each shape.
        say: told of each shape in one line.
        problem: makes the inputs of a shape.
        budget: seconds after which no further shape is started.

    Returns:
        True if no shape is left.

    Raises:
        DeviceLost: the GPU failed; what came before is saved.
    """
    start = clock.now()
    for number, shape in enumerate(shapes):
        if is_done(document, shape, peers):
            say(f"{shape.name}: there already")
            continue
        if budget is not None and clock.now() - start > budget:
            say(f"{budget:g} s are over, the shapes from {shape.name} on are left")
            return False
        began = clock.now()
        results = measure_shape(shape, peers, clock, gauge, settings, problem, number)
        put(document, record(shape, len(document["runs"]) - 1, results))
        save()
        say(f"{shape.name}: {brief(results)} ({clock.now() - began:.1f} s)")
        gc.collect()
        try:
            clock.wait(clock.mark())
        except Exception as error:
            raise DeviceLost(f"after {shape.name}: {error_text(error)}") from error
    return True


def measure_shape(
    shape: Shape,
    peers: Mapping[str, Peer],
    clock: Clock,
    gauge: Gauge,
    settings: Settings,
    problem: Callable[[AttentionConfig], Problem],
    offset: int,
) -> dict[str, dict[str, Any]]:
    """Results of all peers for one shape, in the order of `peers`; a failure is a result with an `error`."""
    results: dict[str, dict[str, Any]] = {name: {} for name in peers}
    ready: dict[str, Implementation] = {}
    try:
        inputs = problem(shape.config)
    except Exception as error:
        return {name: {"error": f"inputs: {error_text(error)}"} for name in peers}
    for name, peer in peers.items():
        began = clock.now()
        try:
            implementation = peer(inputs, clock)
            time_calls(implementation, clock, 1)
            results[name]["difference"] = inputs.difference(implementation.output())
        except Exception as error:
            results[name]["error"] = error_text(error)
            continue
        results[name]["preparation_s"] = clock.now() - began
        ready[name] = implementation
        results[name] |= {"variant": implementation.variant, "note": implementation.note}
        if implementation.tuning is not None:
            results[name]["tuning"] = dict(implementation.tuning)
    for name, values in measure(ready, shape.flops, clock, gauge, settings, offset).items():
        results[name] |= values
    return results


def brief(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Steady TFLOP/s of each implementation, in one line."""
    return ", ".join(
        f"{name} {'failed' if 'error' in one else format(one['steady']['tflops'], '.4g')}"
        for name, one in results.items()
    )
