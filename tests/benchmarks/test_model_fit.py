"""The bars of the timeline model: what it was fitted to, what it predicts, and the page that says so."""

from __future__ import annotations

import re
import statistics
from functools import cache
from pathlib import Path

import pytest

from benchmarks.model_changes import change_table, changes
from benchmarks.model_cycles import is_right
from benchmarks.model_data import rows
from benchmarks.model_fit import Errors, errors, fit, split, table
from benchmarks.model_hopper import HopperLab, tables
from benchmarks.model_lab import Lab
from benchmarks.model_variants import PREDICTED, SECOND_ROUND, seen_cycles, words
from tirx_attn.analysis.timeline.constants import BLACKWELL, HOPPER

PAGE = (Path(__file__).parents[2] / "docs" / "model.md").read_text()
MEDIAN, WORST, RIGHT, CAME_TRUE = 0.05, 0.10, 5, 4


@cache
def lab() -> Lab:
    return Lab(lambda text: None)


def cells(first: str) -> list[list[str]]:
    """Rows of the page's table whose first heading is that."""
    block = re.search(rf"^\| {first} \|.*\n\|[-:| ]+\n((?:\|.*\n?)+)", PAGE, re.MULTILINE)
    assert block is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in block[1].strip().splitlines()]


def test_published_rows():
    published = rows()
    assert len(published) == 32
    assert {(r.s, r.kv_heads, r.causal) for r in published} == {
        (s, kv, causal) for s in (1024, 2048, 4096, 8192) for kv in (32, 16, 8, 4) for causal in (False, True)
    }
    fitted, predicted = split(published)
    assert (len(fitted), len(predicted)) == (24, 8)
    for r in published:
        flops = 4 * 32 * r.s**2 * 128 / (2 if r.causal else 1)
        assert 300 < flops / r.tirx_us / 1e6 < 2250
    assert next(r.plan().tasks for r in published if r.s == 1024) == 128


def test_errors():
    found = Errors((0.01, -0.04, 0.02))
    assert (found.median, found.worst, str(found)) == (0.02, -0.04, "2.0 / -4.0")


def test_the_page_holds_the_bars():
    values = {(int(s), kv, mask): float(error.split()[0]) / 100 for s, kv, mask, *_, error in cells("S")}
    predicted = [abs(value) for (s, *_), value in values.items() if s == 8192]
    assert len(values) == 32
    assert statistics.median(predicted) <= MEDIAN
    assert max(predicted) <= WORST
    assert sum(row[4] == "yes" for row in cells("published change")) >= RIGHT


def test_the_page_has_the_constants():
    for name, blackwell, hopper, _ in cells("constant"):
        for text, constants in ((blackwell, BLACKWELL), (hopper, HOPPER)):
            for each, value in zip(name.split(", "), text.split(", "), strict=True):
                assert value.startswith("**") == (each in constants.fitted), each
                actual = getattr(constants, each)
                if value.strip("*").replace(".", "").isdecimal():
                    assert float(value.strip("*")) == actual, each


def test_the_page_has_what_was_seen_and_what_became_of_the_first_predictions():
    seen = {f"{s.shape}: {words(s.changes)}": f"{s.percent:+.1f} %" for s in seen_cycles()}
    assert {row[0]: row[2] for row in cells("seen before")} == seen
    first = cells("first prediction")
    assert {name: measured for name, _, measured, _ in first}.items() <= seen.items()
    for _, predicted, measured, right in first:
        assert is_right(*(float(cell.split()[0]) for cell in (predicted, measured))) is (right == "yes")


def test_enough_of_what_was_predicted_came_true():
    """The sign right, and the size within a factor of 1.5."""
    measured = {f"{s.shape}: {words(s.changes)}": f"{s.percent:+.1f} %" for s in seen_cycles(SECOND_ROUND)}
    rows = cells("change to the tuned kernel")
    assert [row[0] for row in rows] == [f"{s}: {words(c)}" for s, c in PREDICTED]
    assert {row[0]: row[2] for row in rows} == measured
    assert sum(row[3] == "yes" for row in rows) >= CAME_TRUE


@pytest.mark.parametrize("shape_and_changes", PREDICTED, ids=lambda p: f"{p[0]}: {words(p[1])}")
def test_predictions_are_of_legal_schedules_that_are_not_the_tuned_ones(shape_and_changes):
    shape, changed = shape_and_changes
    assert shape.plan(changed).schedule != shape.plan().schedule


@pytest.mark.slow
def test_the_bars_with_the_committed_constants():
    fitted, predicted = split(rows())
    found = errors(lab(), BLACKWELL, predicted)
    assert found.median <= MEDIAN
    assert abs(found.worst) <= WORST
    assert errors(lab(), BLACKWELL, fitted).median <= 0.02
    written = ["| " + " | ".join(row) + " |" for row in cells("S")]
    assert table(lab(), BLACKWELL, rows())[2:] == written, "run: python -m benchmarks.model_fit"


@pytest.mark.slow
def test_enough_published_changes_come_out_right():
    found = changes(lab(), BLACKWELL)
    assert sum(change.is_right for change in found) >= RIGHT
    made = [[cell.strip() for cell in line.strip("|").split("|")] for line in change_table(lab(), BLACKWELL)[2:-1]]
    assert made == cells("published change"), "run: python -m benchmarks.model_fit"


@pytest.mark.slow
def test_a_new_fit_holds_the_bars_too():
    fitted, predicted = split(rows())
    again = fit(lab(), fitted, say=lambda text: None)
    found = errors(lab(), again, predicted)
    assert found.median <= MEDIAN
    assert abs(found.worst) <= WORST
    assert again.dilation == pytest.approx(BLACKWELL.dilation, rel=0.05)


@pytest.mark.slow
def test_the_model_of_the_sm_90a_kernel_is_what_the_page_has():
    """And so what was predicted is what this model says, not an older one."""
    made = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in tables(HopperLab(lambda text: None), HOPPER)
    ]
    for first in ("seen before", "change to the tuned kernel"):
        start = next(i for i, row in enumerate(made) if row[0] == first) + 2
        written = cells(first)
        assert made[start : start + len(written)] == written, "run: python -m benchmarks.model_hopper"
