"""docs/studies.md says what the functions give; the measured numbers are those that theory has; the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies import __main__ as command
from benchmarks.studies import language_model, measured
from benchmarks.studies.tables import STUDIES, markdown
from tirx_attn.analysis.rescale import block_maxima

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "studies.md").read_text()
FOLDER = DOCS / "studies"
RECORD = command.read_record(FOLDER)
AGAIN = "run: python -m benchmarks.studies -o docs/studies --page docs/studies.md"


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_the_page_has_the_table(study):
    assert f"<!-- table {study.name} -->\n{markdown(study, RECORD)}\n\n" in PAGE, AGAIN


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_the_page_shows_the_picture(study):
    assert f"](studies/{study.name}.png)" in PAGE
    assert (FOLDER / f"{study.name}.png").read_bytes()[:4] == b"\x89PNG"


def test_the_numbers_are_those_of_the_functions():
    written = json.loads((FOLDER / command.NUMBERS).read_text())
    made = json.loads(json.dumps(command.numbers(RECORD)))
    assert list(written) == list(made)
    for name, rows in made.items():
        for old, new in zip(written[name], rows, strict=True):
            assert old.keys() == new.keys()
            for key, value in new.items():
                near = pytest.approx(value, rel=1e-3) if isinstance(value, (int, float, list)) else value
                assert old[key] == near, f"{name}, {key}: {AGAIN}"


def test_gaussian_rows_set_new_maxima_as_random_sequences_do():
    """A row's n-th block has the largest maximum so far with probability 1/n, whatever the deviation."""
    expected = 1 - sum(1 / n for n in range(2, 65)) / 63
    for row in RECORD["gaussian"]["rows"]:
        none = next(one for one in row["counts"] if one["threshold"] == 0)
        assert none["rows_skipped"] == pytest.approx(expected, abs=0.003)
        assert none["row_steps"] == 8 * 256 * 63


def test_a_larger_threshold_skips_more():
    everything = [row["counts"] for part in ("gaussian", "model") for row in RECORD[part]["rows"]]
    for counts in everything:
        assert [one["threshold"] for one in counts] == list(measured.THRESHOLDS)
        for who in ("rows_skipped", "warps_skipped"):
            shares = [one[who] for one in counts]
            assert shares == sorted(shares)
        assert all(one["warps_skipped"] <= one["rows_skipped"] for one in counts)


def test_the_model_is_the_one_of_the_recipe():
    model = RECORD["model"]
    recipe = language_model.Recipe()
    assert model["recipe"] == json.loads(json.dumps(vars(recipe)))
    assert len(model["rows"]) == recipe.layers * recipe.heads
    assert f"{model['bits_per_byte']['held_out']:.2f} bits per byte" in PAGE.replace("\n", " ")
    assert max(row["largest_exponent"] for row in model["rows"]) < 2**13


def test_counts_add_over_heads():
    rng = np.random.default_rng(0)
    heads = [block_maxima(*rng.standard_normal((2, 256, 64)), causal=True) for _ in range(3)]
    both = measured.counts(heads)
    assert [one["row_steps"] for one in both] == [3 * 128] * len(measured.THRESHOLDS)
    alone = [measured.counts([head]) for head in heads]
    assert both[0]["row_rescales"] == sum(one[0]["row_rescales"] for one in alone)


def test_torch_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"needs torch: pip install 'tirx-attn\[torch\]'"):
        language_model.trained_inputs(64, 1)


def test_a_folder_without_the_measured_study(tmp_path, capsys):
    assert command.main(["-o", str(tmp_path)]) == 1
    assert "rescales.json is missing: --measure makes it" in capsys.readouterr().err


def test_a_page_without_a_place_is_refused():
    with pytest.raises(ValueError, match="table traffic: 0 places"):
        command.with_tables("# Studies\n", RECORD)
    assert command.with_tables(PAGE, RECORD) == PAGE


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    command.write_json(RECORD, tmp_path / command.RECORD)
    assert command.main(["-o", str(tmp_path)]) == 0
    made = {path.stem for path in tmp_path.glob("*.png")}
    assert made == {study.name for study in STUDIES}


@pytest.mark.torch
def test_a_model_is_trained_the_same_way_twice():
    pytest.importorskip("torch")
    recipe = language_model.Recipe(layers=1, heads=1, phases=((2, 64, 1),))
    first, second = (language_model.trained_inputs(96, 2, recipe=recipe) for _ in range(2))
    assert first.q.shape == first.k.shape == (1, 2, 96, 1, 64)
    assert (first.q == second.q).all()
    assert 0 < first.facts["bits_per_byte"]["held_out"] < 12
