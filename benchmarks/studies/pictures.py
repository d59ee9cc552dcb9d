"""The pictures of docs/studies.md, from the rows of the tables. Needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies import rows
from benchmarks.studies.measured import THRESHOLDS, Record
from tirx_attn.analysis.budget import exp_to_mma
from tirx_attn.analysis.exp2 import rounding_error
from tirx_attn.analysis.waves import Waves
from tirx_attn.runtime.files import write_atomic
from tirx_attn.targets import B200, B300, H200

DPI = 110
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#6d6d6d")
"""Okabe and Ito's palette, which people who do not see all colours can tell apart."""


def figure(width: float, height: float, panels: int = 1) -> tuple[Any, list[Any]]:
    """A figure on white, in inches, and its axes side by side. White is drawn, so that a dark page shows it as well."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(drawing)
    axes = list(np.atleast_1d(drawing.subplots(1, panels)))
    for each in axes:
        each.set_prop_cycle(color=COLORS)
        each.grid(color="0.9", linewidth=0.7)
        each.set_axisbelow(True)
        each.spines[["top", "right"]].set_visible(False)
    return drawing, axes


def traffic(record: Record) -> Any:
    """Bytes, and operations per byte, against the length."""
    made = rows.traffic_rows(record)
    drawing, (left, right) = figure(9, 3.8, 2)
    n = [row["n"] for row in made]
    names = {"standard": "S and P in global memory", "tiled": "the walk, no L2", "single": "every tensor once"}
    for way, name in names.items():
        left.plot(n, [row[way] for row in made], "o-", label=name)
        right.plot(n, [row[f"{way}_flop"] for row in made], "o-")
    left.plot(n, [row["bound"] for row in made], "--", color=COLORS[4], label="N²d²/M, M = 256 d")
    left.set_ylabel("traffic of one head, MB")
    right.set_ylabel("operations per byte")
    right.axhline(B200.balance, color="black", linewidth=0.8)
    right.axhline(H200.balance, color="black", linewidth=0.8, linestyle=":")
    right.text(n[-1], B200.balance * 1.12, f"B200 balance, {B200.balance:.0f}", ha="right", fontsize=8)
    right.text(n[-1], H200.balance / 1.12, f"H200 balance, {H200.balance:.0f}", ha="right", va="top", fontsize=8)
    for each in (left, right):
        each.set_xscale("log", base=2)
        each.set_yscale("log")
        each.set_xticks(n, [_short(length) for length in n])
        each.set_xlabel("queries and keys N (d = 128, fp16, full)")
    left.legend(fontsize=8)
    return drawing


def clocks(record: Record) -> Any:
    """Clocks by unit for each GPU, tile and head size."""
    made = rows.clock_rows(record)
    drawing, (axes,) = figure(9, 3.8)
    names = {"mma": "MMA", "exp": "exponentials", "smem": "shared memory", "fma": "FMA pipe"}
    for index, (unit, name) in enumerate(names.items()):
        places = [place + 0.2 * (index - 1.5) for place in range(len(made))]
        axes.bar(places, [row[unit] for row in made], 0.19, label=name)
    axes.set_xticks(range(len(made)), [f"{row['gpu']}\n{row['tile']}\nD = {row['d']}" for row in made], fontsize=8)
    axes.set_ylabel("clocks of one SM per key block")
    axes.legend(ncols=4, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.grid(visible=False, axis="x")
    return drawing


def ratio(_: Record) -> Any:
    """exp : MMA against the head size."""
    drawing, (axes,) = figure(6, 3.6)
    d = np.arange(32, 257, 4)
    # B300 and H200 have the same ratio: twice the exponentials, or half the products.
    lines = {"B200": (B200, "-"), "B300": (B300, "-"), "H100, H200": (H200, "--")}
    for name, (target, style) in lines.items():
        axes.plot(d, [exp_to_mma(target, int(each)) for each in d], style, label=name, linewidth=2)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.text(256, 1.06, "above: the exponentials take longer", ha="right", fontsize=8)
    axes.set_xticks([32, 64, 96, 128, 192, 256])
    axes.set_xlabel("head size D, elements")
    axes.set_ylabel("exponentials : products, in clocks")
    axes.legend(fontsize=8)
    return drawing


def waves(record: Record) -> Any:
    """Share of busy SMs against the number of equal tasks."""
    from matplotlib.patheffects import withStroke

    drawing, (axes,) = figure(8, 3.6)
    tasks = np.arange(1, 1101)
    for index, target in enumerate((B200, H200)):
        busy = [100 * Waves(int(count), target.sms).efficiency for count in tasks]
        axes.plot(tasks, busy, linewidth=1.2, label=f"{target.name}, {target.sms} SMs", color=COLORS[index])
    made = rows.wave_rows(record)
    axes.plot(
        [row["B200_tasks"] for row in made],
        [row["B200_busy"] for row in made],
        "o",
        color="black",
        label="one sequence of 16 heads, B200",
    )
    for row in made:
        label = {"text": f"S = {_short(row['s'])}", "xy": (row["B200_tasks"], row["B200_busy"]), "fontsize": 8}
        # Beside the point, but for the one beneath a peak.
        high = row["B200_busy"] > 95
        place = {"xytext": (0, 6), "ha": "center"} if high else {"xytext": (6, -3), "ha": "left", "va": "top"}
        axes.annotate(
            **label, **place, textcoords="offset points", path_effects=[withStroke(linewidth=3, foreground="w")]
        )
    axes.set_ylim(0, 110)
    axes.set_xlabel("equal tasks of a launch")
    axes.set_ylabel("SMs busy, % of the time")
    axes.legend(fontsize=8, loc="lower right")
    return drawing


def order(record: Record) -> Any:
    """Ends of causal launches over the least."""
    made = rows.order_rows(record)
    drawing, (axes,) = figure(9, 3.8)
    names = {
        "arrival": "arrival",
        "strided": "LPT, fixed stride",
        "longest_first": "LPT",
        "launched": "the kernel's order",
    }
    for index, (key, name) in enumerate(names.items()):
        found = [(place, row[key] / row["least"]) for place, row in enumerate(made) if row[key]]
        places = [place + 0.2 * (index - 1.5) for place, _ in found]
        axes.bar(places, [each for _, each in found], 0.19, label=name)
    axes.set_xticks(range(len(made)), [f"{row['gpu']}\n{_short(row['s'])}" for row in made], fontsize=8)
    axes.set_xlabel("GPU, queries and keys S (16 heads, 16k tokens)")
    axes.set_ylim(0.95, None)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_ylabel("end of the launch / least")
    axes.legend(ncols=4, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.grid(visible=False, axis="x")
    return drawing


def polynomial(record: Record) -> Any:
    """Largest relative error against the degree."""
    made = rows.polynomial_rows(record)
    drawing, (axes,) = figure(6.5, 3.8)
    degrees = [row["degree"] for row in made]
    names = {"exact": "fp64", "fp32": "fp32", "fp16": "then fp16", "bf16": "then bf16"}
    for (key, name), style in zip(names.items(), ("o--", "o-", "s-", "^-"), strict=True):
        axes.plot(degrees, [row[key] for row in made], style, label=name)
    for dtype, short in (("float16", "fp16"), ("bfloat16", "bf16")):
        height = rounding_error(dtype)
        axes.axhline(height, color="black", linewidth=0.7, linestyle=":")
        axes.text(5.5, height * 1.45, f"rounding to {short}", ha="center", fontsize=8)
    axes.set_yscale("log")
    axes.set_xticks(degrees)
    axes.set_xlabel("degree of the polynomial for 2^f, f in [0, 1)")
    axes.set_ylabel("largest relative error")
    axes.legend(fontsize=8, loc="lower left", title="evaluated in", title_fontsize=8)
    return drawing


def margin(record: Record) -> Any:
    """Bits of headroom against the threshold."""
    made = rows.margin_rows(record)
    drawing, (axes,) = figure(6.5, 3.6)
    lines = (
        ("weight of P in bf16", "bf16", "p_bits", "^-"),
        ("row_sum in fp32, 2²⁰ keys", "fp16", "row_sum_bits", "o-"),
        ("weight of P in fp16", "fp16", "p_bits", "s-"),
    )
    for name, dtype, key, style in lines:
        found = [(row["threshold"], row[key]) for row in made if row["dtype"] == dtype]
        axes.plot(*zip(*found, strict=True), style, label=name)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.axvline(8, color="black", linewidth=0.8, linestyle=":")
    axes.text(8.2, 62, "the kernel's\nthreshold", fontsize=8, va="center")
    axes.set_xticks(rows.MARGIN_THRESHOLDS)
    axes.set_xlabel("rescale threshold, base-2 exponents")
    axes.set_ylabel("bits up to overflow")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(0.0, 0.42))
    return drawing


def gaussian(record: Record) -> Any:
    """Skipped rescales against the deviation of the logits, by row and by warp."""
    made = rows.gaussian_rows(record)
    drawing, axes = figure(8.5, 3.6, 2)
    titles = {"rows": "a row's reference stays", "warps": "no row of a warp moves"}
    for each, (who, title) in zip(axes, titles.items(), strict=True):
        for threshold in THRESHOLDS:
            found = [row[f"{who}_{threshold}"] for row in made]
            each.plot([row["deviation"] for row in made], found, "o-", label=f"threshold {threshold}")
        each.set_xlabel("standard deviation of the logits")
        each.set_title(title, fontsize=9)
        each.set_ylim(0, 104)
    axes[0].set_ylabel("blocks without a rescale, %")
    axes[0].legend(fontsize=8, loc="lower left")
    return drawing


def model(record: Record) -> Any:
    """Warps' rescales of the trained model's heads, by threshold."""
    made = rows.model_rows(record)
    drawing, (axes,) = figure(8, 3.6)
    for index, threshold in enumerate(THRESHOLDS):
        places = [place + 0.2 * (index - 1.5) for place in range(len(made))]
        left = [100 - row[f"warps_{threshold}"] for row in made]
        axes.bar(places, left, 0.19, label=f"threshold {threshold}", bottom=0)
    axes.set_yscale("log")
    axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.set_xticks(range(len(made)), [row["head"] for row in made])
    axes.set_xlabel("layer, head of the trained model")
    axes.set_ylabel("warps that rescale, % of blocks")
    axes.legend(ncols=4, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.grid(visible=False, axis="x")
    return drawing


def emulation(record: Record) -> Any:
    """Share of emulated exponentials against the length."""
    made = rows.emulation_rows(record)
    drawing, (axes,) = figure(6, 3.4)
    lengths = [row["s"] for row in made]
    for index, (name, steady, at) in enumerate((("full", 16, "right"), ("causal", 24, "left"))):
        axes.plot(lengths, [row[name] for row in made], "o-", label=name, color=COLORS[index])
        axes.axhline(100 * steady / 128, color=COLORS[index], linewidth=0.8, linestyle=":")
        text, place = f"{steady} of 128 in a steady block", lengths[0 if at == "left" else -1]
        axes.text(place, 100 * steady / 128 + 0.45, text, fontsize=8, color=COLORS[index], ha=at)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [_short(s) for s in lengths])
    axes.set_ylim(0, 21)
    axes.set_xlabel("queries and keys S")
    axes.set_ylabel("exponentials emulated, %")
    axes.legend(fontsize=8, loc="lower right")
    return drawing


PICTURES: dict[str, Callable[[Record], Any]] = {
    made.__name__: made
    for made in (traffic, clocks, ratio, waves, order, polynomial, margin, gaussian, model, emulation)
}
"""Study -> its picture."""


def write_pictures(record: Record, folder: Path) -> list[Path]:
    """Write one `STUDY.png` for each study into `folder`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    written = []
    for name, draw in PICTURES.items():
        data = io.BytesIO()
        draw(record).savefig(data, format="png", dpi=DPI, metadata={"Software": None})
        written.append(write_atomic(folder / f"{name}.png", data.getvalue()))
    return written


def _short(length: int | None) -> str:
    return "example" if length is None else f"{length / 1024:g}k"
