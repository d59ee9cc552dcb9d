"""The structural check on the sm_90a kernel: what is right is clean, and a fault is named by edge and role."""

from __future__ import annotations

import json
import re

import pytest

from tests.barriers.checked import headline
from tests.barriers.hopper import BIG, OPEN, PLANS, judge, kernel
from tirx_attn.barriers import PROTOCOL_ATTRIBUTE
from tirx_attn.barriers.check import check
from tirx_attn.barriers.checker.declared import Declared
from tirx_attn.barriers.checker.rewrite import edit, leaves, with_argument
from tirx_attn.barriers.checker.translate import extract
from tirx_attn.barriers.render import start_state
from tirx_attn.hopper.protocol import hopper_protocol

QUICK = ("full",)
SHIPPED = [
    *(pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in PLANS),
    *(pytest.param(name, marks=pytest.mark.slow) for name in BIG),
]
LENGTHS = {
    "one_row": (1, 1, 300),
    "one_key": (1, 30, 1),
    "ragged": (1, 90, 333),
    "rows_without_keys": (1, 90, 50),
    "batches": (3, 37, 129),
}
PLACE = r"\(\w+/\w+\.py:\d+; \w+/\w+\.py:\d+\)"


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_kernels_are_clean(name):
    report = check(kernel(name))
    assert (report.verdict, report.findings) == ("clean", [])
    assert {branch for _, branch, _ in report.plays} == {"no branch on data taken"}  # the vote guards arithmetic


@pytest.mark.slow
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", OPEN)
def test_run_time_lengths(name, lengths):
    report = check(kernel(name), sizes=dict(zip(("B", "Sq", "Skv"), lengths, strict=True)))
    assert (report.verdict, report.findings) == ("clean", [])


def test_twelve_warps_and_what_they_read():
    skeleton = extract(kernel("full"))
    assert skeleton.warps == 12
    # Q: 64 rows of a panel; K: 128 rows of one; V: 16 rows, two swizzle atoms, of each panel.
    atoms = {(operand.buffer, len(operand.atoms)) for operand in skeleton.operands}
    assert atoms == {("ctx_q_smem", 8), ("ctx_kv_smem", 16), ("ctx_kv_smem", 4)}


def test_every_product_is_played():
    """4 tiles on 4 CTAs; in each 3 blocks of keys, 8 warps, 8 steps of 16 along D and along the keys."""
    skeleton = extract(kernel("full"))
    products = [number for number, site in enumerate(skeleton.sites) if site.text.startswith("WGMMA")]
    seen = dict.fromkeys(products, 0)
    from tirx_attn.barriers.checker.machine import Machine

    class Counted(Machine):
        def wgmma(self, warp, registers, reads, site):
            seen[site] += 1
            super().wgmma(warp, registers, reads, site)

    declared = Declared(kernel("full"))
    machine = Counted(skeleton, declared.role_of, lambda *_: False, declared.edge_name, declared.barrier_name)
    assert machine.play(0, 100_000)
    assert sum(seen.values()) == (3 + 3) * 8 * 8
    assert min(seen.values()) > 0


@pytest.mark.slow
class TestNamedCounterexamples:
    """The first line names edge and role."""

    def test_missing_wait_for_a_tile(self):
        report = judge("drop wait", "kv_load.full")
        assert (report.findings[0].kind, report.findings[0].edge) == ("race", "kv_load.full")
        assert re.fullmatch(
            r"kv_load\.full: TMA load to ctx_kv_smem by load, then WGMMA rows_s from ctx_q_smem and ctx_kv_smem by "
            rf"consumer 0, not ordered, at byte \d+ {PLACE}",
            headline(report),
        )

    @pytest.mark.slow
    def test_missing_wait_for_a_tile_that_is_not_loaded_yet(self):
        report = judge("drop wait", "kv_load.full", base="hopper causal")
        assert re.fullmatch(
            r"kv_load\.full: WGMMA rows_s from ctx_q_smem and ctx_kv_smem \(hopper/wgmma\.py:\d+\) by consumer 0 reads "
            r"ctx_kv_smem at byte \d+, where no TMA load has written yet",
            headline(report),
        )

    @pytest.mark.parametrize(("number", "operands"), [(0, "rows_s from ctx_q_smem"), (2, "rows_o from rows_p")])
    def test_slot_released_before_the_products_are_complete(self, number, operands):
        report = judge("early release", "kv_load.empty", number)
        assert (report.findings[0].kind, report.findings[0].role) == ("race", "load")
        assert re.fullmatch(
            rf"kv_load\.empty: WGMMA {operands} and ctx_kv_smem by consumer 0, then TMA load to ctx_kv_smem by load, "
            rf"not ordered, at byte \d+ {PLACE}",
            headline(report),
        )

    def test_missing_wait_for_the_staging_memory(self):
        report = judge("drop wait", "o_staged.empty")
        assert headline(report) == "o_staged.empty[0]: consumer never waits for it, as it declares"
        races = [finding.message for finding in report.findings if finding.kind == "race"]
        assert re.match(r"o_staged\.empty: TMA store from ctx_o_rows by store, then write of ctx_o_smem", races[0])

    @pytest.mark.parametrize(("family", "count"), [("count + 1", 13), ("count - 1", 11)])
    def test_wrong_count(self, family, count):
        report = judge(family, "kv_load.empty")
        assert headline(report) == (
            f"kv_load.empty[0]: initialised for {count} arrivals, declared are 12 (consumer 12)"
        )

    def test_missing_first_turn(self):
        report = judge("drop initial credit", "mma_turn")
        lines = report.findings[0].message.splitlines()
        assert re.fullmatch(
            r"mma_turn: deadlock, consumer 0 waits for mma_turn\[0\] phase 0 \(128 of 256 threads; missing: consumer 2"
            r"\) at bar\.sync \(barriers/device\.py:\d+\)",
            lines[0],
        )
        assert "consumer 2 waits for mma_turn[2] phase 0 (128 of 256 threads; missing: consumer 1)" in lines[1]

    def test_scores_read_before_their_wait(self):
        report = judge("late wait_group", "wgmma_wait_group")
        assert report.findings[0].kind == "registers"
        assert re.fullmatch(
            r"consumer 0 fences registers rows_s of a WGMMA before the wait_group that completes it "
            r"\(hopper/wgmma\.py:\d+\)",
            headline(report),
        )

    def test_async_proxy_fence_of_the_staged_tile(self):
        assert re.match(
            r"o_staged\.full: write of ctx_o_smem by consumer 0, then TMA store from ctx_o_rows by store, not ordered",
            headline(judge("drop fence", "fence_proxy")),
        )


