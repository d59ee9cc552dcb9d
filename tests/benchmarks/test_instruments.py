"""The cost of instruments: what is timed, and what is said of it."""

from __future__ import annotations

import json

import pytest

from benchmarks import instruments
from benchmarks.instruments import BASE, ROWS, Cost, Program


def test_the_least_of_all_rounds_counts(monkeypatch):
    costs = iter([Cost(3, 2), Cost(9, 8), Cost(4, 1), Cost(7, 9)])
    monkeypatch.setattr(instruments, "once", lambda program: next(costs))
    assert instruments.measure({"a": Program("a"), "b": Program("b")}, rounds=2) == {"a": Cost(3, 1), "b": Cost(7, 8)}


def test_the_ratio_is_to_the_import(monkeypatch, capsys):
    costs = {ROWS[BASE]: Cost(2.0, 1.0)}
    monkeypatch.setattr(instruments, "once", lambda program: costs.get(program, Cost(5.0, 4.0)))
    assert instruments.main(["--rounds", "1", "--rows", "plan", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["ratio"] for row in found.values()] == [1.0, 4.0]
    assert instruments.main(["--rounds", "1", "--rows", "plan"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("| 5.00 | 4.00 | 4.00 |")


@pytest.mark.slow
def test_a_check_and_a_build_print_their_own_cost():
    for name in ("check, sm_90a", "build, causal 8192, sm_90a"):
        cost = instruments.once(ROWS[name])
        assert ROWS[name].prints
        assert cost.processor > 0


def test_a_program_is_a_process_and_may_print_its_own_cost():
    cost = instruments.once(Program("print(sum(range(3 * 10**6)))"))
    assert cost.processor > 0
    assert cost.clock > 0
    assert instruments.once(Program("print(0.25)", prints=True)).processor == 0.25
