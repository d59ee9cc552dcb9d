"""The results as pictures: TFLOP/s of every implementation, and ours over the fastest peer. Needs matplotlib."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from benchmarks.document import Document, groups_in, peers_in
from benchmarks.peers import LABELS
from benchmarks.report import KINDS, ratio, value
from tirx_attn.runtime.files import write_atomic


def bars(document: Document, group: str, kind: str) -> dict[str, list[float]]:
    """For each implementation that ran in a group the TFLOP/s of its shapes; 0 where there is none."""
    entries = [entry for entry in document["shapes"] if entry["group"] == group]
    found = {name: [value(entry, name, kind) or 0.0 for entry in entries] for name in peers_in(document, LABELS)}
    return {name: heights for name, heights in found.items() if any(heights)}


def common_words(names: list[str]) -> tuple[list[str], list[str]]:
    """The words that all names share, and each name without them."""
    words = [name.split("_") for name in names]
    shared = [word for word in words[0] if len(words) > 1 and all(word in others for others in words)]
    return shared, [" ".join(word for word in each if word not in shared) for each in words]


def figure(document: Document, group: str, kind: str = "steady") -> Any:
    """A matplotlib figure: bars of TFLOP/s above, ours over the fastest peer below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    entries = [entry for entry in document["shapes"] if entry["group"] == group]
    series = bars(document, group, kind)
    drawing = Figure(figsize=(max(6.5, 0.9 * len(entries) + 2), 8), layout="constrained")
    FigureCanvasAgg(drawing)
    above, below = drawing.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    places = list(range(len(entries)))
    width = 0.84 / max(1, len(series))
    for index, (name, heights) in enumerate(series.items()):
        offset = (index - (len(series) - 1) / 2) * width
        above.bar([place + offset for place in places], heights, width, label=LABELS[name])
    above.set_ylabel("TFLOP/s")
    shared, labels = common_words([entry["name"] for entry in entries])
    above.set_title(", ".join([group, *filter(None, [" ".join(shared)]), KINDS[kind]]), fontsize="medium")
    drawing.legend(ncols=len(series), fontsize="small", loc="outside upper center")
    found = [ratio(entry, kind) for entry in entries]
    ratios = [one[0] if one else 0.0 for one in found]
    drawn = below.bar(places, ratios, 0.5, color="0.4")
    below.bar_label(drawn, [f"{one:.2f}" if one else "" for one in ratios], fontsize="small", padding=2)
    below.axhline(1.0, color="black", linewidth=0.8, zorder=0)
    measured = [one for one in ratios if one] or [1.0]
    below.set_ylim(min(0.9, min(measured) - 0.05), max(measured) + 0.1)
    below.set_ylabel("ours / best peer")
    below.set_xlim(-0.6, len(entries) - 0.4)
    below.set_xticks(places, labels, rotation=30, ha="right", fontsize="small")
    return drawing


def write_plots(document: Document, folder: Path) -> list[Path]:
    """Write one `GROUP.png` for each group into `folder`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    written = []
    for group in groups_in(document):
        data = io.BytesIO()
        figure(document, group).savefig(data, format="png", dpi=120)
        written.append(write_atomic(folder / f"{group}.png", data.getvalue()))
    return written
