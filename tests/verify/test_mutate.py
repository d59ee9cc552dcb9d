"""Mutants: systematic, each one edit of the real kernel, well-formed, and named the same in every run."""

from __future__ import annotations

from collections import Counter

import pytest
import tvm_ffi
from tvm import tirx

from tests.barriers.checked import all_mutants, find, kernel, plan
from tirx_attn.barriers.checker.rewrite import Leaf, leaves
from tirx_attn.barriers.protocol import protocol
from tirx_attn.verify.mutate import Mutant, mutants
from tirx_attn.verify.mutation import BASES

BOTH = pytest.mark.parametrize("base", ["correction", pytest.param("softmax", marks=pytest.mark.slow)])

FAMILIES = {
    "drop wait", "double wait", "drop arrival", "double arrival", "count + 1", "count - 1", "flip phase",
    "wrong stage", "swap", "drop fence", "drop wait::ld", "drop wait::st", "drop initial credit", "early release",
    "late release", "wrong split, early", "wrong split, late", "skip arrival with rescale", "wrong byte count",
    "wrong register value", "wrong barrier", "TMEM freed early", "S overwritten early", "drop CTA sync", "drop dealloc",
    "drop commit group", "wait_group + 1", "late wait for a store", "load too many",
}  # fmt: skip
"""What must be tried on a protocol."""


def of_operator(func, operator: str) -> list[Leaf]:
    return [leaf for leaf in leaves(func) if leaf.operator == operator]


def mutated(mutant: Mutant, base: str = "correction"):
    return mutant.apply(kernel(base))


@pytest.mark.slow
def test_every_family_is_there():
    assert {mutant.family for base in BASES for mutant in all_mutants(base)} == FAMILIES


@pytest.mark.slow
def test_every_edge_has_mutants():
    assert sum(len(all_mutants(base)) for base in BASES) >= 60
    count = Counter(mutant.edge for base in BASES for mutant in all_mutants(base))
    edges = {edge.name for base in BASES for edge in protocol(plan(base)).edges}
    assert {edge for edge in edges if count[edge] < 2} == set()
    assert set(count) - {""} == edges


@pytest.mark.slow
@BOTH
def test_ids_are_unique_and_stable(base):
    ids = [mutant.id for mutant in all_mutants(base)]
    assert len(set(ids)) == len(ids)
    assert [mutant.id for mutant in mutants(kernel(base))] == ids


@pytest.mark.slow
@BOTH
def test_each_is_well_formed_and_differs_from_its_base(base):
    func = kernel(base)
    for mutant in all_mutants(base):
        other = mutant.apply(func)
        assert tirx.analysis.verify_well_formed(other, assert_mode=False), mutant.id
        assert not tvm_ffi.structural_equal(other, func), mutant.id


@pytest.mark.slow
def test_a_sample_builds():
    """One of each of six families, from both bases, lowers to CUDA."""
    from tirx_attn.runtime import generate_cuda

    sample = [
        ("correction", find("correction", "drop wait", "p_ready_2")),
        ("correction", find("correction", "S overwritten early")),
        ("correction", find("correction", "wrong stage", "kv_load.empty")),
        ("softmax", find("softmax", "early release", "kv_load.empty")),
        ("softmax", find("softmax", "skip arrival with rescale")),
        ("softmax", find("softmax", "wrong split, late")),
    ]
    for base, mutant in sample:
        assert "flash_attention4" in generate_cuda(mutated(mutant, base)), mutant.id


class TestEdits:
    """What an edit does, read off the edited PrimFunc."""

    def test_drop_wait(self):
        func = mutated(find("correction", "drop wait", "s_ready"))
        before, after = ([leaf.edge for leaf in of_operator(f, "mbarrier_wait")] for f in (kernel("correction"), func))
        assert Counter(before) - Counter(after) == Counter({"s_ready": 1})

    def test_double_arrival(self):
        func = mutated(find("correction", "double arrival", "p_ready_2"))
        before, after = (
            [leaf.edge for leaf in of_operator(f, "mbarrier_arrive")] for f in (kernel("correction"), func)
        )
        assert Counter(after) - Counter(before) == Counter({"p_ready_2": 1})

    @pytest.mark.parametrize(("family", "count"), [("count - 1", 255), ("count + 1", 257)])
    def test_counts(self, family, count):
        func = mutated(find("correction", family, "p_o_rescale"))
        counts = {leaf.edge: int(leaf.statement.value.args[1]) for leaf in of_operator(func, "mbarrier_init")}
        assert counts["p_o_rescale"] == count
        assert counts["p_ready_2"] == 128

    def test_wrong_stage(self):
        def slots(func):
            return [str(leaf.statement) for leaf in of_operator(func, "mbarrier_wait") if leaf.edge == "kv_load_empty"]

        before = slots(kernel("correction"))
        after = slots(mutated(find("correction", "wrong stage", "kv_load.empty", "load")))
        changed = [new for old, new in zip(before, after, strict=True) if old != new]
        assert len(changed) == 1
        assert "kv_load_empty_buf[0]" in changed[0]

    def test_byte_counts_are_half_and_twice(self):
        """A K or V tile has 128 x 128 x 2 = 32768 bytes."""
        sizes = []
        for number in (0, 1):
            func = mutated(find("correction", "wrong byte count", "kv_load.full", number=number))
            for leaf in of_operator(func, "mbarrier_arrive_expect_tx"):
                sizes.append(int(leaf.statement.value.args[1]))
        assert set(sizes) == {16384, 32768, 65536}
        assert (sizes.count(16384), sizes.count(65536)) == (1, 1)

    def test_skipped_arrival_moves_into_the_branch(self):
        def inside(func):
            return [
                "branch" in leaf.inside
                for leaf in of_operator(func, "mbarrier_arrive")
                if leaf.edge == "p_o_rescale" and 8 in leaf.warps and "while" in leaf.inside
            ]

        assert True not in inside(kernel("correction"))
        assert True in inside(mutated(find("correction", "skip arrival with rescale")))

    @BOTH
    def test_s_is_overwritten_before_the_wait_for_p(self, base):
        """The order in the steady state: wait p_o_rescale, ..., QKᵀ; in the mutant QKᵀ is ahead of that wait."""

        def order(func):
            found = leaves(func)
            scores = [leaf for leaf in found if leaf.operator == "tile.gemm_async" and "s_tmem" in str(leaf.statement)]
            wait = next(leaf for leaf in found if leaf.edge == "p_o_rescale" and leaf.operator == "mbarrier_wait")
            return sum(leaf.index < wait.index for leaf in scores)

        assert (order(kernel(base)), order(mutated(find(base, "S overwritten early"), base))) == (1, 2)
