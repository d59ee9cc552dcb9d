"""The structural check on what a CTA owns: registers, hardware barriers, tensor memory, mbarriers before their init."""

from __future__ import annotations

import re

import pytest
from tvm import tirx

from tests.barriers.checked import headline, judge, kernel
from tirx_attn.barriers.check import check
from tirx_attn.barriers.checker.rewrite import edit, leaves, with_argument

BOTH = pytest.mark.parametrize("base", ["correction", pytest.param("softmax", marks=pytest.mark.slow)])


def changed(base: str, operator: str, change, number: int = 0):
    """A base with one statement replaced."""
    func = kernel(base)
    leaf = [leaf for leaf in leaves(func) if leaf.operator == operator and leaf.warps][number]
    return edit(func, {leaf.index: change})


class TestRegisters:
    def test_registers_over_the_file(self):
        report = check(changed("correction", "setmaxnreg", lambda s: [with_argument(s, 0, lambda n: n + 40)]))
        assert "table" in {finding.kind for finding in report.findings}
        total = [f.message for f in report.findings if "the SM has" in f.message]
        assert len(total) == 1
        used = int(re.match(r"setmaxnreg: (\d+) registers, the SM has 65536", total[0])[1])
        assert used > 65536

    @BOTH
    def test_register_value_against_the_table(self, base):
        report = judge(base, "wrong register value")
        assert re.fullmatch(r"setmaxnreg: softmax 0 takes \d+ registers, declared are \d+", headline(report))

    def test_setmaxnreg_missing_in_one_warp(self):
        """PTX: all warps of a warpgroup execute the same setmaxnreg."""
        func = kernel("correction")
        warp = next(
            getattr(leaf.statement, "def").def_ids[0]
            for leaf in leaves(func)
            if type(leaf.statement).__name__ == "ScopeIdDefStmt" and getattr(leaf.statement, "def").scope == 5
        )
        mutated = changed("correction", "setmaxnreg", lambda s: [tirx.IfThenElse(warp != 3, s, None)])
        report = check(mutated)
        assert re.match(r"setmaxnreg: the warps of warpgroup 0 execute it as \[\[(\d+)\], \[\1\], \[\1\], \[\]\]",
                        headline(report))  # fmt: skip


class TestTensorMemory:
    def test_tmem_is_not_freed(self):
        report = judge("correction", "drop dealloc")
        assert headline(report) == "tensor memory is not freed at the end of the kernel"

    @pytest.mark.slow
    def test_tmem_is_freed_early(self):
        report = judge("softmax", "TMEM freed early")
        assert report.findings[0].kind == "race"
        assert re.search(r"by mma, then tcgen05\.dealloc by mma, not ordered", headline(report))

    def test_tmem_is_not_allocated(self):
        report = check(changed("correction", "tcgen05_alloc", lambda s: []))
        assert report.findings[0].kind == "allocation"
        assert headline(report).startswith("tensor memory is not known to be allocated: ")


class TestBarriers:
    def test_named_barrier_16(self):
        """Barriers are numbered 0 to 15."""
        func = kernel("correction")
        numbered = {
            leaf.index: lambda s: [with_argument(s, 0, lambda number: number + 8)]
            for leaf in leaves(func)
            if leaf.operator in ("bar_arrive", "bar_sync_count")
        }
        report = check(edit(func, numbered))
        assert "named barrier 16: the hardware has 16, 0 to 15" in [f.message for f in report.findings]

    def test_barriers_are_used_before_they_are_known_to_be_initialised(self):
        report = check(changed("correction", "cta_sync", lambda s: []))
        assert any("before its mbarrier.init is known to be done" in f.message for f in report.findings)
