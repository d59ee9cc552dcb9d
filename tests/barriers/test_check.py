"""The structural check on the real kernels: what is right is clean, and a fault is named by edge and role."""

from __future__ import annotations

import re

import pytest

from tests.barriers.checked import BIG, all_mutants, headline, judge, kernel, plan
from tests.cases import CASES
from tirx_attn.barriers.check import NONE_TAKEN, SOME_TAKEN, check
from tirx_attn.barriers.checker.rewrite import leaves

SHIPPED = [
    "correction",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("softmax", "variants", *(case.name for case in CASES))),
    *(pytest.param(name, marks=pytest.mark.slow) for name in BIG),
]
BOTH = pytest.mark.parametrize("base", ["correction", pytest.param("softmax", marks=pytest.mark.slow)])
ALL = pytest.mark.parametrize(
    "base", ["correction", *(pytest.param(name, marks=pytest.mark.slow) for name in ("softmax", "variants"))]
)
PLACE = r"\(roles/\w+\.py:\d+; (roles/)?\w+\.py:\d+\)"
"""Source positions of the two accesses of a race."""

VOTE = "branch on data (roles/softmax.py) always taken"
RESCALE = "branch on data (roles/correction.py) always taken"
PLAYED = {VOTE, RESCALE, NONE_TAKEN, SOME_TAKEN}
PLAYS = 5
"""Softmax votes twice: whether a reference is large, and whether one would move."""


def played(branch: str) -> str:
    """What was played, without the line of the source."""
    return re.sub(r"\.py:\d+", ".py", branch)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_kernels_are_clean(name):
    report = check(kernel(name))
    assert (report.verdict, report.findings) == ("clean", [])
    always = any(case.name == name and case.schedule.rescale == "always" for case in CASES)
    assert {played(branch) for _, branch, _ in report.plays} == (PLAYED - {RESCALE} if always else PLAYED)


