"""The results as tables, in plain text and in Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.document import Document, groups_in, peers_in
from benchmarks.peers import LABELS, OURS, PEERS

KINDS = {
    "steady": "steady state: back-to-back calls",
    "cool": "from cool: two calls after an idle time",
}
LEGEND = "Cells: TFLOP/s over the visible (query, key) pairs @ SM clock in MHz, power in W; medians. — : not measured."
ERROR_LENGTH = 240


def value(entry: Mapping[str, Any], peer: str, kind: str) -> float | None:
    """TFLOP/s of `peer`, or None if it has none. `kind` is a key of KINDS."""
    found = entry["results"].get(peer, {}).get(kind)
    return None if found is None else found["tflops"]


def ratio(entry: Mapping[str, Any], kind: str) -> tuple[float, str] | None:
    """Ours over the fastest peer, and that peer's name; None if one of the two is missing.

    Our own kernel without groups takes a peer's place where there is none.
    """
    ours = value(entry, OURS, kind)
    others = {name: value(entry, name, kind) for name in entry["results"] if name != OURS}
    found = {name: tflops for name, tflops in others.items() if tflops is not None}
    measured = {name: tflops for name, tflops in found.items() if name in PEERS} or found
    if ours is None or not measured:
        return None
    best = max(measured, key=lambda name: measured[name])
    return ours / measured[best], best


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers, one at least."""
    return math.exp(math.fsum(math.log(one) for one in values) / len(values))


def rows(document: Document, group: str, kind: str) -> list[list[str]]:
    """Header and one row per shape of a group; the last column is ours over the fastest peer."""
    peers = peers_in(document, LABELS)
    table = [["shape", *peers, "ours / best peer"]]
    for entry in document["shapes"]:
        if entry["group"] == group:
            found = ratio(entry, kind)
            last = "—" if found is None else f"{found[0]:.3f} ({found[1]})"
            table.append([entry["name"], *(_cell(entry, peer, kind) for peer in peers), last])
    return table


def summary(document: Document, group: str, kind: str) -> str:
    """One line on the ratios of a group."""
    entries = [entry for entry in document["shapes"] if entry["group"] == group]
    found = [one for one in (ratio(entry, kind) for entry in entries) if one is not None]
    if not found:
        return "ours / best peer: none"
    values = [one[0] for one in found]
    return (
        f"ours / best peer: geometric mean {geometric_mean(values):.3f}, lowest {min(values):.3f}, "
        f"highest {max(values):.3f}, over {len(values)} of {len(entries)} shapes"
    )


def text(document: Document) -> str:
    """The whole report in plain text."""
    parts = [LEGEND]
    for group, kind in _tables(document):
        table = _aligned(rows(document, group, kind))
        parts.append(f"{group}, {KINDS[kind]}\n{table}\n{summary(document, group, kind)}")
    parts += ["\n".join(lines) for lines in (_remarks(document), _runs(document)) if lines]
    return "\n\n".join(parts) + "\n"


def markdown(document: Document) -> str:
    """The whole report in Markdown."""
    parts = ["# Speeds", LEGEND]
    for group, kind in _tables(document):
        table = rows(document, group, kind)
        lines = [table[0], ["---", *["---:"] * (len(table[0]) - 1)], *table[1:]]
        printed = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts += [f"## {group}, {KINDS[kind]}", printed, summary(document, group, kind)]
    for title, remarks in (("Remarks", _remarks(document)), ("Runs", _runs(document))):
        if remarks:
            parts += [f"## {title}", "\n".join(f"- {line}" for line in remarks)]
    return "\n\n".join(parts) + "\n"


def _tables(document: Document) -> list[tuple[str, str]]:
    measured = [kind for kind in KINDS if any(kind in r for e in document["shapes"] for r in e["results"].values())]
    return [(group, kind) for group in groups_in(document) for kind in measured or ["steady"]]


def _cell(entry: Mapping[str, Any], peer: str, kind: str) -> str:
    result = entry["results"].get(peer, {})
    if "error" in result:
        return "failed"
    if kind not in result:
        return "—"
    found = result[kind]
    time = f" ({found['ms'] * 1e3:.1f} µs)" if entry["group"] == "information" else ""
    return f"{_number(found['tflops'])}{time} @{found['sm_mhz']:.0f} {found['watts']:.0f}W"


def _number(tflops: float) -> str:
    return f"{tflops:.0f}" if tflops >= 100 else f"{tflops:.3g}"


def _aligned(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    lines = []
    for line in table:
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        lines.append("  ".join([line[0].ljust(widths[0]), *cells[1:]]).rstrip())
    return "\n".join(lines)


def _remarks(document: Document) -> list[str]:
    lines = [f"{name}: {LABELS[name]}" for name in peers_in(document, LABELS)]
    for name in peers_in(document, LABELS):
        results = [entry["results"][name] for entry in document["shapes"] if name in entry["results"]]
        differences = [one["difference"] for one in results if "difference" in one]
        if differences:
            lines.append(f"{name}: largest difference from fp32 attention {max(differences):.2g}")
        lines += [f"{name}: {note}" for note in sorted({one["note"] for one in results if one.get("note")})]
    for entry in document["shapes"]:
        for name, one in entry["results"].items():
            if "error" in one:
                message = " ".join(one["error"].split())
                lines.append(f"failed: {entry['name']}, {name}: {message[:ERROR_LENGTH]}")
    return lines


def _runs(document: Document) -> list[str]:
    lines = []
    for one in document["runs"]:
        gpu = one["gpu"]
        packages = ", ".join(f"{name} {version}" for name, version in one["versions"].items())
        lines.append(
            f"{one['date']}, commit {one['commit']}, {gpu['name']} ({gpu['uuid']}), driver {gpu['driver']}, "
            f"{packages}; {' '.join(one['command'])}"
        )
    return lines
