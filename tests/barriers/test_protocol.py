"""The protocol table: counts that follow from the warps, credits that follow from the epilogue's owner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cases import CASES
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.barriers.protocol import Edge, Kind, Producer, Protocol, part_edge, protocol
from tirx_attn.schedule import Plan, make_plan
from tirx_attn.schedule.parts import Role
from tirx_attn.targets import B200

CONFIG = AttentionConfig(1, 256, 384, 2, 1, 128)
OWNERS = ("correction", "softmax")
TABLES = [pytest.param(make_plan(case.config, case.schedule), id=case.name) for case in CASES]


def table(**changes) -> Protocol:
    return protocol(make_plan(CONFIG, Schedule(**changes)))


# Arrivals per phase: a warpgroup has 128 threads, a warp 32, a TMA expect-tx and a tcgen05.commit arrive once.
COUNTS = {
    "q_load.full": 1,
    "q_load.empty": 1,
    "kv_load.full": 1,
    "kv_load.empty": 1,
    "s_ready": 1,
    "p_o_rescale": 128 + 128,
    "p_ready_2": 128,
    "o_ready": 1,
    "stats.full": 32 + 32,
    "o_staged.full": 128,
    "o_staged.empty": 32,
}
SLOTS = dict.fromkeys(COUNTS, 2) | {"kv_load.full": 3, "kv_load.empty": 3, "stats.full": 8}
KINDS = {
    "q_load.full": Kind.TMA,
    "q_load.empty": Kind.COMMIT,
    "kv_load.full": Kind.TMA,
    "kv_load.empty": Kind.COMMIT,
    "s_ready": Kind.COMMIT,
    "o_ready": Kind.COMMIT,
    "stats.full": Kind.NAMED,
}


# Only where row_sum goes from softmax to the epilogue's owner.
ROW_SUM = {"row_sum.full": 128, "row_sum.empty": 128}


@pytest.mark.parametrize("owner", OWNERS)
def test_counts_slots_and_kinds(owner):
    edges = {edge.name: edge for edge in table(epilogue_owner=owner).edges}
    sums = ROW_SUM if owner == "correction" else {}
    assert {name: edge.count for name, edge in edges.items()} == COUNTS | sums
    assert {name: edge.stages for name, edge in edges.items()} == SLOTS | dict.fromkeys(sums, 2)
    assert {name: edge.kind for name, edge in edges.items()} == {name: KINDS.get(name, Kind.THREADS) for name in edges}


@pytest.mark.parametrize("owner", OWNERS)
def test_who_arrives_and_who_waits(owner):
    edges = table(epilogue_owner=owner).edges
    sums = {"row_sum.full": ({"softmax"}, {"correction"}), "row_sum.empty": ({"correction"}, {"softmax"})}
    assert {edge.name: ({p.role for p in edge.producers}, set(edge.consumers)) for edge in edges} == {
        "q_load.full": ({"load"}, {"mma"}),
        "q_load.empty": ({"mma"}, {"load"}),
        "kv_load.full": ({"load"}, {"mma"}),
        "kv_load.empty": ({"mma"}, {"load"}),
        "s_ready": ({"mma"}, {"softmax"}),
        "p_o_rescale": ({"softmax", "correction"}, {"mma"}),
        "p_ready_2": ({"softmax"}, {"mma"}),
        "o_ready": ({"mma"}, {owner}),
        "stats.full": ({"softmax"}, {"correction"}),
        "o_staged.full": ({owner}, {"store"}),
        "o_staged.empty": ({"store"}, {owner}),
    } | (sums if owner == "correction" else {})


def test_statistics_pairwise_or_collective():
    """Pairwise: 32 + 32 threads on one barrier for each of the 8 pairs of warps; collective: 128 + 128 on 2."""
    pairwise, collective = table(statistics="pairwise")["stats.full"], table(statistics="collective")["stats.full"]
    assert (pairwise.count, pairwise.stages) == (64, 8)
    assert (collective.count, collective.stages) == (256, 2)
    for edge in (pairwise, collective):
        assert edge.count == 2 * edge.waiting


def test_bytes_of_a_tma_phase_are_a_full_tile():
    edges = {edge.name: edge.tx_bytes for edge in table().edges if edge.tx_bytes}
    assert edges == {"q_load.full": 32768, "kv_load.full": 32768}


@pytest.mark.parametrize("owner", OWNERS)
def test_the_credit_of_the_epilogue_owner(owner):
    """O may be overwritten in the first task: nobody has to read it before."""
    edges = table(epilogue_owner=owner)
    assert {edge.name: edge.credit for edge in edges.edges if edge.credit} == {"p_o_rescale": owner}
    (given,) = (p.arrivals for p in edges["p_o_rescale"].producers if p.role == "correction")
    assert given == make_plan(CONFIG).warps[owner].threads == 128


def test_slots_that_are_free_at_the_start_are_those_of_empty_edges():
    free = {edge.name: edge.free_stages for edge in table().edges if edge.free_stages}
    two = dict.fromkeys(("q_load.empty", "o_staged.empty", "row_sum.empty"), (0, 1))
    assert free == two | {"kv_load.empty": (0, 1, 2)}
    for edge in table(stagger=True).edges:
        for stage in range(edge.stages):
            assert edge.first_wait_parity(stage) == (1 if stage in edge.free_stages else 0)


def test_staggering_adds_one_edge_and_lets_stage_0_go_first():
    staggered, plain = table(stagger=True), table()
    assert [edge.name for edge in staggered.edges] == [*[edge.name for edge in plain.edges], "exp_turn"]
    turn = staggered["exp_turn"]
    assert (turn.kind, turn.stages, turn.count) == (Kind.THREADS, 2, 128)
    assert ({p.role for p in turn.producers}, turn.consumers) == ({"softmax"}, ("softmax",))
    assert [turn.first_wait_parity(stage) for stage in (0, 1)] == [1, 0]


@pytest.mark.parametrize(
    ("changes", "mbarriers", "named"),
    [
        ({}, 26, 8),
        ({"kv_stages": 2}, 24, 8),
        ({"stagger": True}, 28, 8),
        ({"statistics": "collective"}, 26, 2),
        ({"epilogue_owner": "softmax"}, 22, 8),
        ({"statistics": "tmem"}, 26, 8),
        ({"pv_split": (128,)}, 24, 8),
        ({"pv_split": (32, 32, 32, 32)}, 30, 8),
        ({"kv_stages": 4, "o_stages": 1}, 28, 8),
        ({"rescale": "always", "mma_order": "by_product"}, 26, 8),
    ],
)
def test_barriers_in_all(changes, mbarriers, named):
    assert (table(**changes).mbarriers, table(**changes).named_barriers) == (mbarriers, named)


def changed(**changes) -> dict[str, Edge]:
    """Rows that knobs change or add, by name."""
    return {edge.name: edge for edge in table(**changes).edges if edge not in table().edges}


@pytest.mark.parametrize(
    ("split", "names"),
    [
        ((128,), []),
        ((64, 64), ["p_ready_2"]),
        ((32, 64, 32), ["p_ready_2", "p_ready_3"]),
        ((32, 32, 32, 32), ["p_ready_2", "p_ready_3", "p_ready_4"]),
    ],
)
def test_each_part_of_p_has_an_edge(split, names):
    edges = table(pv_split=split)
    found = [edge for edge in edges.edges if edge.name.startswith("p_")]
    assert [edge.name for edge in found] == ["p_o_rescale", *names] == [part_edge(i) for i in range(len(split))]
    for edge in found[1:]:
        assert (edge.count, edge.stages, edge.consumers, edge.free_stages) == (128, 2, ("mma",), ())
        assert {p.role for p in edge.producers} == {"softmax"}
    assert [edge.protects for edge in found[2:-1]] == ["part 3 of P is in TMEM"] * (len(split) - 3)


@pytest.mark.parametrize("owner", OWNERS)
def test_one_staging_tile_is_used_by_turns(owner):
    two, one = (table(o_stages=n, epilogue_owner=owner) for n in (2, 1))
    (edge,) = (edge for edge in one.edges if edge not in two.edges)
    assert (edge.name, edge.stages, edge.count, edge.consumers) == ("o_staged.empty", 2, 32, (owner,))
    assert [edge.first_wait_parity(stage) for stage in (0, 1)] == [1, 0]
    assert [two["o_staged.empty"].first_wait_parity(stage) for stage in (0, 1)] == [1, 1]


def test_the_mma_role_waits_for_the_row_sum_that_its_scores_overwrite():
    rows = changed(statistics="tmem")
    assert set(rows) == {"stats.full", "row_sum.full", "row_sum.empty"}
    assert (rows["stats.full"].stages, rows["stats.full"].count) == (8, 64)  # as pairwise
    assert (rows["row_sum.empty"].consumers, rows["row_sum.empty"].free_stages) == (("mma",), (0, 1))
    assert all("TMEM" in rows[name].protects for name in ("stats.full", "row_sum.full"))
    assert "row_sum.empty" not in table(statistics="tmem", epilogue_owner="softmax")


@pytest.mark.parametrize("changes", [{"rescale": "always"}, {"mma_order": "by_product"}])
def test_some_knobs_change_no_edge(changes):
    assert changed(**changes) == {}


@pytest.mark.parametrize("plan", TABLES)
def test_every_case_fits_the_hardware(plan):
    edges = protocol(plan)
    assert edges.named_barriers <= 15  # barrier 0 belongs to the CTA-wide sync
    assert plan.target.mbarrier_bytes * edges.mbarriers + 4 <= plan.smem.control.size
    names = [edge.name for edge in edges.edges]
    assert len(names) == len(set(names))
    roles = {role.name for role in plan.warps.roles}
    for edge in edges.edges:
        assert {p.role for p in edge.producers} | set(edge.consumers) | {edge.credit or "mma"} <= roles
        assert edge.protects
        assert edge.stages >= 1
        assert 1 <= edge.count < 2**20  # what an mbarrier can count


def with_warps(plan: Plan, **roles: Role) -> Plan:
    """`plan` with other roles in its warps."""
    changed = replace(plan)
    changed.__dict__["warps"] = replace(plan.warps, **roles)  # where cached_property keeps it
    return changed


def test_counts_follow_the_number_of_warps():
    """A correction role of one warp and a store role of four: no count is typed."""
    plan = make_plan(CONFIG)
    warps = plan.warps
    correction, store = replace(warps.correction, warp=0), replace(warps.store, warp=None)
    edges = protocol(with_warps(plan, correction=correction, store=store))
    assert edges["p_o_rescale"].count == 128 + 32
    assert edges["row_sum.empty"].count == 32
    assert edges["o_staged.full"].count == 32
    assert edges["o_staged.empty"].count == 128
    assert edges["p_ready_2"].count == 128  # softmax only
    assert protocol(plan)["p_o_rescale"].count == 256


def test_too_many_named_barriers_are_refused():
    plan = Plan(CONFIG, Schedule(), replace(B200, named_barriers=8))
    with pytest.raises(ValueError, match=r"statistics='pairwise': needs 8 named barriers, allowed are 7"):
        protocol(plan)
    assert protocol(Plan(CONFIG, Schedule(statistics="collective"), plan.target)).named_barriers == 2


def test_rows_are_found_by_name():
    edges = table()
    assert edges["s_ready"].name == "s_ready"
    assert "s_ready" in edges
    assert "exp_turn" not in edges
    with pytest.raises(KeyError, match="exp_turn"):
        edges["exp_turn"]


def test_a_named_barrier_counts_who_arrives_and_who_waits():
    producers = (Producer("softmax", 96, "written"),)
    assert Edge("mail", Kind.NAMED, 1, producers, ("correction",), "written").count == 192
    assert Edge("mail", Kind.THREADS, 1, producers, ("correction",), "written").count == 96
