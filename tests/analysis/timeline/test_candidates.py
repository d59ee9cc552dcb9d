"""Schedules near a tuned one: legal, and different."""

from __future__ import annotations

import pytest

from tirx_attn import AttentionConfig
from tirx_attn.analysis.timeline.candidates import changed, combined, knobs_of, neighbours
from tirx_attn.family import plan_for

PLANS = {
    arch: plan_for(AttentionConfig(1, 4096, 4096, 32, 8, d, causal), arch=arch)
    for arch, d, causal in (("sm_100a", 128, True), ("sm_103a", 64, False), ("sm_90a", 64, False))
}


@pytest.mark.parametrize("arch", PLANS)
def test_neighbours_are_legal_and_differ_in_one_knob(arch):
    plan = PLANS[arch]
    found = neighbours(plan)
    assert found[0].plan is plan
    assert found[0].name == "as tuned"
    schedules = [candidate.plan.schedule for candidate in found]
    assert len(set(schedules)) == len(schedules) > 5
    for candidate in found[1:]:
        assert candidate.plan.smem.size <= plan.target.smem_bytes
        differing = {k for k, v in vars(candidate.plan.schedule).items() if v != getattr(plan.schedule, k)}
        assert differing == candidate.changes.keys()
        assert len({name.partition("_registers")[0] for name in differing}) <= 3


def test_what_does_not_fit_is_left_out():
    plan = PLANS["sm_100a"]
    assert [c.changes["kv_stages"] for c in neighbours(plan, ["kv_stages"])[1:]] == [2]
    assert changed(plan, {"kv_stages": 9}) is None
    assert changed(plan, {"kv_stages": 3}) is None
    assert [c.changes["kv_stages"] for c in neighbours(PLANS["sm_90a"], ["kv_stages"])[1:]] == [4, 5, 6, 7, 8]


def test_changes_are_combined_first_come_first_served():
    plan = PLANS["sm_100a"]
    splits, owner = neighbours(plan, ["pv_split"])[1:], neighbours(plan, ["epilogue_owner"])[1:]
    found = combined(plan, [splits[0], splits[1], owner[0]])
    assert found is not None
    assert found.changes == {**splits[0].changes, **owner[0].changes}
    assert found.name == "pv_split=32,96, epilogue_owner=correction"
    assert combined(plan, splits[:1]) is None
    assert combined(plan, splits) is None


def test_an_unknown_knob():
    with pytest.raises(ValueError, match="allowed values are consumers"):
        neighbours(PLANS["sm_90a"], ["pv_split"])
    assert "pv_split" in knobs_of(PLANS["sm_100a"])
