"""The coordinate search: a valley whose bottom is known, constants that go together, none below 0."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.model_lab import search
from tirx_attn.analysis.timeline.constants import BLACKWELL

STEPS = {("dilation",): 0.1, ("edge", "named"): 15.0, ("launch_us",): 1.0}


def test_the_bottom_of_a_valley():
    start = replace(BLACKWELL, dilation=1.0, edge=0.0, named=0.0, launch_us=1.0)

    def loss(constants):
        return abs(constants.dilation - 1.3) + abs(constants.edge - 52.5) + constants.launch_us

    found = search(loss, start, STEPS, 1 / 64, lambda _: None)
    assert (found.dilation, found.edge, found.named, found.launch_us) == pytest.approx((1.3, 52.5, 52.5, 0.0), abs=0.01)


def test_a_start_that_nothing_improves_stays():
    rounds = []
    assert search(lambda c: 0.0 if c == BLACKWELL else 1.0, BLACKWELL, STEPS, 0.25, rounds.append) == BLACKWELL
    assert len(rounds) == 3  # steps of 1, 1/2 and 1/4
