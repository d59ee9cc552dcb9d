"""Mutants of the sm_90a kernel: all are caught or known to be no fault, and docs/protocol_check.md says the same."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import tvm_ffi
from tvm import tirx

from tests.barriers.hopper import all_mutants, kernel
from tests.proofs import Fates
from tirx_attn.barriers.checker.rewrite import leaves
from tirx_attn.hopper.protocol import hopper_protocol
from tirx_attn.verify.mutation import to_markdown
from tirx_attn.verify.mutation_hopper import (
    EQUIVALENT_HOPPER,
    EQUIVALENT_HOPPER_FAMILIES,
    HOPPER_BASES,
    run_hopper_mutants,
    why_no_fault,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol_check.md"
TABLE = re.compile(r"<!-- sm_90a mutants: begin -->\n(.*)<!-- sm_90a mutants: end -->", re.DOTALL)
FAMILIES = {
    "drop wait", "double wait", "drop arrival", "double arrival", "count + 1", "count - 1", "flip phase",
    "wrong stage", "swap", "drop fence", "drop initial credit", "early release", "wrong byte count",
    "wrong register value", "wrong barrier", "drop CTA sync", "drop commit group",
    "drop commit", "drop wait_group", "wait_group + 1", "wait_group - 1", "late wait_group", "late wait",
    "drop register fence", "wrong slot of an operand", "all lanes arrive",
    "late wait for a store", "load too many", "product that nobody waits for",
}  # fmt: skip
"""What must be tried on a protocol with WGMMA."""

pytestmark = pytest.mark.slow


class TestMutants:
    def test_every_family_is_there(self):
        assert {mutant.family for base in HOPPER_BASES for mutant in all_mutants(base)} == FAMILIES

    def test_every_edge_has_mutants(self):
        count = Counter(mutant.edge for base in HOPPER_BASES for mutant in all_mutants(base))
        edges = {edge.name for plan in HOPPER_BASES.values() for edge in hopper_protocol(plan).edges}
        assert set(count) - {""} == edges
        assert min(count[edge] for edge in edges) >= 5

    @pytest.mark.parametrize("base", HOPPER_BASES)
    def test_each_is_well_formed_and_differs_from_its_base(self, base):
        func = kernel(base)
        assert len({mutant.id for mutant in all_mutants(base)}) == len(all_mutants(base))
        for mutant in all_mutants(base):
            other = mutant.apply(func)
            assert tirx.analysis.verify_well_formed(other, assert_mode=False), mutant.id
            assert not tvm_ffi.structural_equal(other, func), mutant.id

    def test_a_sample_builds(self):
        from tirx_attn.runtime import generate_cuda

        for family in ("early release", "late wait_group", "wrong slot of an operand", "all lanes arrive"):
            mutant = next(m for m in all_mutants("hopper full") if m.family == family)
            assert "wgmma" in generate_cuda(mutant.apply(kernel("hopper full")), "sm_90a"), mutant.id


class TestEdits:
    """What an edit does, read off the edited PrimFunc."""

    @staticmethod
    def groups_left(func) -> list[int]:
        return [int(x.statement.value.args[0]) for x in leaves(func) if x.operator == "wgmma_wait_group"]

    @pytest.mark.parametrize(
        ("family", "left"),
        [("drop wait_group", [1, 0, 0]), ("wait_group + 1", [1, 1, 0, 0]), ("wait_group - 1", [0, 0, 0, 0])],
    )
    def test_wait_group(self, family, left):
        func = kernel("hopper full")
        assert self.groups_left(func) == [0, 1, 0, 0]
        mutant = next(m for m in all_mutants("hopper full") if (m.family, m.label) == (family, "wgmma_wait_group"))
        assert self.groups_left(mutant.apply(func)) == left

    def test_an_early_release_stays_the_arrival_of_one_lane(self):
        def order(func):
            return [
                (leaf.operator, "if" in leaf.inside[-1:])
                for leaf in leaves(func)
                if leaf.operator == "wgmma_wait_group" or (leaf.edge == "kv_load_empty" and 4 in leaf.warps)
            ][-2:]

        wait, arrive = ("wgmma_wait_group", True), ("mbarrier_arrive", True)
        func = kernel("hopper full")
        last = [m for m in all_mutants("hopper full") if (m.family, m.edge) == ("early release", "kv_load.empty")][-1]
        assert (order(func), order(last.apply(func))) == ([wait, arrive], [arrive, wait])


@pytest.mark.mutants
def test_all_mutants(request):
    """Judged, or known by their record: all settled, four in five by structure, every reason needed."""
    fates = Fates(request, "sm_90a", why_no_fault)
    outcomes = list(fates.judged(run_hopper_mutants(known=fates.known)))
    assert [o.id for o in outcomes if not o.is_settled] == []
    assert len({o.id for o in outcomes}) == len(outcomes) >= 30
    assert sum(o.caught_by == "structural" for o in outcomes) >= 0.8 * len(outcomes)
    passed = {(o.family, o.label, o.role) for o in outcomes if o.caught_by is None}
    assert set(EQUIVALENT_HOPPER) - passed == set()
    assert set(EQUIVALENT_HOPPER_FAMILIES) - {family for family, _, _ in passed} == set()
    for reason in (*EQUIVALENT_HOPPER.values(), *EQUIVALENT_HOPPER_FAMILIES.values()):
        assert re.fullmatch(r"[A-Z][^.]*\.", reason), reason  # one sentence
    assert all(o.equivalent is None for o in outcomes if o.caught_by)
    assert all(o.message for o in outcomes if o.caught_by and o.seconds)  # of those that were judged
    assert TABLE.search(DOCUMENT.read_text(encoding="utf-8"))[1] == to_markdown(outcomes)
