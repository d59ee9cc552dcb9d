"""Launches that are played beside a kernel's own: they come to every slot and phase, and findings name them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.barriers.edited import edited
from tests.barriers.faults import FAULTS
from tirx_attn import VARIANTS, AttentionConfig, Schedule
from tirx_attn.barriers.check import Report, check
from tirx_attn.barriers.checker.coverage import Exercised
from tirx_attn.barriers.checker.memory import Finding
from tirx_attn.family import build_planned, plan_for
from tirx_attn.hopper.schedule import HopperSchedule
from tirx_attn.verify import exercise
from tirx_attn.verify.exercise import check_launches, further

ONE_TASK = ("q_load.full", "q_load.empty", "o_ready", "o_staged.full", "o_staged.empty")
"""Slots that a CTA of a causal sm_100a launch uses once: it takes one task."""
STATISTICS = ("row_sum.full", "row_sum.empty")
"""The same where row_sum is sent."""


def report_on(shape, is_causal=False, arch="sm_100a", schedule=None, **options):
    """Report of a kernel's launches, whatever of B, Sq and Skv is None."""
    return check_launches(plan_for(AttentionConfig(*shape, is_causal, **options), schedule, arch))


def phases(report) -> list[str]:
    """What is not seen of slots."""
    return [line for line in report.exercised.unseen if "phase" in line]


CASES = {
    "full": ((1, 256, 384, 2, 1, 128), False, "sm_100a"),
    "causal": ((1, 256, 256, 2, 1, 128), True, "sm_100a"),
    "full_64_short_block": ((1, 77, 100, 7, 1, 64), False, "sm_100a"),
    "causal_64_ratio_64": ((1, 30, 30, 64, 1, 64), True, "sm_100a"),
    "hopper_full": ((1, 128, 128, 1, 1, 128), False, "sm_90a"),
    "hopper_causal": ((1, 128, 128, 2, 1, 128), True, "sm_90a"),
    "hopper_causal_64": ((1, 128, 128, 1, 1, 64), True, "sm_90a"),
    "hopper_full_64": ((2, 300, 700, 8, 8, 64), False, "sm_90a"),
    "hopper_causal_64_ratio_7": ((1, 30, 200, 7, 1, 64), True, "sm_90a"),
    "open_full": ((None, None, None, 6, 2, 128), False, "sm_100a"),
    "open_causal": ((None, None, None, 7, 1, 64), True, "sm_100a"),
    "open_keys": ((1, 256, None, 2, 1, 128), False, "sm_100a"),
    "open_hopper_full": ((None, None, None, 6, 2, 64), False, "sm_90a"),
    "open_hopper_causal": ((None, None, None, 2, 1, 128), True, "sm_90a"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "hopper_full" else pytest.mark.slow) for name in CASES]
)
def test_every_slot_has_each_of_its_phases_twice(name):
    shape, is_causal, arch = CASES[name]
    report = report_on(shape, is_causal, arch)
    assert (report.verdict, report.findings) == ("clean", [])
    once = ONE_TASK if is_causal and arch == "sm_100a" else ()
    assert {line.partition("[")[0] for line in phases(report)} == set(once)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_branch_that_lengths_decide_goes_both_ways_twice(name):
    """Left are those that a kernel cannot take: a task without keys has a causal mask, a tile without rows has another
    tile in its task, which is so on sm_100a."""
    shape, is_causal, arch = CASES[name]
    left = [line for line in report_on(shape, is_causal, arch).exercised.unseen if "phase" not in line]
    assert all(line.endswith(": not taken never") for line in left), left
    if is_causal and arch == "sm_100a":
        assert left == []


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("each", VARIANTS, ids=lambda each: each.name)
def test_variants(each, causal):
    """For one head size; tests/barriers has the others, in one launch."""
    config = AttentionConfig(1, 200, 300, 2, 1, each.head_sizes[-1 if causal else 0], causal)
    report = check_launches(plan_for(config, each.schedule(config)))
    assert (report.verdict, report.findings) == ("clean", [])
    once = {*ONE_TASK, *STATISTICS} if causal else set()
    assert {line.partition("[")[0] for line in phases(report)} <= once


@pytest.mark.slow
@pytest.mark.parametrize(
    "schedule",
    [Schedule(persistent_ctas=1), Schedule(persistent_ctas=3, kv_stages=2), HopperSchedule(q_stages=1, kv_stages=3),
     HopperSchedule(persistent_ctas=7), HopperSchedule(ping_pong=False)],
    ids=str,
)  # fmt: skip
def test_schedules(schedule):
    arch = "sm_100a" if isinstance(schedule, Schedule) else "sm_90a"
    report = report_on((1, 100, 200, 2, 1, 128), False, arch, schedule)
    assert (report.verdict, phases(report)) == ("clean", [])


