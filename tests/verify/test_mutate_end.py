"""Mutants that leave something in flight at the end: there is nothing else to find in them."""

from __future__ import annotations

import pytest

from tests.barriers import checked, hopper
from tirx_attn.barriers.check import check
from tirx_attn.barriers.checker.rewrite import leaves


@pytest.mark.parametrize(
    ("module", "base"),
    [(checked, "correction"), *(pytest.param(module, base, marks=pytest.mark.slow) for module, base in
     ((checked, "softmax"), (checked, "variants"), (hopper, "hopper full"), (hopper, "hopper causal")))],
)  # fmt: skip
@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("late wait for a store", "TMA store from ctx_o_rows by store, then the end of the CTA, not ordered: no wait"),
        ("load too many", "TMA load to ctx_kv_smem by load, then the end of the CTA, not ordered: nobody waits"),
    ],
)
def test_the_last_turn_alone_is_at_fault(module, base, family, message):
    """All bases have several tasks on one CTA."""
    func = module.kernel(base)
    (mutant,) = [mutant for mutant in module.all_mutants(base) if mutant.family == family]
    report = check(mutant.apply(func))
    assert [finding.kind for finding in report.findings] == ["in flight"]
    assert report.findings[0].message.startswith(message)


@pytest.mark.slow
def test_a_store_is_waited_for_ahead_of_the_next_one():
    """The order in a turn of the store role, in the kernel and in the mutant."""

    def order(func) -> list[str]:
        kinds = {"cp_async_bulk_wait_group": "wait for the store", "cp_async_bulk_commit_group": "store"}
        return [kinds[leaf.operator] for leaf in leaves(func) if leaf.operator in kinds]

    func = hopper.kernel("hopper full")
    (mutant,) = [mutant for mutant in hopper.all_mutants("hopper full") if mutant.family == "late wait for a store"]
    assert order(func) == ["store", "wait for the store"]
    assert order(mutant.apply(func)) == ["wait for the store", "store"]
