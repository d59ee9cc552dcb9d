"""From TIRx to a skeleton: what is there, and that nothing is passed over in silence."""

from __future__ import annotations

import re

import pytest

from tests.barriers.checked import kernel, plan
from tests.barriers.checker.kernels import handshake
from tirx_attn.barriers.check import check
from tirx_attn.barriers.checker.rewrite import edit, leaves
from tirx_attn.barriers.checker.tir import Unsupported
from tirx_attn.barriers.checker.translate import extract


def races(func) -> list[str]:
    return [f.message for f in check(func, ctas=[0]).findings if f.kind == "race"]


class TestHandshake:
    def test_skeleton(self):
        skeleton = extract(handshake())
        assert skeleton.barriers == {"full": 1}
        texts = {site.text for site in skeleton.sites}
        assert {"arrive on full", "wait on full", "write of tile", "read of tile", "CTA sync"} <= texts

    def test_ordered_by_the_barrier(self):
        report = check(handshake(), ctas=[0])
        assert {f.kind for f in report.findings} <= {"table"}  # it declares no roles, and no registers
        assert races(handshake()) == []

    @pytest.mark.parametrize("operator", ["no wait", "read in a condition"])
    def test_a_read_of_shared_memory_is_seen_wherever_it_stands(self, operator):
        func = handshake(operator)
        if operator == "read in a condition":
            wait = next(leaf.index for leaf in leaves(func) if leaf.operator == "mbarrier_wait")
            assert races(func) == []
            func = edit(func, {wait: lambda _: []})
        assert re.match(r"write of tile by warp 0, then read of tile by warp 4, not ordered", races(func)[0])

    def test_first_and_last_cta_of_the_grid(self):
        assert {cta for cta, _, _ in check(handshake()).plays} == {0, 2}


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        ("cluster sync", r"operator tirx\.\w*\.?cluster\w*: no translation"),
        ("synchronous copy", r"tile primitive copy on shared, global: no translation"),
        ("loop over data", r"needs a value that only data gives"),
        ("fence of all memory", r"fence\.proxy\.async: allowed is fence\.proxy\.async\.shared::cta"),
        ("wide election", r"elect_sync in a larger branch"),
        ("function", r"call of function nothing: allowed is fence_register, an empty asm"),
        ("thread of a warpgroup", r"branch on \w+ == 0 .*: what it guards is not for a whole warp"),
        ("some lanes", r"branch on \w+ % 4 == 0 .*: what it guards is not for a whole warp"),
        ("one of two lanes", r"branch on \w+ == 0 .*: allowed is one lane of a whole warp"),
        ("swizzle of 64 bytes", r"descriptor of tile, swizzle 2: allowed is shared memory, 128B"),
        ("descriptor times two", r"descriptor descriptor \* .*: allowed is a descriptor and offsets that are added"),
    ],
)
def test_what_has_no_translation_is_named(operator, message):
    with pytest.raises(Unsupported, match=message):
        extract(handshake(operator))


@pytest.mark.parametrize("warpgroups", [2, 3, 4])
def test_the_number_of_warps_follows_from_the_warpgroups(warpgroups):
    func = handshake(warpgroups=warpgroups)
    assert extract(func).warps == 4 * warpgroups
    assert races(func) == []


def test_larger_ctas_are_refused():
    with pytest.raises(Unsupported, match="a CTA of 20 warps: allowed are at most 16"):
        extract(handshake(warpgroups=5))


class TestRealKernel:
    @pytest.mark.parametrize("base", ["correction", pytest.param("softmax", marks=pytest.mark.slow)])
    def test_barriers_and_slots_are_those_of_the_table(self, base):
        from tirx_attn.barriers.protocol import Kind, protocol

        edges = protocol(plan(base)).edges
        declared = {edge.name.replace(".", "_"): edge.stages for edge in edges if edge.kind is not Kind.NAMED}
        assert extract(kernel(base)).barriers == declared

    def test_positions_are_relative_to_the_package(self):
        places = {site.where for site in extract(kernel("correction")).sites}
        assert all(re.fullmatch(r"((roles|barriers)/)?\w+\.py:\d+", place) for place in places), places

    def test_tma_boxes_fill_a_tile(self):
        """A stage of Q, and a slot of K/V, is 128 rows of 128 fp16 values; each of its loads brings 64 columns."""
        source = extract(kernel("correction")).source
        sizes = {int(size) for size in re.findall(r"m\.tma_load\(.*, (\d+), \d+\)$", source, re.MULTILINE)}
        assert sizes == {128 * 64 * 2}
        assert set(re.findall(r"m\.expect\(.*, (\d+), \d+\)", source)) == {str(128 * 128 * 2)}

    def test_editing_nothing_changes_nothing(self):
        import tvm_ffi

        func = kernel("correction")
        assert tvm_ffi.structural_equal(edit(func, {}), func)
        assert all(
            tvm_ffi.structural_equal(edit(func, {leaf.index: lambda s: [s]}), func) for leaf in leaves(func)[::50]
        )
