"""Rotation, statistics, steady state and samples from cool, in time that the calls themselves make."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.jax_clock import HostClock, JaxClock
from benchmarks.measure import (
    Implementation,
    Settings,
    back_to_back,
    calls_for,
    cool_sample,
    measure,
    per_second,
    rotation,
    steady_pass,
    summary,
    time_calls,
)
from tests.benchmarks.fakes import READING, FakeClock, FakeGauge, FakePeer, FakeProblem

NAMES = ["a", "b", "c"]


def ready(peer: FakePeer, clock: FakeClock) -> Implementation:
    return peer(FakeProblem(None), clock)


def test_passes_run_in_opposite_and_moving_order():
    assert [rotation(NAMES, turn) for turn in range(5)] == [
        ["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["a", "c", "b"], ["c", "a", "b"],
    ]  # fmt: skip
    assert rotation(NAMES, 0, offset=4) == ["b", "c", "a"]
    assert rotation([], 3) == []


def test_calls_fill_the_time_but_are_never_none():
    assert calls_for(0.5, 0.05) == 100
    assert calls_for(200.0, 0.05) == 1
    assert calls_for(0.0, 0.05) == 10_000


def test_rate_is_in_tflops():
    assert per_second(2 * 10**12, 4.0) == pytest.approx(500.0)


def test_summary_takes_medians():
    parts = [{**READING, "sm_mhz": mhz} for mhz in (1500.0, 1700.0, 1980.0)]
    found = summary(10**12, parts, [1.0, 4.0, 2.0, 2.0])
    assert found == {"ms": 2.0, "tflops": pytest.approx(500.0), **READING, "sm_mhz": 1700.0}


def test_time_of_calls_is_the_device_time():
    clock = FakeClock()
    assert time_calls(ready(FakePeer(0.25), clock), clock, 40) == pytest.approx(0.25)
    assert clock.host == pytest.approx(0.01)


def test_stamps_may_wrap_between_two_marks():
    start, end = (np.array([value], np.int32) for value in (2**31 - 1, -(2**31) + 999_999))
    assert JaxClock.milliseconds(None, start, end) == pytest.approx(1.0)


def test_host_clock_needs_no_device():
    clock = HostClock()
    implementation = Implementation(lambda: clock.sleep(2e-3), lambda: None, clock=clock)
    assert time_calls(implementation, FakeClock(), 2) >= 2.0


def test_chunks_leave_no_gap_on_the_device():
    clock = FakeClock()
    times = back_to_back(ready(FakePeer(0.5), clock), clock, 0.5, 100)
    assert times == pytest.approx([0.5] * len(times))
    assert len(times) >= 10
    assert clock.device == pytest.approx(len(times) * 0.05, rel=1e-4)
    assert len(back_to_back(ready(FakePeer(0.5), clock), clock, 0.0, 1)) == 2


def test_steady_pass_warms_up_first_and_reads_the_gauge_after():
    clock, gauge = FakeClock(), FakeGauge()
    found = steady_pass(ready(FakePeer(1.0), clock), clock, gauge, Settings(seconds=0.5, warmup=0.3))
    ((start, end),) = gauge.windows
    assert start >= 0.3
    assert end - start >= 0.5
    assert found["ms"] == pytest.approx(1.0)
    assert found["host_ms"] == pytest.approx(1.0, rel=1e-2)
    assert found["calls"] == 50 * len(found["chunks_ms"])
    assert (found["sm_mhz"], found["samples"]) == (1755.0, 5)


def test_sample_from_cool_rests_and_hides_the_host_behind_the_delay():
    clock = FakeClock()
    found = cool_sample(ready(FakePeer(0.1), clock), clock, FakeGauge(), Settings(idle=0.4))
    assert clock.slept == [0.4]
    assert found == {"ms": pytest.approx(0.1), **READING}


def test_all_implementations_are_measured_in_turn():
    clock, gauge = FakeClock(), FakeGauge()
    order: list[str] = []
    implementations = {}
    for name, ms in zip(NAMES, (1.0, 2.0, 4.0), strict=True):
        one = ready(FakePeer(ms), clock)
        implementations[name] = Implementation(one.call, one.output, enter=lambda name=name: order.append(name))
    found = measure(implementations, 10**12, clock, gauge, Settings(cool_samples=3))
    assert [found[name]["steady"]["tflops"] for name in NAMES] == pytest.approx([1000.0, 500.0, 250.0])
    assert [found[name]["cool"]["ms"] for name in NAMES] == pytest.approx([1.0, 2.0, 4.0])
    assert [len(found[name]["steady"]["passes"]) for name in NAMES] == [2, 2, 2]
    assert clock.slept == [0.4] * 9
    assert order[-9:] == ["a", "b", "c", "c", "b", "a", "b", "c", "a"]
    assert len(gauge.windows) == 6


def test_one_that_breaks_is_recorded_and_the_others_go_on():
    clock = FakeClock()
    peers = {"good": FakePeer(1.0), "bad": FakePeer(1.0, breaks=300)}
    implementations = {name: ready(peer, clock) for name, peer in peers.items()}
    found = measure(implementations, 10**12, clock, FakeGauge(), Settings(cool_samples=0))
    assert found["bad"] == {"error": "RuntimeError: broke"}
    assert found["good"]["steady"]["tflops"] == pytest.approx(1000.0)
    assert "cool" not in found["good"]


@pytest.mark.parametrize(("name", "value"), [("passes", 0), ("seconds", -1.0), ("idle", float("nan"))])
def test_settings_name_what_is_wrong(name, value):
    with pytest.raises(ValueError, match=f"{name}={value}: allowed are numbers from"):
        Settings(**{name: value})
