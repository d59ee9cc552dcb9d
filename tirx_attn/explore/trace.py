"""The timelines as Chrome trace events, which Perfetto and chrome://tracing load."""

from __future__ import annotations

from typing import Any

from tirx_attn.explore.passing import WAIT

NEAR = 1e-6
"""Cycles within which two times are one."""

CUT = 1e-4
"""µs that are added to each time. Perfetto cuts times to whole ns, and drops a span that then begins before the end of
the one before it.
"""


def trace_events(document: dict[str, Any]) -> dict[str, Any]:
    """A JSON object format trace of a document (`facts.document`): one process a kernel, one thread a lane.

    Times are µs of the model's clock, in whole ns; `args` have them in cycles. An arrow (flow) leads from what let a
    waiting role go to the wait.
    """
    events: list[dict[str, Any]] = []
    for pid, side in enumerate(document["sides"], start=1):
        events += _side(pid, document["title"], side)
    words = {"title": document["title"], "arch": document["arch"]}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": words}


def _side(pid: int, title: str, side: dict[str, Any]) -> list[dict[str, Any]]:
    time, clock_ghz = side["time"], side["prediction"]["clock_ghz"]
    lanes = [*time["lanes"], *time["without_role"]]
    threads = {lane: number for number, lane in enumerate(lanes, start=1)}
    name = f"{side['name']}: {title}, {side['origin']}"
    events: list[dict[str, Any]] = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}]
    for lane, tid in threads.items():
        common = {"ph": "M", "pid": pid, "tid": tid}
        events.append({**common, "name": "thread_name", "args": {"name": lane}})
        events.append({**common, "name": "thread_sort_index", "args": {"sort_index": tid}})
    by_lane: dict[str, list[dict[str, Any]]] = {lane: [] for lane in lanes}
    for span in time["spans"]:
        by_lane[span["lane"]].append(span)
    for number, span in enumerate(time["spans"]):
        where = {"pid": pid, "tid": threads[span["lane"]]}
        start, end = _whole_ns(span, clock_ghz)
        is_wait = span["what"] == WAIT
        event = {
            **where,
            "ph": "X",
            "cat": WAIT if is_wait else "work",
            "name": f"wait {span['edge']}" if is_wait else span["what"],
            "ts": start / 1e3 + CUT,
            "dur": (end - start) / 1e3 + CUT,
            "args": {
                "cycles": span["end"] - span["start"],
                **{key: span[key] for key in ("edge", "by", "detail", "role", "queued") if span.get(key)},
            },
        }
        events.append(event)
        cause = _cause(span, by_lane.get(span["by"], [])) if is_wait else None
        if cause is not None:
            flow = {"cat": "release", "name": span["edge"], "id": pid * 1_000_000 + number}
            source = {"pid": pid, "tid": threads[cause["lane"]]}
            events.append({**flow, **source, "ph": "s", "ts": _late(*_whole_ns(cause, clock_ghz))})
            events.append({**flow, **where, "ph": "f", "bp": "e", "ts": _late(start, end)})
    return events


def _cause(wait: dict[str, Any], spans: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The span, of the lane that ended a wait, behind which it did: of a unit the one whose result was there then."""
    if wait["by"] == wait["lane"]:
        return None
    before = [span for span in spans if span["end"] <= wait["released"] + NEAR]
    exact = [span for span in before if abs(span.get("done", span["end"]) - wait["released"]) <= NEAR]
    return max(exact or before, key=lambda span: span["end"], default=None)


def _whole_ns(span: dict[str, Any], clock_ghz: float) -> tuple[int, int]:
    return round(span["start"] / clock_ghz), round(span["end"] / clock_ghz)


def _late(start: int, end: int) -> float:
    """A time just before a span's end, in µs: Perfetto ties an arrow to the span that holds its time."""
    return max(start, end - 1) / 1e3 + CUT
