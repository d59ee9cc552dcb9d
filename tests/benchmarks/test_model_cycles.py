"""Predicted and measured cycles side by side; Nsight Compute is a program that stands in for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import model_cycles
from benchmarks.model_variants import PREDICTED

ROOT = Path(__file__).parents[2]
COUNTERS = """==PROF== Connected to process 7
"ID","Kernel Name","sm__cycles_elapsed.max"
"","","cycle"
"0","flash_attention","1,234,567"
"1","flash_attention","1300000"
"""


def test_measuring_needs_no_tvm():
    """As on a machine that has a GPU and the exported libraries."""
    script = "import sys, benchmarks.model_cycles; print([name for name in ('tvm', 'simpy') if name in sys.modules])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "[]\n"


def test_counters_of_the_raw_page():
    assert list(model_cycles.read_cycles(COUNTERS.splitlines())) == [1234567.0, 1300000.0]


def test_the_page_predicts_every_row():
    predicted = model_cycles.predictions(model_cycles.PAGE.read_text())
    assert list(predicted) == [model_cycles.title(row) for row in range(len(PREDICTED))]


def test_variants_have_files_of_their_own():
    names = {(shape.d, shape.heads, shape.causal, json.dumps(changes, sort_keys=True)) for shape, changes in PREDICTED}
    assert len({model_cycles.library(shape, changes) for shape, changes in PREDICTED}) == len(names)


@pytest.mark.parametrize(
    ("predicted", "measured", "right"),
    [(2.0, 3.0, True), (2.0, 3.1, False), (3.0, 2.0, True), (-2.0, 2.0, False), (-4.0, -3.0, True), (0.0, 0.0, False)],
)
def test_sign_and_size_decide(predicted, measured, right):
    assert model_cycles.is_right(predicted, measured) is right


def fake_ncu(tmp_path, launches: int, status: int = 0):
    """A program that prints counters: 1000 and 1100 cycles by turns, the first of each far off."""
    program = tmp_path / "ncu"
    program.write_text(
        f"""#!{sys.executable}
import sys
print('"ID","{model_cycles.METRIC}"')
print('"","cycle"')
for i in range({launches}):
    print(f'"{{i}}","{{(1000, 1100)[i % 2] * (10 if i < 2 else 1)}}"')
sys.exit({status})
"""
    )
    program.chmod(0o755)
    return str(program)


def test_a_measurement_is_the_change_of_the_medians(tmp_path, capsys):
    output = tmp_path / "cycles.json"
    options = ["--measure", str(tmp_path), "-o", str(output)]
    assert model_cycles.main([*options, "--ncu", fake_ncu(tmp_path, 2 * (1 + model_cycles.TURNS))]) == 0
    found = json.loads(output.read_text())
    assert list(found) == [model_cycles.title(row) for row in range(len(PREDICTED))]
    first = found[model_cycles.title(0)]
    assert (first["tuned"], first["changed"]) == ([1000.0] * model_cycles.TURNS, [1100.0] * model_cycles.TURNS)
    assert first["percent"] == pytest.approx(10.0)
    capsys.readouterr()
    assert model_cycles.main(["--table", str(output)]) == 0
    assert "| +10.0 % | no |" in capsys.readouterr().out


@pytest.mark.parametrize(("launches", "status", "message"), [(16, 9, "ended with 9"), (3, 0, "saw 3 launches")])
def test_what_goes_wrong_is_said(tmp_path, launches, status, message):
    with pytest.raises(RuntimeError, match=message):
        model_cycles.measure(tmp_path, tmp_path / "cycles.json", fake_ncu(tmp_path, launches, status))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--measure", "none", "-o", "x"], "--measure none: allowed is a folder that --export wrote"),
        (["--measure", ".", "-o", "x", "--ncu", "no-such-ncu"], "--ncu no-such-ncu: there is no such program"),
        (["--launch", ".", "99"], "--launch row 99: allowed are 0 to 13"),
        (["--launch", ".", "first"], "--launch row first: allowed are 0 to 13"),
        (["--table", "none.json"], "--table none.json: allowed is a file that --measure wrote"),
        (["--table", "other.json"], "--table other.json: allowed is a file that --measure wrote"),
    ],
)
def test_wrong_words_are_refused_by_name(options, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "other.json").write_text('{"a": 1}')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        model_cycles.main(options)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
