"""The shared list of cases is consistent, and every rejected problem is refused without TVM."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import ALL_KINDS, CASES, CONFIGURATIONS, DATA, KNOBS, REJECTED
from tirx_attn.commands import proof
from tirx_attn.config import AttentionConfig
from tirx_attn.schedule import make_plan
from tirx_attn.verify import PROBES, RESCALE_PROBES
from tirx_attn.verify.rescale import expected_rescales, rescale_opportunities


def test_names_are_unique():
    names = [case.name for case in CASES] + [case.name for case in REJECTED]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_can_be_planned_and_its_probes_made(case):
    plan = make_plan(case.config, case.schedule)
    assert plan.grid >= 1
    assert set(case.kinds) <= set(ALL_KINDS)
    assert bool(case.checked) == bool(set(case.kinds) & {"synccheck", "racecheck"})
    for name in {*case.probes, *case.checked}:
        probe = case.probe(name)
        assert probe.q.shape == (case.config.B, case.config.Sq, case.config.Hq, case.config.D)


@pytest.mark.parametrize("case", [*CONFIGURATIONS, *KNOBS], ids=lambda case: case.name)
def test_the_checked_inputs_take_both_paths(case):
    every, never = case.probe("rescale_every"), case.probe("rescale_never")
    taken = expected_rescales(every.q, every.k, case.config)
    assert np.array_equal(taken, np.broadcast_to(rescale_opportunities(case.config), taken.shape))
    assert not expected_rescales(never.q, never.k, case.config).any()
    assert set(case.checked) >= {"random"}
    assert set(case.checked) & {"rescale_by_head", "rescale_every"}
    if "rescale_by_head" in case.checked:
        assert case.config.B * case.config.Hkv > 1


def test_commands_take_the_same_inputs():
    assert list(proof.INPUTS.values()) == [(PROBES | RESCALE_PROBES)[name] for name in DATA]
    steps = {(name, key) for name in ("numbers", "synccheck", "racecheck") for key in proof.INPUTS}
    assert steps <= set(proof.planned())


@pytest.mark.parametrize("case", KNOBS, ids=lambda case: case.name)
def test_a_knob_differs_from_the_default(case):
    default = make_plan(case.config).schedule
    changed = {name for name, value in case.schedule_changes.items() if getattr(default, name) != value}
    assert changed - {"persistent_ctas"}


def test_small_grids_give_each_cta_three_tasks():
    for case in CONFIGURATIONS:
        if case.name.startswith("three_tasks"):
            plan = make_plan(case.config, case.schedule)
            assert (plan.grid, plan.tasks) == (1, 3)


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case.name)
def test_rejected(case):
    with pytest.raises(ValueError, match=case.message):
        AttentionConfig(*case.arguments)
