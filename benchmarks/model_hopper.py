"""The model on the Hopper kernel: fitted to clock cycles of an H200, and what it predicted of further changes.

    python -m benchmarks.model_hopper            # tables with the committed constants
    python -m benchmarks.model_hopper --fit      # fits them anew first, some minutes

Builds each variant, so that its own machine code counts. B·S = 16k tokens, fp16. Fitted are the rows of head size 128.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.model_cycles import is_right
from benchmarks.model_lab import Lab, search
from benchmarks.model_variants import SECOND_ROUND, Seen, Shape, seen_cycles, words
from tirx_attn.analysis.timeline.constants import HOPPER, Constants
from tirx_attn.analysis.timeline.figures import CodeFigures
from tirx_attn.analysis.timeline.measured import figures_of
from tirx_attn.analysis.timeline.tasks import Tasks
from tirx_attn.hopper.plan import HopperPlan
from tirx_attn.runtime import build

STEPS: dict[tuple[str, ...], float] = {
    ("dilation",): 0.05, ("mma_share",): 0.01, ("edge",): 20.0, ("tma_latency",): 100.0, ("query_latency",): 300.0,
}  # fmt: skip
"""First steps of the search, by constants that go together."""


FITTED_HEAD_SIZE = 128
LEVEL_TOLERANCE = 1.5
"""How far off in % the cycles of a launch may be, to weigh as much as a change that is off by its own tolerance."""


def tolerance(percent: float) -> float:
    """How far off a change may be, in % of the cycles."""
    return 0.5 + 0.3 * abs(percent)


class HopperLab:
    """A Lab with the machine code of each variant."""

    def __init__(self, note: Callable[[str], None]):
        self.lab, self._note = Lab(note), note
        self._figures: dict[str, CodeFigures] = {}

    def figures(self, plan: HopperPlan) -> CodeFigures:
        """Figures of a plan's kernel for all lengths."""
        kernel = Tasks(plan).open_plan()
        key = f"{kernel.config} {kernel.schedule}"
        if key not in self._figures:
            self._note(f"building {kernel.schedule}")
            made = build(kernel.config, schedule=kernel.schedule, arch="sm_90a")
            self._figures[key] = replace(figures_of(made.cubin, plan.config.D), source=key)
        return self._figures[key]

    def cycles(self, plan: HopperPlan, constants: Constants) -> float:
        """Cycles of a launch."""
        return self.lab.cycles(plan, self.figures(plan), constants)

    def change(self, shape: Shape, changes: dict[str, Any], constants: Constants) -> float:
        """Cycles of a changed kernel over those of the tuned one, in % more."""
        new, old = (self.cycles(plan, constants) for plan in (shape.plan(changes), shape.plan()))
        return 100 * (new / old - 1)

    def level(self, seen: Seen, constants: Constants) -> float:
        """How far off the cycles of a row's tuned kernel are, in %."""
        return 100 * (self.cycles(seen.shape.plan(), constants) / median(seen.tuned) - 1)


def fit(lab: HopperLab, start: Constants = HOPPER, say: Callable[[str], None] = print) -> Constants:
    """Least sum of absolute errors of levels and changes, each in units of what it may be off, by coordinate search."""
    rows = [seen for seen in seen_cycles() if seen.shape.d == FITTED_HEAD_SIZE]
    levels = list({seen.shape: seen for seen in rows}.values())

    def loss(constants: Constants) -> float:
        off = sum(abs(lab.level(seen, constants)) / LEVEL_TOLERANCE for seen in levels)
        for seen in rows:
            error = lab.change(seen.shape, seen.changes, constants) - seen.percent
            off += abs(error) / tolerance(seen.percent)
        return off

    return search(loss, start, STEPS, 0.5, say)


def tables(lab: HopperLab, constants: Constants) -> Iterator[str]:
    """Markdown: what was seen, and the predictions beside what came of them."""
    yield "| seen before | cycles, measured | change, measured | model, level | model, change |"
    yield "|---|---:|---:|---:|---:|"
    for seen in sorted(seen_cycles(), key=lambda each: (-each.shape.d, each.shape.causal, each.shape.s)):
        level, change = lab.level(seen, constants), lab.change(seen.shape, seen.changes, constants)
        measured = f"{median(seen.tuned):,.0f} | {seen.percent:+.1f} %"
        yield f"| {seen.shape}: {words(seen.changes)} | {measured} | {level:+.1f} % | {change:+.1f} % |"
    yield ""
    yield "| change to the tuned kernel | cycles, model | cycles, measured afterwards | right |"
    yield "|---|---:|---:|---|"
    for seen in seen_cycles(SECOND_ROUND):
        change = lab.change(seen.shape, seen.changes, constants)
        right = "yes" if is_right(change, seen.percent) else "no"
        yield f"| {seen.shape}: {words(seen.changes)} | {change:+.1f} % | {seen.percent:+.1f} % | {right} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="fit anew, from the committed constants")
    arguments = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    lab = HopperLab(say)
    constants = fit(lab, say=say) if arguments.fit else HOPPER
    print(", ".join(f"{name} = {getattr(constants, name):.4g}" for name in constants.fitted), "\n")
    for line in tables(lab, constants):
        print(line)


if __name__ == "__main__":
    main()
