"""The table of each study as docs/studies.md has it. Needs neither matplotlib nor torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.studies.measured import THRESHOLDS, Record
from benchmarks.studies.rows import (
    Row,
    clock_rows,
    emulation_rows,
    gaussian_rows,
    margin_rows,
    model_rows,
    order_rows,
    polynomial_rows,
    ratio_rows,
    traffic_rows,
    wave_rows,
)


@dataclass(frozen=True)
class Study:
    """One table.

    Attributes:
        name: of the table in numbers.json and in the marks around it on the page.
        columns: heading, key of the row, and format of the value; a value that is text or missing stands as it is.
        rows: the numbers, from the record of the measured study.
    """

    name: str
    columns: tuple[tuple[str, str, str], ...]
    rows: Callable[[Record], list[Row]]


_SKIPPED = tuple((f"{who}, t = {t}", f"{who}_{t}", "{:.1f}") for who in ("rows", "warps") for t in THRESHOLDS)

STUDIES = (
    Study(
        "traffic",
        (
            ("N", "n", "{:,}"),
            ("standard, MB", "standard", "{:,.1f}"),
            ("walk, MB", "tiled", "{:,.1f}"),
            ("N²d²/M, MB", "bound", "{:,.1f}"),
            ("once, MB", "single", "{:,.1f}"),
            ("standard, flop/B", "standard_flop", "{:,.0f}"),
            ("walk, flop/B", "tiled_flop", "{:,.0f}"),
            ("once, flop/B", "single_flop", "{:,.0f}"),
        ),
        traffic_rows,
    ),
    Study(
        "clocks",
        (
            ("GPU", "gpu", ""),
            ("queries x keys", "tile", ""),
            ("D", "d", "{}"),
            ("MMA", "mma", "{:,.0f}"),
            ("exp", "exp", "{:,.0f}"),
            ("SMEM", "smem", "{:,.0f}"),
            ("FMA", "fma", "{:,.0f}"),
            ("binds", "binds", ""),
        ),
        clock_rows,
    ),
    Study(
        "ratio",
        (
            ("D", "d", "{}"),
            ("B200", "B200", "{:.2f}"),
            ("B300", "B300", "{:.2f}"),
            ("H100, H200", "H200", "{:.2f}"),
            ("B200 emulates, %", "B200_emulated", "{:.1f}"),
            ("B300 emulates, %", "B300_emulated", "{:.1f}"),
        ),
        ratio_rows,
    ),
    Study(
        "waves",
        (
            ("S", "s", "{:,}"),
            *(
                (f"{name}: {what}", f"{name}_{key}", form)
                for name in ("B200", "H200")
                for what, key, form in (
                    ("tasks", "tasks", "{:,}"),
                    ("waves", "waves", "{}"),
                    ("busy, %", "busy", "{:.1f}"),
                )
            ),
        ),
        wave_rows,
    ),
    Study(
        "order",
        (
            ("on", "gpu", ""),
            ("tasks", "shape", ""),
            ("least", "least", "{:,.1f}"),
            ("arrival", "arrival", "{:,}"),
            ("LPT, fixed stride", "strided", "{:,}"),
            ("LPT", "longest_first", "{:,}"),
            ("the kernel's", "launched", "{:,}"),
            ("busy, %", "busy", "{:.1f}"),
        ),
        order_rows,
    ),
    Study(
        "polynomial",
        (
            ("degree", "degree", "{}"),
            ("fp64", "exact", "{:.1e}"),
            ("fp32", "fp32", "{:.1e}"),
            ("fp16", "fp16", "{:.2e}"),
            ("bf16", "bf16", "{:.2e}"),
            ("fp16 as exact, %", "fp16_same", "{:.1f}"),
            ("bf16 as exact, %", "bf16_same", "{:.1f}"),
            ("FMA operations", "fmas", "{}"),
        ),
        polynomial_rows,
    ),
    Study(
        "margin",
        (
            ("P, V", "dtype", ""),
            ("threshold", "threshold", "{}"),
            ("largest weight", "largest_p", "{:,.0f}"),
            ("bits above in P", "p_bits", "{:.4f}"),
            ("bits above in row_sum", "row_sum_bits", "{:.1f}"),
            ("O fits up to V of", "safe_v", "{:.3g}"),
            ("fits", "fits", ""),
        ),
        margin_rows,
    ),
    Study("gaussian", (("deviation of the logits", "deviation", "{:g}"), *_SKIPPED), gaussian_rows),
    Study("model", (("layer, head", "head", ""), ("deviation", "deviation", "{:.2f}"), *_SKIPPED), model_rows),
    Study(
        "emulation",
        (
            ("S", "s", "{:,}"),
            ("full: steady blocks, %", "full_steady", "{:.1f}"),
            ("full: emulated, %", "full", "{:.1f}"),
            ("causal: steady blocks, %", "causal_steady", "{:.1f}"),
            ("causal: emulated, %", "causal", "{:.1f}"),
        ),
        emulation_rows,
    ),
)


def markdown(study: Study, record: Record) -> str:
    """The table of a study."""
    lines = [[heading for heading, _, _ in study.columns], ["---:" if form else "---" for *_, form in study.columns]]
    for row in study.rows(record):
        lines.append([_cell(row.get(key), form) for _, key, form in study.columns])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any, form: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else form.format(value)
