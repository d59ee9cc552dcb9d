"""The data of the page: the plan's, the protocol's and the model's own figures, and what is derived from them."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from tests.explore.studied import BLOCKS, one, study, two
from tirx_attn import AttentionConfig
from tirx_attn.barriers.protocol import protocol
from tirx_attn.explore import facts
from tirx_attn.explore.layout import edges_of, lane_order, memories
from tirx_attn.explore.passing import merged, product, released_by
from tirx_attn.schedule import make_plan

CONFIG = AttentionConfig(1, 512, 512, 2, 2, 128)


def test_edges_are_the_protocols():
    made, table = one()["sides"][0]["protocol"], study().table
    assert [edge["name"] for edge in made["edges"]] == [edge.name for edge in table.edges]
    assert [edge["number"] for edge in made["edges"]] == list(range(1, len(table.edges) + 1))
    for shown, edge in zip(made["edges"], table.edges, strict=True):
        assert (shown["count"], shown["slots"], shown["protects"]) == (edge.count, edge.stages, edge.protects)
        assert shown["consumers"] == list(edge.consumers)
    by_name = {edge["name"]: edge for edge in made["edges"]}
    assert by_name["p_o_rescale"]["counts"] == "128 softmax + 128 correction"
    assert by_name["kv_load.full"]["counts"] == "1 load + 32 KiB"
    assert by_name["stats.full"]["counts"] == "32 softmax + 32 waiting"


@pytest.mark.parametrize(
    ("arch", "lanes"),
    [("sm_100a", ["load", "mma", "softmax", "correction", "store"]), ("sm_90a", ["load", "consumer", "store"])],
)
def test_lanes_keep_arrows_short(arch, lanes):
    made = study(arch=arch)
    roles = [role.name for role in made.plan.warps.roles]
    assert lane_order(roles, made.table) == lanes
    # whatever the order in which the plan has them
    assert lane_order(roles[::-1], made.table) == lanes


def test_memory_is_the_plans():
    plan = study().plan
    smem, tmem, registers = facts(study())["memory"]
    assert smem["limit"] == plan.target.smem_bytes
    assert {r["name"]: (r["start"], r["size"]) for r in smem["regions"]} == {
        r.name: (r.start, r.size) for r in plan.smem.regions
    }
    assert {r["name"]: r["slots"] for r in smem["regions"]}["kv"] == plan.schedule.kv_stages
    assert sum(r["size"] for r in registers["regions"]) == 128 * sum(plan.warps.registers)
    over = {r["name"]: (r["layer"], r["over"]) for r in tmem["regions"]}
    assert over["s0"] == (0, "")
    assert over["p1"] == (1, "s1")


def test_regions_name_the_edges_that_are_named_after_them():
    table = study().table
    assert [edge.name for edge in edges_of("o", table)] == ["o_staged.full", "o_staged.empty"]
    assert [edge.name for edge in edges_of("o1", table)] == ["o_ready"]
    assert [edge.name for edge in edges_of("p0", table)] == ["p_o_rescale", "p_ready_2"]
    assert edges_of("control", table) == []


@pytest.mark.parametrize(
    ("changes", "slots"),
    [
        ({}, {"q": 2, "kv": 3, "o": 2, "row_sum": 2, "s0": 1, "p1": 1}),
        ({"o_stages": 1, "kv_stages": 4}, {"kv": 4, "o": 1}),
        ({"statistics": "tmem"}, {"row_sum0": 1, "acc_scale1": 1, "o": 2}),
    ],
    ids=["tuned", "one_o_stage", "tmem"],
)
def test_regions_have_their_slots_and_the_edges_that_guard_them(changes, slots):
    tuned = make_plan(CONFIG)
    plan = make_plan(CONFIG, replace(tuned.schedule, **changes))
    regions = {r["name"]: r for memory in memories(plan, protocol(plan)) for r in memory["regions"]}
    assert {name: regions[name]["slots"] for name in slots} == slots
    for name, region in regions.items():
        if name.startswith("row_sum"):
            assert region["note"] == "row_sum.full, row_sum.empty"


def test_hopper_has_no_tensor_memory():
    assert [memory["key"] for memory in facts(study(arch="sm_90a"))["memory"]] == ["smem", "registers"]


def test_cycles_of_a_role_add_up_to_a_key_block():
    made = study()
    time = facts(made)["time"]
    assert time["roles"] == ["load", "mma", "softmax 0", "softmax 1"]
    assert time["lanes"] == [*time["roles"], "tensor pipe", "TMA"]
    for role, cycles in time["cycles"].items():
        assert sum(cycles) == pytest.approx(made.prediction.block_cycles), role
    exponentials = time["columns"].index("exponentials")
    # each warpgroup does one of two blocks
    assert time["cycles"]["softmax 0"][exponentials] == pytest.approx(400.0)


def test_waits_are_the_models_and_name_who_ended_them():
    made = study()
    waits = facts(made)["time"]["waits"]
    assert [(w["role"], w["edge"], w["cycles"]) for w in waits] == [
        (row.role, row.edge, row.cycles) for row in made.prediction.stalls
    ]
    by = {(wait["role"], wait["edge"]): wait["by"] for wait in waits}
    assert by["load", "kv_load.empty"] == {"tensor pipe": 1.0}
    assert by["mma", "kv_load.full"] == {"TMA": 1.0}
    assert set(by["mma", "p_o_rescale"]) == {"softmax 0", "softmax 1"}
    assert sum(by["mma", "p_o_rescale"].values()) == pytest.approx(1.0)
    assert released_by(made.timeline, "mma", "no such edge", 0, 1e9) == {}


def test_spans_say_what_is_done():
    time = facts(study())["time"]
    assert {span["what"] for span in time["spans"] if span["lane"] == "tensor pipe"} == {"QKᵀ", "PV"}
    assert {span["what"] for span in time["spans"] if span["lane"] == "softmax 0"} == {
        "wait", "exponentials", "TMEM read"
    }  # fmt: skip
    assert (time["end"], time["blocks"]) == (study().timeline.end, BLOCKS)


@pytest.mark.parametrize(
    ("writes", "name"), [("ctx_s_tmem", "QKᵀ"), ("ctx_o_tmem", "PV"), ("rows_s", "QKᵀ"), ("x", "product x")]
)
def test_products_are_named_by_what_they_write(writes, name):
    assert product(writes) == name


def test_pieces_without_a_gap_are_one_span():
    piece = {"lane": "mma", "what": "wait", "edge": "tensor pipe", "by": "tensor pipe"}
    other = {"lane": "load", "what": "load", "start": 0.0, "end": 9.0}
    spans = [
        {**piece, "start": 0.0, "end": 2.0, "released": 2.0},
        other,
        {**piece, "start": 2.0, "end": 5.0, "released": 4.0},
        {**piece, "start": 6.0, "end": 7.0, "released": 7.0},
    ]
    assert merged(spans) == [
        {**piece, "start": 0.0, "end": 5.0, "released": 4.0, "pieces": 2},
        {**other, "pieces": 1},
        {**piece, "start": 6.0, "end": 7.0, "released": 7.0, "pieces": 1},
    ]
    assert "pieces" not in spans[0]


def test_two_schedules_differ_in_what_was_changed():
    made = two()
    found = made["differences"]
    assert found["knobs"] == [{"name": "stagger", "a": "False", "b": "True"}, {"name": "kv_stages", "a": "3", "b": "2"}]
    edges = {(row["name"], row["change"]): (row["a"], row["b"]) for row in found["edges"]}
    assert edges["exp_turn", "only in B"] == ("–", "128 softmax")
    assert edges["kv_load.full", "kind x slots"] == ("TMA mbarrier x3", "TMA mbarrier x2")
    assert {name for name, _ in edges} == {"exp_turn", "kv_load.full", "kv_load.empty"}
    figures = {row["key"]: row for row in found["figures"]}
    block = [side.prediction.block_cycles for side in (study(), study(exponentials=900.0, kv_stages=2, stagger=True))]
    assert figures["block_cycles"]["change"] == pytest.approx(100 * (block[1] / block[0] - 1))
    assert figures["critical"]["change"] is None
    waits = {(row["role"], row["edge"]): row["b"] - row["a"] for row in found["waits"]}
    assert waits["mma", "p_o_rescale"] == pytest.approx(100.0)
    # an edge has one number on both sides
    assert made["edges"]["exp_turn"] == len(study().table.edges) + 1
    numbers = [{e["name"]: e["number"] for e in side["protocol"]["edges"]} for side in made["sides"]]
    assert numbers[0].items() <= made["edges"].items()
    assert numbers[1] == made["edges"]


def test_all_knobs_are_listed_and_all_is_json():
    made = two()
    json.dumps(made, allow_nan=False)
    assert list(made["sides"][0]["knobs"]) == [field.name for field in fields(study().plan.schedule)]
    assert made["sides"][1]["changes"] == {"kv_stages": "2", "stagger": "True"}
