"""Constants: few are fitted, all are explained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tirx_attn.analysis.timeline.constants import BLACKWELL, HOPPER, constants_for
from tirx_attn.targets import B200, B300, H200


@pytest.mark.parametrize("constants", [BLACKWELL, HOPPER])
def test_at_most_five_are_fitted_and_each_says_what_it_is(constants):
    assert len(constants.fitted) <= 5
    rows = constants.to_dict()
    assert {row["name"] for row in rows if row["fitted"]} == set(constants.fitted)
    assert all(row["meaning"] for row in rows)


def test_targets():
    assert constants_for(B200) is constants_for(B300) is BLACKWELL
    assert constants_for(H200) is HOPPER
    assert [BLACKWELL.machine(target).mufu_cycles for target in (B200, B300)] == [8.0, 4.0]
    assert (BLACKWELL.machine(B200).flops, HOPPER.machine(H200).flops) == (8192.0, 4096 * HOPPER.mma_share)


def test_the_clock_falls_with_the_time_between_two_limits():
    assert BLACKWELL.clock_ghz(B200, 100.0) == B200.clock_ghz
    assert BLACKWELL.clock_ghz(B200, 5.0) == BLACKWELL.clock_ghz(B200, 20.0) > B200.clock_ghz
    assert BLACKWELL.clock_ghz(B200, 1000.0) == BLACKWELL.clock_ghz(B200, 9e4) < B200.clock_ghz
    assert replace(BLACKWELL, clock_slope=0.0).clock_ghz(B200, 800.0) == B200.clock_ghz