class TestWhatIsPlayed:
    @pytest.mark.slow
    def test_first_and_last_cta_with_every_outcome_of_the_rescale(self):
        report = check(kernel("causal_rows_without_keys"))  # Sq=512: two tasks of 256 rows, one for each CTA
        assert [cta for cta, _, _ in report.plays] == [0] * PLAYS + [1] * PLAYS
        for number in (0, 1):
            assert {played(branch) for cta, branch, _ in report.plays if cta == number} == PLAYED

    def test_a_rescale_is_more_events_than_none(self):
        events = {played(branch): number for _, branch, number in check(kernel("correction")).plays}
        every, none, some = events[RESCALE], events[NONE_TAKEN], events[SOME_TAKEN]
        # 4 tasks x 3 blocks x 2 stages x 4 warps, each with a load and a store for each part of the 128 columns.
        assert every - none == 4 * 3 * 2 * 4 * 2 * (128 // plan("correction").schedule.rescale_columns)
        assert none < some < every

    @pytest.mark.slow
    def test_a_cta_whose_task_has_no_keys(self):
        """Sq=512 and Skv=256, bottom-right aligned: the rows of the second task's CTA see no key."""
        first, last = (check(kernel("causal_rows_without_keys"), ctas=[cta]) for cta in (0, 1))
        assert (first.verdict, last.verdict) == ("clean", "clean")
        assert len({events for _, _, events in last.plays}) == 1  # nothing to rescale
        assert last.plays[0][2] < min(events for _, _, events in first.plays)

    @pytest.mark.slow
    def test_chosen_ctas(self):
        report = check(kernel("causal_rows_without_keys"), ctas=[1, 1])
        assert [cta for cta, _, _ in report.plays] == [1] * PLAYS

    def test_as_data(self):
        data = check(kernel("correction")).to_dict()
        assert (data["checker"], data["verdict"], data["findings"]) == ("structural", "clean", [])
        assert {played(play["branch"]) for play in data["plays"]} == PLAYED

    def test_event_limit_is_a_hang(self):
        report = check(kernel("correction"), limit=100)
        assert (report.verdict, report.findings[0].kind) == ("error", "hang")
        assert headline(report) == "the kernel hangs: no end after 100 events"

    def test_a_hang_ends_with_the_state_of_each_role(self):
        message = check(kernel("correction"), limit=500).findings[0].message
        for role in ("softmax 0", "softmax 1", "correction", "mma", "load", "store"):
            assert re.search(rf"^  {role} (waits at|was last at) .* \((roles|barriers)/\w+\.py:\d+\)$", message, re.M)


@BOTH
class TestNamedCounterexamples:
    """The first line names edge and role."""

    def test_missing_wait_on_p_ready_2(self, base):
        report = judge(base, "drop wait", "p_ready_2")
        assert (report.findings[0].kind, report.findings[0].edge) == ("race", "p_ready_2")
        assert re.fullmatch(
            r"p_ready_2: tcgen05\.st to \w*p_tmem by softmax 0, then MMA \w*o_tmem from \w*p_tmem and \w*kv_smem by "
            rf"mma, not ordered, at TMEM column \d+ {PLACE}",
            headline(report),
        )

    def test_p_o_rescale_count_255(self, base):
        report = judge(base, "count - 1", "p_o_rescale")
        assert headline(report) == (
            "p_o_rescale[0]: initialised for 255 arrivals, declared are 256 (softmax 128 + correction 128)"
        )
        assert report.findings[0].role == "softmax and correction"

    def test_skipped_arrival_on_a_skipped_rescale(self, base):
        report = judge(base, "skip arrival with rescale")
        assert report.findings[0].role == "correction"
        assert re.fullmatch(
            r"p_o_rescale: deadlock, mma waits for p_o_rescale\[0\] phase 1 \(128 of 256 arrivals; missing: "
            r"correction\) at wait on p_o_rescale \(roles/mma\.py:\d+\)",
            headline(report),
        )
        assert report.findings[0].message.endswith("in CTA 0, no branch on data taken")

    def test_missing_initial_credit(self, base):
        report = judge(base, "drop initial credit", "p_o_rescale")
        assert re.match(
            r"p_o_rescale: deadlock, mma waits for p_o_rescale\[0\] phase 0 \(128 of 256 arrivals; missing: correction",
            headline(report),
        )

    def test_s_overwritten_before_its_last_read(self, base):
        report = judge(base, "S overwritten early")
        assert (report.findings[0].kind, report.findings[0].role) == ("race", "mma")
        assert re.fullmatch(
            r"p_o_rescale: tcgen05\.ld of \w*s_tmem by softmax 0, then MMA \w*s_tmem from \w*q_smem and \w*kv_smem by "
            rf"mma, not ordered, at TMEM column 0 {PLACE}",
            headline(report),
        )

    @pytest.mark.parametrize("role", ["softmax", "correction"])
    def test_missing_wait_ld(self, base, role):
        report = judge(base, "drop wait::ld", role=role)
        assert report.findings[0].kind == "registers"
        assert re.fullmatch(
            rf"{role}( 0)? reads registers \w+ of a tcgen05\.ld before its tcgen05\.wait::ld \(roles/\w+\.py:\d+\)",
            headline(report),
        )


class TestDeadlocks:
    def test_the_cycle_is_printed(self):
        lines = judge("correction", "drop initial credit", "p_o_rescale").findings[0].message.splitlines()
        assert [line.strip().split(" phase")[0] for line in lines[1:-1]] == [
            "correction waits for stats.full[0]",
            "softmax 0 waits for s_ready[0]",
        ]
        assert "missing: softmax 0" in lines[1]
        assert "missing: mma" in lines[2]  # which waits for correction: line 0

    def test_a_bystander_is_not_blamed(self):
        """Without P's second part the MMA stands still; so do all others, each for a reason of its own."""
        report = judge("correction", "drop arrival", "p_ready_2")
        assert headline(report).startswith("p_ready_2: deadlock, mma waits for p_ready_2[0] phase 0 (0 of 128 arrivals")
        assert report.findings[0].role == "softmax 0"

    def test_a_release_that_is_not_given(self):
        report = judge("correction", "drop arrival", "row_sum.empty")
        assert headline(report).startswith("row_sum.empty: deadlock, softmax 0 waits for row_sum.empty[0] phase 0")
        assert report.findings[0].role == "correction"

    @pytest.mark.slow
    def test_turns_of_the_exponentials(self):
        report = judge("softmax", "drop arrival", "exp_turn")
        line = headline(report)
        assert "exp_turn: deadlock, softmax 1 waits for exp_turn[1] phase 0 (0 of 128" in line, line
        assert "missing: softmax 0" in line


class TestArrivals:
    def test_over_arrival_prints_both_sides(self):
        report = judge("correction", "double arrival", "kv_load.full")
        over = next(finding for finding in report.findings if finding.kind == "over-arrival")
        assert re.match(
            r"kv_load\.full\[\d\] phase \d: load arrives when all 1 arrivals are there \(load 2\): expect-tx arrive",
            over.message,
        )

    def test_over_arrival_names_each_role(self):
        report = judge("correction", "count - 1", "p_o_rescale")
        over = next(finding for finding in report.findings if finding.kind == "over-arrival")
        assert "softmax 0 arrives when all 255 arrivals are there (correction 128, softmax 0 128)" in over.message

    @pytest.mark.slow
    def test_aliased_phase(self):
        report = judge("softmax", "double arrival", "o_staged.empty")
        assert re.fullmatch(
            r"o_staged\.empty\[0\]: softmax 0 waits for phase 0 when phase 1 is complete already: wait on "
            r"o_staged_empty \(roles/epilogue\.py:\d+\) can miss it or pass a phase early",
            headline(report),
        )

    @pytest.mark.parametrize("edge", ["q_load.full", "kv_load.full"])
    @pytest.mark.parametrize(("number", "size"), [(0, 65536), (1, 16384)])
    def test_byte_count(self, edge, number, size):
        report = judge("correction", "wrong byte count", edge, number=number)
        assert headline(report) == f"{edge}: load expects {size} bytes, declared are 32768 (a full tile)"
        assert "bytes" in {finding.kind for finding in report.findings}

    def test_first_wait_against_the_declared_state(self):
        report = judge("correction", "flip phase", "q_load.empty")
        assert headline(report).startswith(
            "q_load.empty[0]: load first waits for phase 0, declared is that the slot is free at the start"
        )

    def test_a_slot_that_nobody_waits_for(self):
        report = judge("correction", "drop wait", "q_load.empty", number=1)
        assert headline(report) == "q_load.empty[1]: load never waits for it, as it declares"


class TestRaces:
    @pytest.mark.parametrize(
        ("family", "edge", "message"),
        [
            ("drop wait", "kv_load.empty", r"kv_load\.empty: TMA load to \w+ by load, then TMA load to \w+ by load"),
            ("drop wait", "o_ready", r"o_ready: MMA \w*o_tmem .* by mma, then tcgen05\.ld of \w*o_tmem by correction"),
            ("drop wait", "row_sum.full", r"row_sum\.full: write of \w*row_sum_smem by softmax 0, then read"),
            ("drop wait", "o_staged.empty", r"o_staged\.empty: TMA store .* by store, then write of .* by correction"),
            ("wrong barrier", "stats.full", r"stats\.full: write of \w*acc_scale_smem by softmax 0, then read"),
        ],
    )
    def test_names_edge_and_both_accesses(self, family, edge, message):
        finding = next(f for f in judge("correction", family, edge).findings if f.kind == "race" and f.edge == edge)
        assert re.match(message, finding.message)
        assert re.search(PLACE, finding.message)

    @ALL
    def test_every_tcgen05_fence_is_needed(self, base):
        """Neither synccheck nor racecheck of the simulator sees one of them."""
        texts = {leaf.index: str(leaf.statement) for leaf in leaves(kernel(base))}
        fences = [m for m in all_mutants(base) if m.family == "drop fence" and m.label == "tcgen05_fence"]
        kinds = {kind for m in fences for kind in ("before", "after") for index in m.edits if kind in texts[index]}
        assert kinds == {"before", "after"}
        for mutant in fences:
            finding = check(mutant.apply(kernel(base))).findings[0]
            assert (finding.kind, "not ordered" in finding.message) == ("race", True), mutant.id

    @BOTH
    def test_async_proxy_fence(self, base):
        report = judge(base, "drop fence", "fence_proxy")
        owner = "correction" if base == "correction" else "softmax 0"
        assert re.match(
            rf"o_staged\.full: write of \w*o_smem by {owner}, then TMA store from \w*o_rows by store, not ordered",
            headline(report),
        )

    @BOTH
    def test_mbarrier_init_fence(self, base):
        report = judge(base, "drop fence", "fence_mbarrier_init")
        assert headline(report) == "mbarrier.init is not followed by fence.mbarrier_init: TMA may not see it"
