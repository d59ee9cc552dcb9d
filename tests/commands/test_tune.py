"""`tirx-attn tune`: its ranking, its reasons, and what is left of it after an interrupt."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.commands.modelled import prediction
from tirx_attn.analysis.timeline import BLACKWELL
from tirx_attn.commands import tune
from tirx_attn.runtime import CompileError

SHAPE = ("--shape", "1,1024,1024,4,4,128")
TIMES = {(32, 96): 530.0, (64, 64): 480.0, (96, 32): 500.0, (32, 32, 32, 32): 520.0}


@pytest.fixture
def modelled(monkeypatch):
    """The split of P decides the time; a ring of two does not compile, one of three is a fault of synchronisation."""
    seen = []

    def build(plan, arch):
        seen.append(plan.schedule)
        if plan.schedule.kv_stages == 2:
            raise CompileError("no registers left", "log")
        return plan, None

    def predict(plan, figures, func):
        time = TIMES[plan.schedule.pv_split] - (5.0 if plan.schedule.stagger else 0.0)
        return prediction(time, block_cycles=5.4 * time), BLACKWELL

    monkeypatch.setattr(tune, "build_for_model", build)
    monkeypatch.setattr(tune, "predict_plan", predict)
    monkeypatch.setattr("tirx_attn.barriers.check.check", lambda func, sizes: SimpleNamespace(findings=[]))
    return seen


def test_fastest_first_with_reasons(tirx_attn, modelled):
    result = tirx_attn("tune", *SHAPE, "--knob", "pv_split", "--knob", "stagger", "--knob", "kv_stages", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["complete"] is True
    changes = [row["changes"] for row in document["ranked"]]
    # the two changes that gain are tried together at last
    assert changes[0] == {"pv_split": [64, 64], "stagger": True}
    assert changes[-1] == {"pv_split": [32, 96]}
    assert {} in changes
    (refused,) = document["refused"]
    assert refused["changes"] == {"kv_stages": 2}
    assert "no registers left" in refused["problem"]
    assert len(modelled) == 7


def test_table(tirx_attn, modelled):
    result = tirx_attn("tune", *SHAPE, "--knob", "pv_split", "--top", "2")
    text = " ".join(result.stdout.split())
    assert "pv_split=64,64 │ 480.0 │ -4.0 %" in text
    assert "softmax instructions -54; tensor pipe -43; edge s_ready -11" in text
    assert "2 more; --top 4 prints them all" in text
    assert "1/4 as tuned" in " ".join(result.stderr.split())


def test_a_fault_of_synchronisation_is_no_candidate(tirx_attn, modelled, monkeypatch):
    finding = SimpleNamespace(message="s_ready: deadlock\n  more")
    monkeypatch.setattr("tirx_attn.barriers.check.check", lambda func, sizes: SimpleNamespace(findings=[finding]))
    result = tirx_attn("tune", *SHAPE, "--knob", "stagger", "--json")
    document = json.loads(result.stdout)
    assert document["ranked"] == []
    assert {row["problem"] for row in document["refused"]} == {"structural check: s_ready: deadlock"}


def test_an_interrupt_leaves_what_is_done(tirx_attn, modelled, monkeypatch):
    build = tune.build_for_model

    def interrupted(plan, arch):
        if len(modelled) == 2:
            raise KeyboardInterrupt
        return build(plan, arch)

    monkeypatch.setattr(tune, "build_for_model", interrupted)
    result = tirx_attn("tune", *SHAPE, "--knob", "pv_split", "--json")
    assert result.exit_code == 130
    document = json.loads(result.stdout)
    assert document["complete"] is False
    assert len(document["ranked"]) == 2
    assert "interrupted: 2 of 4 schedules are ranked" in result.stderr


def test_reasons_beyond_the_loop():
    base = prediction(500.0)
    assert tune.reasons(base, base) == "the loop is the same: no difference"
    other = prediction(490.0)
    assert tune.reasons(other, base) == "the loop is the same: order of tasks -18500 cycles"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SHAPE, "--knob", "ring"), "--knob 'ring': allowed values are pv_split"),
        ((*SHAPE, "--top", "0"), "--top '0': allowed values are positive integers"),
        (("--shape", "_,1024,1024,4,4,128"), "B='_'"),
    ],
)
def test_refusals(tirx_attn, arguments, message):
    result = tirx_attn("tune", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


@pytest.mark.slow
def test_two_rings_from_end_to_end(tirx_attn):
    result = tirx_attn("tune", *SHAPE, "--knob", "kv_stages", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert [row["changes"] for row in document["ranked"]] == [{}, {"kv_stages": 2}]
