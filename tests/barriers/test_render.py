"""The protocol table as Markdown, as a graph and as data."""

from __future__ import annotations

import json

import pytest

from tests.cases import CONFIGURATIONS, KNOBS
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.barriers import render
from tirx_attn.barriers.protocol import Kind, protocol
from tirx_attn.schedule import make_plan

CONFIG = AttentionConfig(1, 256, 384, 2, 1, 128)
PLANS = [pytest.param(make_plan(case.config, case.schedule), id=case.name) for case in (*CONFIGURATIONS, *KNOBS)]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


@pytest.mark.parametrize("plan", PLANS)
def test_markdown_has_one_row_per_edge(plan):
    table = protocol(plan)
    header, rule, *rows = render.to_markdown(table).splitlines()
    assert cells(header) == list(render.COLUMNS)
    assert set(rule) == {"|", "-"}
    assert [cells(row)[0] for row in rows] == [edge.name for edge in table.edges]
    assert {len(cells(row)) for row in (rule, *rows)} == {len(render.COLUMNS)}
    for row, edge in zip(rows, table.edges, strict=True):
        assert cells(row)[1] == f"{edge.kind.value} x{edge.stages}"
        assert cells(row)[3] == ", ".join(edge.consumers)


def row(name: str, **changes) -> tuple[str, ...]:
    return render.edge_row(protocol(make_plan(CONFIG, Schedule(**changes)))[name])


def test_the_row_where_two_roles_arrive():
    name, kind, arrives, waits, _, start = row("p_o_rescale")
    assert (name, kind, waits, start) == ("p_o_rescale", "mbarrier x2", "mma", "correction arrives once")
    assert arrives.startswith("softmax 128: ")
    assert "; correction 128: " in arrives
    assert arrives.endswith(" = 256")


def test_the_row_of_a_tma_barrier():
    _, kind, arrives, waits, _, start = row("kv_load.full")
    assert (kind, waits, start) == ("TMA mbarrier x3", "mma", "-")
    assert arrives.startswith("load 1: ")
    assert arrives.endswith(" + 32768 bytes")


def test_the_row_of_a_named_barrier():
    _, kind, arrives, waits, _, _ = row("stats.full")
    assert (kind, waits) == ("hardware named barrier x8", "correction")
    assert arrives.endswith(" + 32 waiting = 64")


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("kv_load.empty", "free"),
        ("exp_turn", "stage 0 free"),
        ("p_o_rescale", "softmax arrives once"),
        ("p_ready_2", "-"),
    ],
)
def test_what_holds_at_the_start(name, state):
    assert row(name, stagger=True, epilogue_owner="softmax")[5] == state


@pytest.mark.parametrize("plan", PLANS)
def test_the_graph_has_a_line_from_each_producer_to_each_consumer(plan):
    table = protocol(plan)
    first, *lines = render.to_mermaid(table).splitlines()
    assert first == "graph LR"
    assert lines == [
        f'    {producer.role} -- "{edge.name} {producer.arrivals}" --> {consumer}'
        for edge in table.edges
        for producer in edge.producers
        for consumer in edge.consumers
    ]


@pytest.mark.parametrize("plan", PLANS)
def test_the_table_survives_json(plan):
    table = protocol(plan)
    data = json.loads(json.dumps(render.to_dict(table)))
    assert (data["mbarriers"], data["named_barriers"]) == (table.mbarriers, table.named_barriers)
    for row, edge in zip(data["edges"], table.edges, strict=True):
        assert row == {
            "name": edge.name,
            "kind": edge.kind.value,
            "slots": edge.stages,
            "count": edge.count,
            "tx_bytes": edge.tx_bytes,
            "producers": [
                {"role": p.role, "arrivals": p.arrivals, "signal": p.signal, "groups": p.groups} for p in edge.producers
            ],
            "consumers": list(edge.consumers),
            "protects": edge.protects,
            "credit": edge.credit,
            "free_stages": list(edge.free_stages),
        }
        assert Kind(row["kind"]) is edge.kind


def test_a_declaration_holds_roles_protocol_and_limits():
    plan = make_plan(CONFIG)
    data = json.loads(render.declaration(plan.warps, protocol(plan), plan.target))
    assert {role["name"]: role["registers"] for role in data["roles"]} == {
        "softmax": 192,
        "correction": 80,
        "mma": 48,
        "load": 48,
        "store": 48,
    }
    assert data["protocol"] == json.loads(json.dumps(render.to_dict(protocol(plan))))
    assert data["registers"] == 65536
