"""The structural check on what the variants add: each is clean, and a fault in it is named."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.barriers.checked import all_mutants, judge, kernel
from tirx_attn import VARIANTS, AttentionConfig, variant
from tirx_attn.barriers.check import check
from tirx_attn.barriers.checker.rewrite import leaves
from tirx_attn.kernel import build_kernel
from tirx_attn.schedule import make_plan

pytestmark = pytest.mark.slow


class TestVariants:
    """Faults of what the variants add."""

    def test_a_later_part_of_p_that_is_not_waited_for(self):
        finding = judge("variants", "drop wait", "p_ready_4").findings[0]
        assert (finding.kind, finding.edge) == ("race", "p_ready_4")
        assert re.match(r"p_ready_4: tcgen05\.st to \w*p_tmem by softmax 0, then MMA \w*o_tmem", finding.message)

    def test_row_sum_that_the_next_task_overwrites(self):
        finding = next(f for f in judge("variants", "drop wait", "row_sum.empty").findings if f.kind == "race")
        assert finding.role == "mma"
        assert re.search(
            r"tcgen05\.st to \w*s_tmem by softmax 0, then MMA \w*s_tmem .* by mma, not ordered, at TMEM column 32 "
            r"\(roles/mailbox\.py",
            finding.message,
        )

    def test_acc_scale_that_is_not_published(self):
        """`wait::st` and both fences around a statistic, and `wait::ld` behind its load."""
        func = kernel("variants")
        places = {leaf.index for leaf in leaves(func) if leaf.where.startswith("roles/mailbox.py")}
        mutants = [m for m in all_mutants("variants") if m.family.startswith("drop") and places & m.edits.keys()]
        # acc_scale is sent in two places, row_sum in one; each is received in one.
        assert sum(m.family == "drop wait::st" for m in mutants) == 3
        assert sum(m.family == "drop wait::ld" for m in mutants) == 2
        assert sum(m.family == "drop fence" for m in mutants) == 3 + 2 * 2
        for mutant in mutants:
            assert check(mutant.apply(func)).findings[0].kind in ("race", "registers"), mutant.id

    def test_one_staging_tile_that_is_not_taken_by_turns(self):
        findings = judge("variants", "drop wait", "o_staged.empty").findings
        assert ("race", "o_staged.empty") in {(finding.kind, finding.edge) for finding in findings}
        report = judge("variants", "wrong stage", "o_staged.empty", role="store")
        assert report.findings[0].edge == "o_staged.empty"


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("each", VARIANTS, ids=lambda each: each.name)
def test_every_variant_is_clean(each, causal):
    """For both head sizes it is for, with several tasks on a CTA where there is no mask."""
    for d in each.head_sizes:
        config = AttentionConfig(1, 512, 640, 2, 1, d, causal)
        schedule = replace(each.schedule(config), persistent_ctas=None if causal else 1)
        report = check(build_kernel(make_plan(config, schedule)))
        assert (report.verdict, report.findings) == ("clean", [])


@pytest.mark.parametrize("changes", [{"o_stages": 1}, {"statistics": "tmem"}, {"pv_split": (32,) * 4}], ids=str)
def test_tasks_without_keys_with_what_the_variants_add(changes):
    """Sq=512, Skv=256: the rows of the first task see no key. A CTA takes one task."""
    for owner in ("correction", "softmax"):
        config = AttentionConfig(1, 512, 256, 1, 1, 128, True)
        tuned = variant("epilogue-" + owner).schedule(config)
        assert check(build_kernel(make_plan(config, replace(tuned, **changes)))).findings == []
