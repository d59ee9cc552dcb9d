"""Proofs of variants: their inputs, their verdicts, the file that keeps them; one of them on the simulator."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.launches import LIMIT
from tirx_attn import VARIANTS, variant
from tirx_attn.kernel import build_kernel
from tirx_attn.verify import attention_reference, expected_rescales, simulator
from tirx_attn.verify.inputs import INPUTS
from tirx_attn.verify.process import SimulatorDied, SimulatorError
from tirx_attn.verify.variants import (
    Proof,
    Record,
    inputs,
    joined,
    judged,
    kernel_key,
    problem,
    proof_plan,
    prove,
)

MASKS = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
CLEAN = Proof("k", "clean", "clean", "clean", 0.5)


@MASKS
def test_one_head_rescales_in_every_block_and_one_in_none(causal):
    config, arrays = problem(causal), joined(inputs(causal))
    assert arrays["Q"].shape == (1, 256, 3, 128)
    assert arrays["K"].shape == arrays["V"].shape == (1, 384, 3, 128)
    found = expected_rescales(arrays["Q"], arrays["K"], config)
    ordinary, every, never = (found[0, head] for head in range(len(INPUTS)))
    assert not never.any()
    assert every[255].tolist() == [False, True, True]  # the last query sees all three blocks
    assert ordinary.sum() < every.sum() / 2


@MASKS
def test_every_phase_goes_from_task_to_task_where_it_can(causal):
    for each in VARIANTS:
        plan = proof_plan(each.schedule(problem(causal)), causal)
        assert (plan.grid, plan.tasks) == ((3, 3) if causal else (1, 3))


def test_each_head_is_judged_by_itself():
    probes = inputs(False)
    arrays = joined(probes)
    o, _ = attention_reference(*(arrays[name] for name in "QKV"))
    o = o.astype(np.float16)
    assert {name: verdict.ok for name, verdict in judged(probes, o).items()} == dict.fromkeys(INPUTS, True)
    o[0, 7, 2, 3] += np.float16(0.1)
    assert [verdict.ok for verdict in judged(probes, o).values()] == [True, True, False]


def fake(monkeypatch, wrong: bool = False, verdict: str = "clean", raises: Exception | None = None):
    def run(func, arrays, **_options):
        o, _ = attention_reference(*(arrays[name] for name in "QKV"))
        o = o.astype(np.float16)
        o[0, 0, 0, 0] = np.nan if wrong else o[0, 0, 0, 0]
        return simulator.Run({"O": o}, "clean", (), 1.0, 0.0)

    def racecheck(func, arrays, **_options):
        if raises:
            raise raises
        return simulator.Check("racecheck", verdict, () if verdict == "clean" else (("war", "S\nread"),), 1.0, 0.0)

    monkeypatch.setattr(simulator, "run", run)
    monkeypatch.setattr(simulator, "synccheck", lambda *_, **__: simulator.Check("synccheck", "clean", (), 1.0, 0.0))
    monkeypatch.setattr(simulator, "racecheck", racecheck)


class TestVerdicts:
    def test_clean(self, monkeypatch):
        fake(monkeypatch)
        proof = prove(None, False, time_limit=1.0, key="k")
        assert proof.clean
        assert (proof.kernel, proof.findings) == ("k", ())
        assert 0 < proof.error <= 1

    def test_a_wrong_number(self, monkeypatch):
        fake(monkeypatch, wrong=True)
        proof = prove(None, False, time_limit=1.0, key="k")
        assert (proof.clean, proof.numbers, proof.error, proof.racecheck) == (False, "wrong", None, "clean")
        assert proof.findings[0].startswith("numbers: ordinary data: error nan, allowed ") or "inf" in proof.findings[0]

    def test_a_finding(self, monkeypatch):
        fake(monkeypatch, verdict="review")
        proof = prove(None, False, time_limit=1.0, key="k")
        assert (proof.clean, proof.racecheck, proof.findings) == (False, "review", ("racecheck: S",))

    @pytest.mark.parametrize(
        ("error", "verdict"),
        [
            (SimulatorError("executor deadlock"), "error"),
            (SimulatorDied("killed"), "died"),
            (TimeoutError("600 s"), "timed out"),
        ],
    )
    def test_an_error(self, monkeypatch, error, verdict):
        fake(monkeypatch, raises=error)
        proof = prove(None, False, time_limit=1.0, key="k")
        assert (proof.clean, proof.racecheck, proof.numbers) == (False, verdict, "clean")
        assert proof.is_settled == (verdict == "error")
        assert proof.findings == (f"racecheck: {error}",)


class TestRecord:
    def test_what_is_added_is_found_again(self, tmp_path):
        path = tmp_path / "proofs.json"
        Record(path).add(CLEAN)
        record = Record(path)
        record.add(replace(CLEAN, kernel="l", racecheck="review", findings=("racecheck: S",)))
        assert list(Record(path)) == [CLEAN, replace(CLEAN, kernel="l", racecheck="review", findings=("racecheck: S",))]
        assert Record(path).find("k") == CLEAN
        assert Record(path).find("m") is None
        assert [p.name for p in tmp_path.iterdir()] == ["proofs.json"]

    def test_a_run_that_took_too_long_is_not_kept(self, tmp_path):
        path = tmp_path / "proofs.json"
        Record(path).add(replace(CLEAN, racecheck="timed out"))
        assert not path.exists()

    def test_none_keeps_nothing(self):
        record = Record(None)
        record.add(CLEAN)
        assert record.find("k") == CLEAN
        assert list(Record(None)) == []

    @pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"proofs": [{"kernel": "k"}]})])
    def test_another_file_is_refused(self, tmp_path, text):
        path = tmp_path / "x.json"
        path.write_text(text)
        with pytest.raises(ValueError, match="allowed is a file that this command wrote"):
            Record(path)


@pytest.mark.slow
def test_the_key_is_that_of_the_kernel():
    schedules = [each.schedule(problem(True)) for each in (variant("pv-64-64"), variant("pv-32-96"))]
    keys = [kernel_key(build_kernel(proof_plan(schedule, True)), True) for schedule in (*schedules, schedules[0])]
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.simulator
@pytest.mark.slow
@pytest.mark.recorded("tirx_attn/verify/variants.py", "tirx_attn/verify/simulator.py")
def test_a_proof_on_the_simulator():
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")
    func = build_kernel(proof_plan(variant("statistics-tmem").schedule(problem(True)), True))
    proof = prove(func, True, time_limit=LIMIT)
    assert proof.clean, proof.findings
    assert 0 < proof.error <= 1
