"""The kernel against its table: the table is changed here, and the kernel stays as it is."""

from __future__ import annotations

import json

import pytest

from tests.barriers.checked import kernel
from tirx_attn.barriers import PROTOCOL_ATTRIBUTE
from tirx_attn.barriers.check import check
from tirx_attn.barriers.checker.declared import Declared


def messages(change) -> list[str]:
    """What the check says of a base whose table `change` edits."""
    func = kernel("correction")
    table = json.loads(str(func.attrs[PROTOCOL_ATTRIBUTE]))
    change(table, {edge["name"]: edge for edge in table["protocol"]["edges"]})
    return [f.message for f in check(func.with_attr(PROTOCOL_ATTRIBUTE, json.dumps(table))).findings]


def starts(found: list[str], text: str) -> bool:
    return any(message.startswith(text) for message in found)


def test_the_table_as_it_is():
    assert messages(lambda table, edges: None) == []


def test_a_role_that_does_not_declare_its_arrivals():
    def change(table, edges):
        edges["row_sum.empty"].update(producers=[])

    assert starts(messages(change), "row_sum.empty: correction arrives on it, declared are : arrive on")


def test_a_role_that_does_not_declare_its_waits():
    found = messages(lambda table, edges: edges["s_ready"].update(consumers=["correction"]))
    assert starts(found, "s_ready: softmax 0 waits for it, declared are correction: wait on s_ready (roles/softmax.py:")
    assert "s_ready[1]: correction never waits for it, as it declares" in found


@pytest.mark.parametrize(("name", "slots"), [("kv_load.full", 4), ("p_ready_2", 1)])
def test_slots(name, slots):
    found = messages(lambda table, edges: edges[name].update(slots=slots))
    assert any(m.startswith(f"{name}: has ") and m.endswith(f"slots, declared are {slots}") for m in found)


def test_bytes():
    found = messages(lambda table, edges: edges["q_load.full"].update(tx_bytes=16384))
    assert found == ["q_load.full: load expects 32768 bytes, declared are 16384 (a full tile)"]


def test_a_barrier_that_is_not_in_the_table():
    def change(table, edges):
        table["protocol"]["edges"].remove(edges["o_ready"])

    assert "o_ready: this barrier is not in the table" in messages(change)


def test_free_stages():
    found = messages(lambda table, edges: edges["o_staged.empty"].update(free_stages=[]))
    assert starts(found, "o_staged.empty[0]: correction first waits for phase -1, declared is that the slot is not")


def test_registers():
    found = messages(lambda table, edges: table["roles"][0].update(registers=128))
    assert starts(found, "setmaxnreg: softmax 0 takes ")
    assert all(message.endswith("registers, declared are 128") for message in found)


def test_register_file():
    found = messages(lambda table, edges: table.update(registers=32768))
    assert len(found) == 1
    assert found[0].endswith("registers, the SM has 32768")


class TestNames:
    def test_roles(self):
        declared = Declared(kernel("correction"))
        names = [declared.role_of(warp) for warp in range(16)]
        assert names == ["softmax 0"] * 4 + ["softmax 1"] * 4 + ["correction"] * 4 + ["mma", "load", "store", "warp 15"]

    def test_named_barriers_start_behind_the_cta_sync(self):
        """Pairwise statistics: a barrier for each of the 4 pairs of warps of a stage."""
        declared = Declared(kernel("correction"))
        assert [declared.barrier_name(n) for n in (0, 1, 8)] == ["CTA sync", "stats.full[0]", "stats.full[7]"]
        assert declared.barrier_name(9) == "named barrier 9"

    @pytest.mark.slow
    def test_a_stage_has_its_own_softmax_group(self):
        declared = Declared(kernel("softmax"))
        assert declared.producers_of("p_ready_2", 1) == [4, 5, 6, 7]
        assert declared.producers_of("exp_turn", 1) == [0, 1, 2, 3]  # told by the other one

    def test_without_a_table_names_are_numbers(self):
        from tests.barriers.checker.kernels import handshake

        declared = Declared(handshake())
        assert (declared.role_of(3), declared.edge_name("full")) == ("warp 3", "full")
