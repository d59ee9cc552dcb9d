"""What the structural check costs: the kernels that are measured, and the table."""

from __future__ import annotations

import json

import pytest

from benchmarks import check_time


def test_each_program_runs_in_a_process_of_its_own(monkeypatch, capsys):
    programs = []
    monkeypatch.setattr(check_time, "seconds", lambda program, rounds: programs.append((program, rounds)) or 1.5)
    assert check_time.main(["--rounds", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        f"| {name} | 1.50 |" for name in (check_time.IMPORT, *check_time.KERNELS)
    ]
    assert [rounds for _, rounds in programs] == [2] * (1 + len(check_time.KERNELS))
    assert {arch for arch, _, _ in check_time.KERNELS.values()} == {"sm_100a", "sm_90a"}


def test_the_median_of_what_a_program_prints(tmp_path):
    count = tmp_path / "count"
    count.write_text("")
    program = f"p = {str(count)!r}; n = len(open(p).read()); open(p, 'a').write('x'); print([3.0, 1.0, 2.0][n])"
    assert check_time.seconds(program, 3) == 2.0
    assert count.read_text() == "xxx"


@pytest.mark.slow
def test_a_check_that_is_measured(monkeypatch, capsys):
    name = "sm_90a, non-causal"
    monkeypatch.setattr(check_time, "KERNELS", {name: check_time.KERNELS[name]})
    assert check_time.main(["--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["import tvm", name]
    assert min(found.values()) > 0
