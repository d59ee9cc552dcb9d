"""Plays and replays that a fit does over and over, kept in memory; and the search that fits constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tirx_attn.analysis.timeline.constants import Constants
from tirx_attn.analysis.timeline.durations import Durations, Played, durations, play
from tirx_attn.analysis.timeline.figures import CodeFigures
from tirx_attn.analysis.timeline.model import launch_cycles, launch_time
from tirx_attn.analysis.timeline.tasks import Tasks
from tirx_attn.family import AnyPlan, build_planned


class Lab:
    """Traces by kernel and sample, durations by trace, figures and machine.

    Args:
        note: told of each kernel that is traced, which takes seconds.
    """

    def __init__(self, note: Callable[[str], None] = print) -> None:
        self._note = note
        self._funcs: dict[Any, Any] = {}
        self._played: dict[Any, tuple[Played, ...]] = {}
        self._durations: dict[Any, Durations] = {}

    def played(self, plan: AnyPlan) -> tuple[Played, ...]:
        """Plays of a plan's samples."""
        tasks = Tasks(plan)
        kernel = tasks.open_plan()
        # The order of tasks is no part of the plays.
        identity = (kernel.config, repr(kernel.schedule).partition("l2_budget")[0], plan.target.name)
        key = (identity, tuple(tasks.samples()))
        if key not in self._played:
            if identity not in self._funcs:
                self._note(f"tracing {kernel.schedule}")
                self._funcs[identity] = build_planned(kernel)
            self._played[key] = play(tasks, self._funcs[identity])
        return self._played[key]

    def durations(self, plan: AnyPlan, figures: CodeFigures, constants: Constants) -> Durations:
        """Cycles of a plan's tasks."""
        played, machine = self.played(plan), constants.machine(plan.target)
        key = (id(played), figures.source, machine)
        if key not in self._durations:
            self._durations[key] = durations(played, figures, machine)
        return self._durations[key]

    def cycles(self, plan: AnyPlan, figures: CodeFigures, constants: Constants) -> float:
        """Cycles of a launch."""
        return launch_cycles(Tasks(plan), self.durations(plan, figures, constants), constants.cta_start)

    def time_us(self, plan: AnyPlan, figures: CodeFigures, constants: Constants) -> float:
        """Time of a launch in µs."""
        return launch_time(plan, self.cycles(plan, figures, constants), constants)[0]


def search(
    loss: Callable[[Constants], float],
    start: Constants,
    steps: Mapping[tuple[str, ...], float],
    finest: float,
    say: Callable[[str], None] = print,
) -> Constants:
    """Constants of least loss by coordinate search, none below 0.

    Args:
        loss: of a set of constants.
        start: where the search begins.
        steps: names of constants that go together -> first step.
        finest: the search ends when steps are smaller than this part of the first ones.
        say: told of each round.
    """
    best, lowest, scale = start, loss(start), 1.0
    while scale >= finest:
        improved = False
        for names, step in steps.items():
            for sign in (1, -1):
                value = max(0.0, getattr(best, names[0]) + sign * scale * step)
                other = replace(best, **dict.fromkeys(names, value))
                if other != best and (found := loss(other)) < lowest - 1e-9:
                    best, lowest, improved = other, found, True
        values = ", ".join(f"{name} {getattr(best, name):.4g}" for names in steps for name in names)
        say(f"step {scale:.3g}: {values}; loss {lowest:.4f}")
        scale = scale if improved else scale / 2
    return best
