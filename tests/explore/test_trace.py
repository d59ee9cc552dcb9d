"""The trace: what Perfetto needs to load it, and the timeline's own times."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.explore.studied import one, study, two
from tirx_attn.explore import trace_events


def threads(events, pid):
    return {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == pid}


def complete(events, pid, tid):
    return sorted((e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid)), key=lambda e: e["ts"])


def ns(microseconds):
    """As Perfetto reads a time: cut to whole ns."""
    return int(microseconds * 1000.0)


def holds(event, arrow):
    return ns(event["ts"]) <= ns(arrow["ts"]) <= ns(event["ts"]) + ns(event["dur"])


def test_processes_are_kernels_and_threads_are_lanes():
    made = two()
    trace = trace_events(made)
    assert trace["displayTimeUnit"] == "ns"
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert names == {1: "A: a test, tuned", 2: "B: a test, tuned, kv_stages=2, stagger=True"}
    for pid, side in enumerate(made["sides"], start=1):
        assert list(threads(trace["traceEvents"], pid).values()) == side["time"]["lanes"]
    assert {e["ph"] for e in trace["traceEvents"]} == {"M", "X", "s", "f"}


def test_spans_of_a_thread_follow_each_other():
    events = trace_events(one())["traceEvents"]
    clock = study().prediction.clock_ghz * 1e3  # cycles per µs
    ends = {}
    for tid, lane in threads(events, 1).items():
        spans = complete(events, 1, tid)
        assert spans, lane
        assert all(ns(a["ts"]) + ns(a["dur"]) <= ns(b["ts"]) for a, b in pairwise(spans)), lane
        for event in spans:
            assert event["dur"] * clock == pytest.approx(event["args"]["cycles"], abs=2.0)
        ends[lane] = (sum(ns(event["dur"]) for event in spans), ns(spans[-1]["ts"]) + ns(spans[-1]["dur"]))
    # roles have no gaps: what they do and wait for is all of their time
    for role in ("load", "mma", "softmax 0", "softmax 1"):
        assert ends[role][0] == ends[role][1]
    assert max(end for _, end in ends.values()) * clock / 1e3 == pytest.approx(study().timeline.end, abs=2.0)


def test_waits_name_their_edge_and_who_ended_them():
    events = trace_events(one())["traceEvents"]
    waits = [e for e in events if e["ph"] == "X" and e["cat"] == "wait"]
    assert {e["name"] for e in waits} == {
        "wait kv_load.full", "wait kv_load.empty", "wait s_ready", "wait p_o_rescale"
    }  # fmt: skip
    assert all(e["name"] == f"wait {e['args']['edge']}" and e["args"]["by"] for e in waits)
    assert len(waits) == len(study().timeline.stalls)


def test_arrows_lead_from_what_ended_a_wait_to_the_wait():
    events = trace_events(two())["traceEvents"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == sum(s["what"] == "wait" for side in two()["sides"] for s in side["time"]["spans"])
    latency = {"TMA": 600.0, "tensor pipe": 60.0}
    to_cycles = study().prediction.clock_ghz * 1e3
    for number, start in starts.items():
        end = ends[number]
        assert start["pid"] == end["pid"]
        (wait,) = (e for e in complete(events, end["pid"], end["tid"]) if holds(e, end))
        assert wait["args"]["edge"] == end["name"]
        (cause,) = (e for e in complete(events, start["pid"], start["tid"]) if holds(e, start))
        lane = threads(events, start["pid"])[start["tid"]]
        assert lane == wait["args"]["by"]
        # 60 more from the last arrival to the waiting warp
        later = (wait["ts"] + wait["dur"] - cause["ts"] - cause["dur"]) * to_cycles
        assert later == pytest.approx(latency.get(lane, 0.0) + 60.0, abs=4.0)  # two times in whole ns
