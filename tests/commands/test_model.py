"""`tirx-attn model`: what it prints, and what it refuses before it builds anything."""

from __future__ import annotations

import json

import pytest

from tests.commands.modelled import prediction
from tirx_attn.analysis.timeline import BLACKWELL
from tirx_attn.commands import model

SHAPE = ("--shape", "1,1024,1024,4,4,128")


@pytest.fixture
def modelled(monkeypatch):
    monkeypatch.setattr(model, "build_for_model", lambda plan, arch: (None, None))
    monkeypatch.setattr(model, "predict_plan", lambda plan, figures, func: (prediction(500.0), BLACKWELL))


@pytest.mark.usefixtures("modelled")
def test_tables(tirx_attn):
    result = tirx_attn("model", *SHAPE, "--causal")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "500.0 µs at 1.85 GHz" in text
    assert "mma on p_o_rescale" in text
    assert "softmax 0: instructions │ 50.0 %" in text
    # waits that take no time to speak of are left out
    assert "p_ready_2" not in text
    assert text.count("fitted") == 1 + len(BLACKWELL.fitted)


@pytest.mark.usefixtures("modelled")
def test_json(tirx_attn):
    result = tirx_attn("model", *SHAPE, "--schedule", "kv_stages=2", "--json")
    document = json.loads(result.stdout)
    assert document["command"] == "model"
    assert document["schedule"]["kv_stages"] == 2
    assert document["time_us"] == 500.0
    assert document["stalls"][0] == {"role": "mma", "edge": "p_o_rescale", "cycles": 1600.0, "share": 0.6}
    assert {row["name"] for row in document["constants"] if row["fitted"]} == set(BLACKWELL.fitted)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shape", "1,_,1024,4,4,128"), "Sq='_': allowed values are positive integers, since the time depends"),
        (("--shape", "1,256,0,4,4,128"), "Skv=0"),
        ((*SHAPE, "--schedule", "kv_stages=9"), "kv_stages=9"),
        ((*SHAPE, "--arch", "sm_80"), "arch='sm_80'"),
    ],
)
def test_refusals(tirx_attn, arguments, message):
    result = tirx_attn("model", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_100a", "sm_90a"])
def test_a_kernel_from_end_to_end(tirx_attn, arch):
    result = tirx_attn("model", "--shape", "1,2048,2048,16,16,128", "--causal", "--arch", arch, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    flops = 4 * 16 * 2048 * 2049 / 2 * 128
    assert document["tflops"] == pytest.approx(flops / document["time_us"] / 1e6, rel=1e-6)
    assert 0.5 < document["use"]["tensor pipe"] < 1
    assert sum(document["path"].values()) == pytest.approx(1.0)
    # no faster than the tensor cores, no slower than a third of them
    assert 2048 < document["block_cycles"] < 3 * 2048


def test_only_the_roofline(tirx_attn):
    """Nothing is built: the figures of the published kernel's tile."""
    result = tirx_attn("model", "--shape", "1,8192,8192,32,32,128", "--roofline", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["tile"]["mma"], report["tile"]["smem"], report["exp_to_mma"]) == (1024, 768, 1)
    assert "TFLOP/s, by the tensor core" in tirx_attn("model", "--shape", "1,8192,8192,32,32,128", "--roofline").stdout
