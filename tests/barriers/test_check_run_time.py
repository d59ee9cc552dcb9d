"""The structural check on kernels whose lengths are known at the launch only, played for given lengths."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.barriers import checked
from tests.run_time import CHECKED_LENGTHS
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.barriers.check import check
from tirx_attn.kernel import build_kernel
from tirx_attn.schedule import make_plan

PLANS = {
    "causal_7_1": (AttentionConfig(None, None, None, 7, 1, 64, True, dtype="bfloat16", return_lse=True), None),
    "full_7_1": (AttentionConfig(None, None, None, 7, 1, 128, scale="runtime"), Schedule(persistent_ctas=1)),
    "full_148_ctas": (AttentionConfig(None, None, None, 6, 2, 128), None),
}
LENGTHS = {
    "one_row": (1, 1, 300),
    "one_key": (1, 30, 1),
    "one_block": (1, 30, 128),
    "ragged": (1, 90, 333),
    "rows_without_keys": (1, 90, 50),
    "batches": (3, 37, 129),
}
EMPTY_TASKS = (1, 100, 20)


@cache
def kernel(name: str) -> Any:
    return build_kernel(make_plan(*PLANS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", PLANS)
def test_clean(name, lengths):
    report = check(kernel(name), sizes=dict(zip(("B", "Sq", "Skv"), lengths, strict=True)))
    assert (report.verdict, report.findings) == ("clean", [])


@pytest.mark.parametrize("name", CHECKED_LENGTHS)
def test_the_checkers_see_these_kinds_of_lengths(name):
    lengths = CHECKED_LENGTHS[name]
    assert {sq for _, sq, _ in lengths} >= {1, 30, 90}
    assert {skv for _, _, skv in lengths} >= {1, 128, 300}
    assert any(skv % 128 and skv > 128 for _, _, skv in lengths)
    assert any(b > 1 for b, _, _ in lengths)


@pytest.mark.slow
def test_tasks_without_keys_are_played():
    """M2. Of 7 heads 18 tokens fit in a tile: tasks of 36 tokens, of which the first two see none of the 20 keys."""
    b, sq, skv = EMPTY_TASKS
    report = check(kernel("causal_7_1"), sizes={"B": b, "Sq": sq, "Skv": skv})
    assert report.verdict == "clean"
    events = {cta: events for cta, _, events in report.plays}
    assert set(events) == {0, 2}  # the longest task first
    assert events[2] < 0.6 * events[0]


@pytest.mark.slow
def test_tasks_follow_from_the_lengths():
    """On one CTA, each further task adds the same events."""
    events = []
    for b in (1, 2, 3):
        report = check(kernel("full_7_1"), sizes={"B": b, "Sq": 36, "Skv": 256})
        events.append(report.plays[0][2])
    assert events[2] - events[1] == events[1] - events[0] > 100


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [None, {"B": 1, "Sq": 2}, {"B": 1, "Sq": 2, "Skv": 3, "Hq": 7}])
def test_sizes_must_be_those_that_are_open(sizes):
    with pytest.raises(ValueError, match=r"allowed is a value for each of B, Sq, Skv"):
        check(kernel("causal_7_1"), sizes=sizes)


def test_a_static_kernel_takes_no_sizes():
    with pytest.raises(ValueError, match="none, all sizes are baked in"):
        check(checked.kernel("correction"), sizes={"B": 1})
