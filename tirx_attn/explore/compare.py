"""What differs between two kernels: knobs, edges, figures."""

from __future__ import annotations

from typing import Any

EDGE_FIELDS = {
    "kind_slots": "kind x slots",
    "arrives": "arrives",
    "waits": "waits",
    "protects": "true after the wait",
    "at_start": "at start",
}


def differences(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """What is not the same on both sides, in the order in which the page shows it."""
    return {
        "knobs": [
            {"name": name, "a": a["knobs"].get(name, "–"), "b": b["knobs"].get(name, "–")}
            for name in dict.fromkeys([*a["knobs"], *b["knobs"]])
            if a["knobs"].get(name) != b["knobs"].get(name)
        ],
        "edges": edges(a["protocol"]["edges"], b["protocol"]["edges"]),
        "figures": [figure(one, other) for one, other in zip(a["figures"], b["figures"], strict=True)],
        "waits": waits(a["time"]["waits"], b["time"]["waits"]),
    }


def edges(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Edges that only one side has, and what of the others has changed."""
    left, right = {edge["name"]: edge for edge in a}, {edge["name"]: edge for edge in b}
    rows = []
    for name in dict.fromkeys([*left, *right]):
        if name not in right:
            rows.append({"name": name, "change": "only in A", "a": left[name]["counts"], "b": "–"})
        elif name not in left:
            rows.append({"name": name, "change": "only in B", "a": "–", "b": right[name]["counts"]})
        else:
            rows += [
                {"name": name, "change": words, "a": left[name][key], "b": right[name][key]}
                for key, words in EDGE_FIELDS.items()
                if left[name][key] != right[name][key]
            ]
    return rows


def figure(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """A figure of both sides, with its change in percent where it is a number."""
    made = {"key": a["key"], "label": a["label"], "a": a["text"], "b": b["text"], "change": None}
    if isinstance(a["value"], (int, float)) and a["value"]:
        made["change"] = 100 * (b["value"] / a["value"] - 1)
    return made


def waits(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cycles per key block that a role waits on an edge, on both sides; the largest change first."""
    left, right = ({(row["role"], row["edge"]): row["cycles"] for row in rows} for rows in (a, b))
    rows = [
        {"role": role, "edge": edge, "a": left.get((role, edge), 0.0), "b": right.get((role, edge), 0.0)}
        for role, edge in dict.fromkeys([*left, *right])
    ]
    return sorted(rows, key=lambda row: -abs(row["b"] - row["a"]))
