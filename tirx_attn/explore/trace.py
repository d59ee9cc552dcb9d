"""The timelines as Chrome trace events, which Perfetto and chrome://tracing load."""

from __future__ import annotations

from typing import Any

from tirx_attn.explore.passing import WAIT


def trace_events(document: dict[str, Any]) -> dict[str, Any]:
    """A JSON object format trace of a document (`facts.document`): one process a kernel, one thread a lane.

    Times are µs of the model's clock; `args` have them in cycles. An arrow (flow) leads from who let a waiting role go,
    when it did, to the end of the wait.
    """
    events: list[dict[str, Any]] = []
    for pid, side in enumerate(document["sides"], start=1):
        events += _side(pid, document["title"], side)
    words = {"title": document["title"], "arch": document["arch"]}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": words}


def _side(pid: int, title: str, side: dict[str, Any]) -> list[dict[str, Any]]:
    time, to_us = side["time"], 1 / (side["prediction"]["clock_ghz"] * 1e3)
    lanes = [*time["lanes"], *time["without_role"]]
    threads = {lane: number for number, lane in enumerate(lanes, start=1)}
    name = f"{side['name']}: {title}, {side['origin']}"
    events: list[dict[str, Any]] = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}]
    for lane, tid in threads.items():
        common = {"ph": "M", "pid": pid, "tid": tid}
        events.append({**common, "name": "thread_name", "args": {"name": lane}})
        events.append({**common, "name": "thread_sort_index", "args": {"sort_index": tid}})
    for number, span in enumerate(time["spans"]):
        where = {"pid": pid, "tid": threads[span["lane"]]}
        is_wait = span["what"] == WAIT
        event = {
            **where,
            "ph": "X",
            "cat": WAIT if is_wait else "work",
            "name": f"wait {span['edge']}" if is_wait else span["what"],
            "ts": span["start"] * to_us,
            "dur": (span["end"] - span["start"]) * to_us,
            "args": {
                "cycles": span["end"] - span["start"],
                **{key: span[key] for key in ("edge", "by", "detail", "role", "queued") if span.get(key)},
            },
        }
        events.append(event)
        if is_wait and span["by"] in threads and span["by"] != span["lane"]:
            flow = {"cat": "release", "name": span["edge"], "id": pid * 1_000_000 + number}
            source = {"pid": pid, "tid": threads[span["by"]], "ts": span["released"] * to_us}
            events.append({**flow, **source, "ph": "s"})
            events.append({**flow, **where, "ph": "f", "bp": "e", "ts": span["end"] * to_us})
    return events
