"""The model on the Hopper kernel: fitted to what an H200 showed, and what it predicts of changes, in clock cycles.

    python -m benchmarks.model_hopper            # tables with the committed constants
    python -m benchmarks.model_hopper --fit      # fits them anew first, some minutes

Builds each variant, so that its own machine code counts. Figures are for 16 heads, B·S = 16k tokens, fp16.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.model_lab import Lab, search
from benchmarks.model_variants import NO_TURNS, ONE_Q, PREDICTED, TWO, Shape, words
from tirx_attn.analysis.timeline.constants import HOPPER, Constants
from tirx_attn.analysis.timeline.figures import CodeFigures
from tirx_attn.analysis.timeline.measured import figures_of
from tirx_attn.analysis.timeline.tasks import Tasks
from tirx_attn.hopper.plan import HopperPlan
from tirx_attn.runtime import build

STEPS = {("dilation",): 0.1, ("edge", "named"): 15.0, ("fill",): 30.0, ("tma_latency",): 150.0}
"""First steps of the search, by constants that go together."""


@dataclass(frozen=True)
class Seen:
    """What an H200 showed before the model was there (docs/tuning.md, docs/gpu_runs.md).

    Attributes:
        shape, changes: what ran; without changes the tuned kernel.
        value: share of the tensor pipe in %, or how much longer the changed kernel took in %.
        tolerance: how far off the model may be, in the same unit: what the runs scatter by, and more where the card was
            at its power limit, so that its clock answered the change.
    """

    shape: Shape
    changes: dict[str, Any]
    value: float
    tolerance: float


SEEN = (
    Seen(Shape(16384, False, 128), {}, 79.6, 4.0),
    Seen(Shape(16384, True, 128), {}, 78.4, 4.0),
    Seen(Shape(16384, False, 64), {}, 57.6, 4.0),
    Seen(Shape(16384, False, 128), {"kv_stages": 3}, 0.5, 1.5),
    Seen(Shape(16384, False, 64), {"kv_stages": 8}, -0.5, 1.5),
    Seen(Shape(16384, True, 64), {"kv_stages": 8}, -0.5, 1.5),
    Seen(Shape(4096, False, 128), NO_TURNS, -1.6, 4.0),
    Seen(Shape(1024, False, 128), NO_TURNS, 10.0, 4.0),
    Seen(Shape(4096, True, 128), NO_TURNS, 11.8, 6.0),
    Seen(Shape(1024, True, 128), NO_TURNS, 4.9, 4.0),
    Seen(Shape(4096, False, 128), ONE_Q, 1.3, 3.0),
    Seen(Shape(1024, False, 128), ONE_Q, 11.8, 4.0),
    Seen(Shape(16384, False, 64), {**TWO, "kv_stages": 8}, 17.1, 5.0),
    Seen(Shape(1024, False, 64), {**TWO, "kv_stages": 8}, 8.1, 5.0),
    Seen(Shape(16384, False, 64), NO_TURNS, 2.8, 4.0),
)

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

    def tensor_share(self, plan: HopperPlan, constants: Constants) -> float:
        """Share of the launch in which the tensor pipe works, in %."""
        peak = plan.target.sms * plan.target.mma_flop_per_clock * self.cycles(plan, constants)
        return 100 * plan.config.flops / peak

    def change(self, shape: Shape, changes: dict[str, Any], constants: Constants) -> float:
        """Cycles of a changed kernel over those of the tuned one, in % more."""
        new, old = (self.cycles(plan, constants) for plan in (shape.plan(changes), shape.plan()))
        return 100 * (new / old - 1)

    def of(self, seen: Seen, constants: Constants) -> float:
        """The model's value of something seen."""
        if not seen.changes:
            return self.tensor_share(seen.shape.plan(), constants)
        return self.change(seen.shape, seen.changes, constants)


def fit(lab: HopperLab, start: Constants = HOPPER, say: Callable[[str], None] = print) -> Constants:
    """Least sum of what was seen's absolute errors, in units of its tolerance, by coordinate search."""

    def loss(constants: Constants) -> float:
        return sum(abs(lab.of(seen, constants) - seen.value) / seen.tolerance for seen in SEEN)

    return search(loss, start, STEPS, 0.1, say)


def tables(lab: HopperLab, constants: Constants) -> Iterator[str]:
    """Markdown: what was seen, and the predictions."""
    yield "| seen before | measured | model |"
    yield "|---|---:|---:|"
    for seen in SEEN:
        what = words(seen.changes) if seen.changes else "tensor pipe, % of cycles"
        unit = " %" if seen.changes else ""
        sign = "+" if seen.changes else ""
        yield f"| {seen.shape}: {what} | {seen.value:{sign}.1f}{unit} | {lab.of(seen, constants):{sign}.1f}{unit} |"
    yield ""
    yield "| change to the tuned kernel | cycles, model |"
    yield "|---|---:|"
    for shape, changes in PREDICTED:
        yield f"| {shape}: {words(changes)} | {lab.change(shape, changes, constants):+.1f} % |"


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