@pytest.mark.slow
class TestProducts:
    def test_dropped_commit(self):
        report = judge("drop commit", "wgmma_commit_group")
        assert "before the wait_group that completes it" in headline(report)

    def test_every_register_fence_is_needed(self):
        reports = [judge("drop register fence", "func_call", number) for number in range(8)]
        words = {re.search(r"not behind a wgmma\.fence|compiler may move that", headline(r))[0] for r in reports}
        assert words == {"not behind a wgmma.fence", "compiler may move that"}

    def test_wgmma_fence(self):
        assert "not behind a wgmma.fence" in headline(judge("drop fence", "wgmma_fence"))

    def test_all_lanes_arrive(self):
        report = judge("all lanes arrive", "kv_load.empty")
        assert "consumer 0 arrives when all 12 arrivals are there (consumer 0 32)" in headline(report)

    def test_p_overwritten_under_the_product(self):
        """The second wait_group of the loop completes PV; without it P is packed while PV reads it."""
        func = kernel("hopper full")
        waits = [leaf for leaf in leaves(func) if leaf.operator == "wgmma_wait_group"]
        fences = [leaf for leaf in leaves(func) if leaf.operator == "func_call" and "rows_o" in str(leaf.statement)]
        wait = waits[2]
        behind = next(leaf for leaf in fences if leaf.index > wait.index)
        report = check(edit(func, {wait.index: lambda _: [], behind.index: lambda _: []}))
        assert any("consumer 0 writes registers rows_p of a WGMMA" in f.message for f in report.findings)

    @pytest.mark.slow
    def test_operand_outside_its_buffer(self):
        report = judge("wrong slot of an operand", "ctx_q_smem", base="hopper causal")
        assert report.findings[0].kind == "operand"
        assert re.fullmatch(
            r"consumer 0: WGMMA rows_s from ctx_q_smem and ctx_kv_smem \(hopper/wgmma\.py:\d+\) reads from byte 32768, "
            r"where no operand of ctx_q_smem lies \(bytes 0 to 32768\)",
            headline(report),
        )

    @pytest.mark.parametrize("units", [1, 8])
    def test_operand_off_its_rows(self, units):
        """V begins where a swizzle atom begins; Q and K in the first row of one, so that 8 units on are a fault."""
        func = kernel("hopper full")
        product = next(leaf for leaf in leaves(func) if leaf.operator.endswith("_rs"))
        arguments = product.statement.value.args
        position = next(n for n, argument in enumerate(arguments) if "kv_tiles" in str(argument))
        moved = {product.index: lambda s: [with_argument(s, position, lambda address: address + units)]}
        assert check(edit(func, moved)).findings[0].kind == "operand"


class TestDeclared:
    def messages(self, change) -> list[str]:
        """What the check says when `change` edits the table."""
        func = kernel("full")
        table = json.loads(str(func.attrs[PROTOCOL_ATTRIBUTE]))
        change({edge["name"]: edge for edge in table["protocol"]["edges"]})
        return [f.message for f in check(func.with_attr(PROTOCOL_ATTRIBUTE, json.dumps(table))).findings]

    def test_the_table_as_it_is(self):
        assert self.messages(lambda edges: None) == []

    def test_who_arrives(self):
        """All eight consumer warps release a slot; a turn is passed by the other warpgroup."""
        declared = Declared(kernel("full"))
        assert declared.producers_of("kv_load_empty", 1) == list(range(4, 12))
        assert declared.producers_of("o_staged_full", 0) == list(range(4, 12))
        assert declared.producers_of("#1", 0) == [8, 9, 10, 11]
        assert declared.producers_of("#2", 0) == [4, 5, 6, 7]
        assert (declared.credit_of_named(1), declared.credit_of_named(2)) == (128, 0)

    def test_the_first_turn_in_words(self):
        assert start_state(hopper_protocol(PLANS["full"])["mma_turn"]) == "consumer arrives once on stage 0"

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"credit": None}, "mma_turn[0]: 128 threads are left over at the end, declared are 0 (the initial"),
            ({"free_stages": [1]}, "mma_turn[1]: 0 threads are left over at the end, declared are 128"),
        ],
    )
    def test_the_first_turn_is_a_credit(self, change, message):
        found = self.messages(lambda edges: edges["mma_turn"].update(change))
        assert any(line.startswith(message) for line in found), found
