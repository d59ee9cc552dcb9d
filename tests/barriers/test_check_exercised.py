"""What a report says of the phases and branches that its launch came to."""

from __future__ import annotations

import pytest

from tests.barriers.checked import headline, kernel
from tests.barriers.edited import build, place
from tests.barriers.faults import FAULTS
from tirx_attn import AttentionConfig
from tirx_attn.barriers.check import NONE_TAKEN, SOME_TAKEN, check
from tirx_attn.family import get_kernel

STORE = f"branch {place({}, 'roles/tma.py', 'if token < ctx.counts.sq')}"
"""Whether a query tile has rows to store."""


def slots(report, edge: str) -> list[dict]:
    """What a report says of an edge, slot by slot."""
    return [each for each in report.to_dict()["exercised"]["edges"] if each["edge"] == edge]


def unseen(report, start: str) -> list[str]:
    return [line for line in report.exercised.unseen if line.startswith(start)]


class TestPhases:
    """The base of the mutants: four tasks of four key blocks on one CTA, and a ring of K and V of three slots."""

    def test_each_task_uses_both_slots_of_q(self):
        report = check(kernel("correction"))
        full = {"edge": "q_load.full", "waits": [2, 2], "wrapped": True}
        assert slots(report, "q_load.full") == [{**full, "slot": 0}, {**full, "slot": 1}]
        # The wait of the first task passes at once: the slot is free.
        empty = {"edge": "q_load.empty", "waits": [2, 1], "wrapped": True}
        assert slots(report, "q_load.empty") == [{**empty, "slot": 0}, {**empty, "slot": 1}]
        assert unseen(report, "q_load") == ["q_load.empty[0, 1]: phase 1 once"]

    def test_the_tiles_of_all_tasks_go_round_the_ring(self):
        """32 tiles of K and V in three slots: eleven uses of the first two, ten of the last."""
        report = check(kernel("correction"))
        assert [each["waits"] for each in slots(report, "kv_load.full")] == [[6, 5], [6, 5], [5, 5]]
        assert [each["waits"] for each in slots(report, "kv_load.empty")] == [[5, 5], [5, 5], [5, 4]]

    def test_uses_of_a_hardware_named_barrier(self):
        """A pair of warps meets in each block of a task but for its first: 4 x 3 times."""
        found = slots(check(kernel("correction")), "stats.full")
        assert [(each["slot"], each["waits"]) for each in found] == [(slot, [6, 6]) for slot in range(8)]

    def test_a_cta_with_one_task_waits_for_no_slot_of_q_again(self):
        report = check(get_kernel(AttentionConfig(1, 256, 128, 1, 1, 128), arch="sm_90a"))
        assert [(each["waits"], each["wrapped"]) for each in slots(report, "q_load.empty")] == [([0, 0], False)] * 2
        assert "o_staged.empty[0]: phase 0 never, phase 1 never" in report.exercised.unseen

    @pytest.mark.slow
    def test_wrapped_is_a_parity_that_came_again(self):
        """2, 3 and 4 key blocks are 4, 6 and 8 tiles in a ring of three slots."""
        for blocks, uses in ((2, [2, 1, 1]), (3, [2, 2, 2]), (4, [3, 3, 2])):
            report = check(get_kernel(AttentionConfig(1, 256, 128 * blocks, 1, 1, 128)))
            found = slots(report, "kv_load.full")
            assert [sum(each["waits"]) for each in found] == uses
            assert [each["wrapped"] for each in found] == [n > 2 for n in uses]


class TestBranches:
    def test_a_branch_that_no_task_takes(self):
        """Without a causal mask all tasks have keys; no test of the lengths is left that goes both ways."""
        report = check(kernel("correction"))
        assert unseen(report, STORE.partition(":")[0]) == [f"{STORE}: not taken never"]
        branches = report.to_dict()["exercised"]["branches"]
        # Eight tiles of O, each stored.
        assert {"branch": STORE, "not_taken": 0, "taken": 8} in branches

    def test_a_branch_on_data_goes_both_ways(self):
        (rescale,) = [
            each
            for each in check(kernel("correction")).to_dict()["exercised"]["branches"]
            if each["branch"] == f"branch {place({}, 'roles/correction.py', 'if T.cuda.any_sync(')}"
        ]
        # 4 tasks x 3 blocks x 2 stages, all of them in one play or another.
        assert (rescale["not_taken"], rescale["taken"]) == (24, 24)

    def test_a_long_cta_takes_each_branch_on_data_in_one_play_with_the_others(self):
        """For callers that play short launches as well."""
        events = {branch: events for _, branch, events in check(kernel("correction")).plays}
        report = check(kernel("correction"), long=events[NONE_TAKEN] - 1)
        assert [(branch, events) for _, branch, events in report.plays] == [
            (branch, events[branch]) for branch in (NONE_TAKEN, SOME_TAKEN)
        ]
        assert len(check(kernel("correction"), long=events[NONE_TAKEN]).plays) == len(events)

    @pytest.mark.slow
    def test_tasks_with_one_block_of_keys_and_without_keys(self):
        """Of a task with keys, one without; the blocks after the first one are a loop."""
        name = "causal_rows_without_keys"  # 256 keys: the first task sees none, the second one both blocks
        for ctas, keys, loop in (((0,), [0, 1], [0, 1]), ((1,), [1, 0], [0, 0]), ((0, 1), [1, 1], [0, 1])):
            branches = {each["branch"]: [each["not_taken"], each["taken"]]
                        for each in check(kernel(name), ctas=ctas).to_dict()["exercised"]["branches"]}  # fmt: skip
            assert branches[f"branch {place({}, 'roles/load.py', 'if key_blocks > 0')}"] == keys
            assert branches[f"loop {place({}, 'roles/load.py', 'for i in T.serial')}"] == loop


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_a_short_launch_has_no_use_of(tmp_path, name):
    """The short launch is clean, and says that it did not come to what is at fault."""
    fault = FAULTS[name]
    short, long = (
        check(build(tmp_path / str(shape), fault.edits, shape, fault.arch, fault.is_causal))
        for shape in (fault.short, fault.long)
    )
    assert (short.verdict, long.verdict) == ("clean", "error")
    assert (long.findings[0].kind, long.findings[0].edge) == (fault.kind, fault.edge), headline(long)
    never = [line for line in short.exercised.unseen if "never" in line]
    assert any(line.startswith(fault.unseen) for line in never), never