class TestLaunches:
    def test_the_kind_of_the_last_key_block_is_kept(self):
        """A kernel of whole key blocks has no code for a short one."""
        for skv, short in ((256, 0), (200, 56), (1, 127)):
            for is_causal in (False, True):
                for arch in ("sm_100a", "sm_90a"):
                    plan = plan_for(AttentionConfig(1, 128, skv, 2, 1, 128, is_causal), arch=arch)
                    assert [-launch.skv % 128 for launch in further(plan)] == [short] * 2

    def test_a_cta_of_a_persistent_launch_comes_to_all_tiles_of_a_head(self):
        for arch, tiles in (("sm_100a", 3), ("sm_90a", 5)):  # 148 = 4 x 37, 132 = 4 x 3 x 11
            plan = plan_for(AttentionConfig(1, 128, 256, 1, 1, 128), arch=arch)
            launch = next(further(plan))
            made = replace(plan, config=replace(plan.config, B=launch.b, Sq=launch.sq, Skv=launch.skv))
            assert int(made.tiles.m_blocks) == tiles
            assert {task % tiles for task in range(0, made.tasks, made.grid)} == set(range(tiles))
            assert made.tasks_per_cta >= 2 * tiles

    def test_a_causal_launch_has_tasks_without_keys(self):
        for ratio in (1, 7, 128):
            for arch in ("sm_100a", "sm_90a"):
                plan = plan_for(AttentionConfig(1, 128, 256, ratio, 1, 64, True), arch=arch)
                last = list(further(plan))[-1]
                tiles = plan.tiles_of(last.sq, last.skv)
                assert (tiles.key_blocks(0), tiles.key_blocks(int(tiles.m_blocks) - 1)) == (0, 1)

    def test_a_kernel_with_open_sizes_is_traced_once(self):
        plan = plan_for(AttentionConfig(None, None, None, 2, 1, 128, True), arch="sm_90a")
        built = []
        report = check_launches(plan, build=lambda each: built.append(each) or build_planned(each))
        assert built == [plan]
        assert len(report.launches) == 2

    @pytest.mark.parametrize(("phases", "findings", "played"), [(4, 0, 1), (3, 0, 3), (3, 1, 1)])
    def test_nothing_is_played_once_all_is_seen_or_something_is_found(self, monkeypatch, phases, findings, played):
        plan, found = plan_for(AttentionConfig(1, 128, 256, 2, 1, 128, True)), []

        def checked(func, sizes=None, ctas=None, long=0):
            found.append(func)
            seen = Exercised({("kv_load.full", 0): phases})
            return Report([Finding("race", "", "", "")] * findings, [(0, "", 1)], seen)

        monkeypatch.setattr(exercise, "check", checked)
        assert len(check_launches(plan, build=lambda each: each.config).launches) == played - 1
        assert len(set(found)) == played

    @pytest.mark.slow
    def test_the_own_launch_of_open_sizes(self):
        plan = plan_for(AttentionConfig(None, None, None, 2, 1, 128), arch="sm_90a")
        sizes = {"B": 1, "Sq": 300, "Skv": 77}
        report = check_launches(plan, sizes=sizes)
        own = check(build_planned(plan), sizes=sizes)
        assert report.plays[: len(own.plays)] == own.plays


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n.startswith("V") else pytest.mark.slow) for n in FAULTS]
)
def test_a_fault_that_the_own_launch_has_no_use_of(tmp_path: Path, name):
    fault = FAULTS[name]
    with edited(tmp_path, fault.edits):
        from tirx_attn.config import AttentionConfig as Config
        from tirx_attn.family import plan_for as plan_of
        from tirx_attn.verify.exercise import check_launches as judge

        report = judge(plan_of(Config(*fault.short, fault.is_causal), arch=fault.arch))
    assert report.findings[0].kind == fault.kind
    assert report.findings[0].edge.partition(".")[0] == fault.edge.partition(".")[0]  # or the other way of its pipeline
    launch = report.findings[0].message.splitlines()[-1]
    assert launch == f"  in a launch of {report.launches[-1]}"
    assert report.launches[-1].endswith(f", Hq={fault.short[3]}, Hkv={fault.short[4]}")
