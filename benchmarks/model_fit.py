"""Fits the model's Blackwell constants to published B200 times up to S = 4096 and shows what it predicts for the rest.

python -m benchmarks.model_fit            # tables with the committed constants
python -m benchmarks.model_fit --fit      # fits them anew first, some minutes
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.model_data import FA4, TIRX, Row, rows
from benchmarks.model_lab import Lab, search
from tirx_attn.analysis.timeline.constants import BLACKWELL, Constants

FITTED_LENGTH = 4096
STEPS: dict[tuple[str, ...], float] = {
    ("dilation",): 0.1,
    ("launch_us",): 1.0,
    ("cta_start",): 1000.0,
    ("clock_slope",): 0.02,
}
"""First steps of the search, by fitted constant."""

FINE = 1 / 16
"""The search ends when steps are this part of the first ones."""


@dataclass(frozen=True)
class Errors:
    """Model over measured, minus 1, of some rows."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the absolute errors."""
        return statistics.median(map(abs, self.values))

    @property
    def worst(self) -> float:
        return max(self.values, key=abs)

    def __str__(self) -> str:
        return f"{100 * self.median:.1f} / {100 * self.worst:+.1f}"


def errors(lab: Lab, constants: Constants, of: Iterable[Row]) -> Errors:
    """Errors of the TIRx kernel's rows."""
    return Errors(tuple(lab.time_us(r.plan(), TIRX[r.regime], constants) / r.tirx_us - 1 for r in of))


def split(of: list[Row]) -> tuple[list[Row], list[Row]]:
    """Rows that are fitted, and rows that are predicted."""
    return [r for r in of if r.s <= FITTED_LENGTH], [r for r in of if r.s > FITTED_LENGTH]


def fit(lab: Lab, of: list[Row], start: Constants = BLACKWELL, say: Callable[[str], None] = print) -> Constants:
    """Least squares of the rows' relative errors by coordinate search."""

    def loss(constants: Constants) -> float:
        return math.sqrt(sum(value**2 for value in errors(lab, constants, of).values))

    return search(loss, start, STEPS, FINE, say)


def table(lab: Lab, constants: Constants, of: list[Row]) -> list[str]:
    """Markdown table of all rows."""
    lines = [
        "| S | K/V heads | mask | measured µs | states differ by | model µs | error |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for r in of:
        model = lab.time_us(r.plan(), TIRX[r.regime], constants)
        mask = "causal" if r.causal else "none"
        lines.append(
            f"| {r.s} | {r.kv_heads} | {mask} | {r.tirx_us:.1f} | {100 * r.spread:.1f} % | {model:.1f} "
            f"| {100 * (model / r.tirx_us - 1):+.1f} % |"
        )
    return lines


def fa4_errors(lab: Lab, constants: Constants, of: Iterable[Row]) -> Errors:
    """Errors of flash-attn-4's rows with its machine code, to which nothing was fitted; its split of P is 96 + 32."""
    return Errors(tuple(lab.time_us(r.plan(pv_split=(96, 32)), FA4[r.regime], constants) / r.fa4_us - 1 for r in of))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="fit anew, from the committed constants")
    arguments = parser.parse_args()
    from benchmarks.model_changes import change_table

    lab = Lab(lambda text: print(text, file=sys.stderr, flush=True))
    published = rows()
    fitted, predicted = split(published)
    constants = (
        fit(lab, fitted, say=lambda text: print(text, file=sys.stderr, flush=True)) if arguments.fit else BLACKWELL
    )
    print(", ".join(f"{name} = {getattr(constants, name):.4g}" for name in constants.fitted), "\n")
    ours, theirs = ([str(found(lab, constants, of)) for of in (fitted, predicted)] for found in (errors, fa4_errors))
    print(f"Median / worst error in %: fitted rows {ours[0]}, S = 8192 {ours[1]}.")
    print(f"FA4, to which nothing was fitted: {theirs[0]}, S = 8192 {theirs[1]}.\n")
    print("\n".join(table(lab, constants, published)), "\n")
    print("\n".join(change_table(lab, constants)))


if __name__ == "__main__":
    main()
