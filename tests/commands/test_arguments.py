"""Texts of options: what they become, and what is said of those that cannot be used."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from tirx_attn.commands.arguments import (
    ArgumentError,
    parse_changes,
    parse_list,
    parse_problem,
    parse_seconds,
    parse_shape,
)
from tirx_attn.schedule import Schedule

SHAPE = "1,256,256,2,1,128"


def test_shape_is_six_integers():
    assert parse_shape("2,128, 256,8,4,128") == (2, 128, 256, 8, 4, 128)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,256,256,2,1", "has 5 values: allowed are six integers B,Sq,Skv,Hq,Hkv,D"),
        ("1,256,256,2,1,128,", "has 7 values"),
        ("", "has 1 values"),
        ("1,256,x,2,1,128", "Skv='x': allowed values are positive integers"),
        ("1,2.5,256,2,1,128", "Sq='2.5': allowed values are positive integers"),
        ("1,256,256,2,1,1_28", "D='1_28': allowed values are positive integers"),
        ("1,256,256,2,1,٣", "D='٣': allowed values are positive integers"),
    ],
)
def test_shapes_that_cannot_be_read(text, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        parse_shape(text)


@pytest.mark.parametrize(
    ("item", "name", "value"),
    [
        ("pv_split=64,64", "pv_split", (64, 64)),
        ("pv-split=64, 64", "pv_split", (64, 64)),
        ("stagger=true", "stagger", True),
        ("stagger=False", "stagger", False),
        ("statistics=collective", "statistics", "collective"),
        ("kv_stages=2", "kv_stages", 2),
        ("rescale_threshold=4", "rescale_threshold", 4.0),
        ("persistent_ctas=none", "persistent_ctas", None),
        ("persistent_ctas=2", "persistent_ctas", 2),
        ("emulated_pairs=0,1,2,3", "emulated_pairs", (0, 1, 2, 3)),
    ],
)
def test_a_knob_gets_the_type_of_its_field(item, name, value):
    parsed = parse_changes([item])
    assert parsed == {name: value}
    assert type(parsed[name]) is type(value)


def test_every_field_of_schedule_can_be_set():
    default = Schedule()
    for field in fields(Schedule):
        value = getattr(default, field.name)
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert parse_changes([f"{field.name}={text}"]) == {field.name: value}


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["stagger"], "allowed is KEY=VALUE, with KEY one of pv_split, epilogue_owner"),
        (["speed=11"], "KEY='speed': allowed values are pv_split, epilogue_owner"),
        (["stagger=yes"], "'stagger=yes': allowed values are true and false"),
        (["kv_stages=two"], "'two': allowed values are integers"),
        (["kv_stages=2.0"], "'2.0': allowed values are integers"),
        (["pv_split=64;64"], "'64;64': allowed values are comma-separated integers"),
        (["persistent_ctas=all"], "'all': allowed values are None and integers"),
        (["rescale_threshold=low"], "'low': allowed values are numbers"),
        (["kv_stages=2", "kv_stages=3"], "kv_stages is given twice"),
    ],
)
def test_knobs_that_cannot_be_read(items, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        parse_changes(items)


@pytest.mark.parametrize(
    ("shape", "causal", "arch", "changes", "message"),
    [
        (SHAPE, False, "sm_90a", [], "--arch: arch='sm_90a': allowed values are sm_100a, sm_103a"),
        ("1,256,200,2,1,128", False, "sm_100a", [], "--shape 1,256,200,2,1,128: Skv=200: allowed values"),
        ("0,256,256,2,1,128", False, "sm_100a", [], "B=0: allowed values are positive integers"),
        ("1,256,256,3,2,128", True, "sm_100a", [], "Hq=3: allowed values are multiples of Hkv=2"),
        ("1,256,256,2,1,64", True, "sm_100a", [], "D=64: allowed head sizes are 128"),
        (SHAPE, False, "sm_100a", ["pv_split=80,48"], "--schedule: pv_split=(80, 48): allowed values are"),
        (SHAPE, False, "sm_100a", ["statistics=both"], "statistics='both': allowed values are 'pairwise'"),
        (SHAPE, False, "sm_100a", ["kv_stages=9"], "kv_stages=9: needs 428032 bytes of shared memory"),
        (SHAPE, False, "sm_100a", ["softmax_registers=256"], "softmax_registers=256"),
    ],
)
def test_problems_that_are_refused(shape, causal, arch, changes, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        parse_problem(shape, causal, arch, changes)


def test_changes_are_laid_over_the_tuned_schedule():
    problem = parse_problem(SHAPE, True, "sm_100a", ["stagger=true"])
    assert problem.row.id == "T2"
    assert problem.schedule.stagger
    assert problem.schedule.pv_split == (64, 64)
    assert problem.stem == "flash_attention4_b1_sq256_skv256_hq2_hkv1_d128_causal"


def test_the_architecture_decides_the_tuning_row():
    rows = {
        (arch, causal): parse_problem(SHAPE, causal, arch).row.id
        for arch in ("sm_100a", "sm_103a")
        for causal in (False, True)
    }
    assert rows == {
        ("sm_100a", False): "T1",
        ("sm_100a", True): "T2",
        ("sm_103a", False): "T3",
        ("sm_103a", True): "T4",
    }


def test_lists_and_seconds():
    assert parse_list("--emit", "sass, cubin,sass", ("cubin", "sass")) == ["sass", "cubin"]
    with pytest.raises(ArgumentError, match="'ptx': allowed values are cubin, sass"):
        parse_list("--emit", "ptx", ("cubin", "sass"))
    assert parse_seconds("--time-limit", "2.5") == 2.5
    for text in ("0", "-1", "inf", "nan", "soon", ""):
        with pytest.raises(ArgumentError, match="allowed values are positive seconds"):
            parse_seconds("--time-limit", text)
