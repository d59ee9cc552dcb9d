"""`tirx-attn variants`: its rows, its verdict, and what is kept. Measuring and the simulator are replaced."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tirx_attn import VARIANTS, AttentionConfig, kernel, variant
from tirx_attn.commands import proof, variants
from tirx_attn.commands.variants import COLUMNS, Row, to_markdown
from tirx_attn.verify import variants as proofs
from tirx_attn.verify.variants import Proof, Record

FIGURES = {
    "instructions": 474, "stalls": 998, "p_arrivals": (773, 981), "mma": 130.0, "correction": 44.5, "registers": 128,
    "spills": 0,
}  # fmt: skip
TIMES = {(96, 32): 700.0, (64, 64): 400.0, (32, 96): 770.0}
ONE = ("--variant", "pv-32-96", "--mask", "none")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """Split decides the time; a kernel is its schedule; the proofs that were asked for."""
    proved = []

    def prove(func, is_causal, *, time_limit, notes, key):
        proved.append(key)
        return Proof(key, "clean", "clean", "clean", 0.5)

    monkeypatch.setattr(variants, "measure", lambda s, c: {**FIGURES, "time_us": TIMES.get(s.pv_split, 720.0)})
    monkeypatch.setattr(kernel, "build_kernel", lambda plan: plan)
    monkeypatch.setattr(proof, "check_structure", lambda func: proof.Step("structure", None, proof.PASSED, "clean"))
    monkeypatch.setattr(proofs, "kernel_key", lambda func, is_causal: f"{func.schedule} {is_causal}")
    monkeypatch.setattr(proofs, "prove", prove)
    monkeypatch.setattr("tirx_attn.verify.require_simulator", lambda: None)
    return proved


def test_a_row(tirx_attn):
    result = tirx_attn("variants", *ONE, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["command"], document["complete"], document["verdict"]) == ("variants", True, "passed")
    (row,) = document["rows"]
    assert (row["variant"], row["mask"], row["is_tuned"]) == ("pv-32-96", "none", False)
    assert row["schedule"]["pv_split"] == [32, 96]
    assert [row[name] for name in variants.CHECKS] == ["clean"] * 4
    assert (row["time_us"], row["change"]) == (770.0, pytest.approx(10.0))


def test_all_variants_with_both_masks(tirx_attn, stand_in):
    result = tirx_attn("variants", "--markdown")
    assert result.exit_code == 0, result.stderr
    header, rule, *lines = result.stdout.splitlines()
    assert header == f"| {' | '.join(COLUMNS)} |"
    assert rule.count("---") == len(COLUMNS)
    names = [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in lines]
    assert names == [(each.name, mask) for each in VARIANTS for mask in ("none", "causal")]
    # Rows that are the tuned one share its proof.
    assert len(stand_in) == len(set(stand_in)) == 24
    assert f"{len(names)}/{len(names)}  mma-by-product, mask causal" in result.stderr


def test_what_is_kept_is_not_proved_again(tirx_attn, stand_in, tmp_path):
    path = tmp_path / "proofs.json"
    assert tirx_attn("variants", *ONE, "-o", str(path)).exit_code == 0
    assert len(list(Record(path))) == len(stand_in) == 1
    assert tirx_attn("variants", "--variant", "pv-32-96", "-o", str(path)).exit_code == 0
    assert len(list(Record(path))) == len(stand_in) == 2


def test_an_interrupt_loses_nothing(tirx_attn, monkeypatch, tmp_path):
    path, prove = tmp_path / "proofs.json", proofs.prove

    def interrupted(func, is_causal, **options):
        if is_causal:
            raise KeyboardInterrupt
        return prove(func, is_causal, **options)

    monkeypatch.setattr(proofs, "prove", interrupted)
    result = tirx_attn("variants", "--variant", "stagger", "-o", str(path), "--json")
    assert result.exit_code == 130
    document = json.loads(result.stdout)
    assert (document["complete"], [row["mask"] for row in document["rows"]]) == (False, ["none"])
    assert "interrupted: 1 of 2 rows are done" in result.stderr
    assert len(list(Record(path))) == 1


def test_without_the_simulator(tirx_attn, stand_in):
    result = tirx_attn("variants", *ONE, "--no-simulate", "--json")
    assert result.exit_code == 0
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["structure"], row["racecheck"], row["error"]) == ("clean", "not run", None)
    assert stand_in == []


def test_without_the_simulator_what_is_kept_is_shown(tirx_attn, stand_in, tmp_path):
    path = tmp_path / "proofs.json"
    assert tirx_attn("variants", *ONE, "-o", str(path)).exit_code == 0
    result = tirx_attn("variants", "--variant", "pv-32-96", "--no-simulate", "-o", str(path), "--json")
    assert [row["racecheck"] for row in json.loads(result.stdout)["rows"]] == ["clean", "not run"]
    assert len(stand_in) == 1


def test_a_simulator_that_is_missing(tirx_attn, monkeypatch):
    def missing():
        from tirx_attn.verify import SimulatorUnavailable

        raise SimulatorUnavailable("cargo is missing")

    monkeypatch.setattr("tirx_attn.verify.require_simulator", missing)
    result = tirx_attn("variants", *ONE)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--simulate: cargo is missing; allowed here is --no-simulate" in result.stderr


def test_a_finding_fails(tirx_attn, monkeypatch):
    found = Proof("k", "clean", "clean", "error", 0.5, ("racecheck: S is overwritten",))
    monkeypatch.setattr(proofs, "prove", lambda *_, **__: found)
    result = tirx_attn("variants", *ONE)
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "pv-32-96, mask none: racecheck: S is overwritten" in text


def test_a_fault_of_the_structure_is_not_simulated(tirx_attn, monkeypatch, stand_in):
    step = proof.Step("structure", None, proof.FAILED, "error", [{"message": "s_ready: deadlock\n  softmax"}],
                      {"verdict": "error"})  # fmt: skip
    monkeypatch.setattr(proof, "check_structure", lambda func: step)
    result = tirx_attn("variants", *ONE, "--json")
    assert result.exit_code == 1
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["structure"], row["numbers"], row["findings"]) == ("error", "not run", ["structure: s_ready: deadlock"])
    assert stand_in == []


def row(**changes) -> Row:
    found = {**dict.fromkeys(variants.CHECKS, "clean"), **FIGURES, "error": 0.376, "findings": ()}
    made = Row("stagger", "none", False, {}, **found, time_us=1234.5, change=-0.52)
    return replace(made, **changes)


def test_cells():
    assert to_markdown([row()]).splitlines()[2] == (
        "| stagger | none | clean | 0.38 | 474 | 998 | 773, 981 | 130 | 44 | 0 | 1,234 | -0.5 % |"
    )
    assert row(is_tuned=True).cells[-1] == "tuned"
    assert row(racecheck="review", numbers="not run").checks == (
        "structure, synccheck clean; racecheck review; numbers not run"
    )
    assert [row(racecheck=verdict).is_fine for verdict in ("clean", "not run", "review")] == [True, True, False]


PAGE = Path(__file__).parents[2] / "docs" / "variants.md"


def test_the_page_has_every_variant_with_both_masks_and_no_finding():
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("<!-- variants: begin -->") : text.index("<!-- variants: end -->")].splitlines()[1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
    assert table[0] == f"| {' | '.join(COLUMNS)} |"
    assert [tuple(cells[:2]) for cells in rows] == [(each.name, m) for each in VARIANTS for m in variants.MASKS]
    for name, mask, checks, error, *_, change in rows:
        assert (checks, 0 < float(error) <= 1) == ("clean", True)
        tuned = variant(name).is_tuned(replace(variants.LONG, is_causal=variants.MASKS[mask]))
        assert (change == "tuned") == tuned
    for each in VARIANTS:
        assert f"`{each.name}`" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["statistics-tmem", "pv-4x32", "mma-by-product"])
def test_the_page_has_what_is_measured(monkeypatch, name):
    """Machine code and model of three variants with a causal mask; the model by its whole µs."""
    monkeypatch.undo()
    config: AttentionConfig = replace(variants.LONG, is_causal=True)
    found = variants.measure(variant(name).schedule(config), config)
    cells = row(**found, variant=name, mask="causal").cells
    written = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name} | causal |"))
    assert [cell.strip() for cell in written.strip("|").split("|")][4:-1] == list(cells[4:-1])
