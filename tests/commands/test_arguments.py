"""Texts of options: what they become, and what is said of those that cannot be used."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import pytest

from tirx_attn.commands.arguments import (
    ArgumentError,
    parse_changes,
    parse_dtype,
    parse_list,
    parse_problem,
    parse_seconds,
    parse_shape,
)
from tirx_attn.schedule import Schedule

SHAPE = "1,256,256,2,1,128"


def test_shape_is_six_integers():
    assert parse_shape("2,128, 256,8,4,128") == (2, 128, 256, 8, 4, 128)


def test_batch_and_lengths_may_be_left_open():
    assert parse_shape("_,_, _,8,4,64") == (None, None, None, 8, 4, 64)
    assert parse_shape("2,_,256,8,4,64") == (2, None, 256, 8, 4, 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,256,256,2,1", "has 5 values: allowed are six integers B,Sq,Skv,Hq,Hkv,D"),
        ("_,_,_", "has 3 values: allowed are six integers B,Sq,Skv,Hq,Hkv,D, such as 1,256,256,2,1,128, with _ for"),
        ("1,256,256,2,1,128,", "has 7 values"),
        ("", "has 1 values"),
        ("1,256,x,2,1,128", "Skv='x': allowed values are positive integers and _"),
        ("1,2.5,256,2,1,128", "Sq='2.5': allowed values are positive integers and _"),
        ("None,256,256,2,1,128", "B='None': allowed values are positive integers and _"),
        ("__,256,256,2,1,128", "B='__': allowed values are positive integers and _"),
        ("1,256,256,2,1,1_28", "D='1_28': allowed values are positive integers"),
        ("_,_,_,_,1,128", "Hq='_': allowed values are positive integers (_ is for B, Sq, Skv only)"),
        ("_,_,_,2,_,128", "Hkv='_': allowed values are positive integers (_ is for B, Sq, Skv only)"),
        ("_,_,_,2,1,_", "D='_': allowed values are positive integers (_ is for B, Sq, Skv only)"),
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
        ("pv_split=32,32,32,32", "pv_split", (32, 32, 32, 32)),
        ("o_stages=1", "o_stages", 1),
        ("mma_order=by_product", "mma_order", "by_product"),
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
        (SHAPE, False, "sm_80", [], "--arch: arch='sm_80': allowed values are sm_100a, sm_103a, sm_90a"),
        (SHAPE, False, "sm_90a", ["stagger=true"], "KEY='stagger': allowed values are consumers, kv_stages, q_stages"),
        (SHAPE, False, "sm_90a", ["kv_stages=2"], "--schedule: kv_stages=2: allowed values are integers from 3"),
        (SHAPE, False, "sm_90a", ["kv_stages=9"], "kv_stages=9, q_stages=2: need 394240 bytes of shared memory"),
        ("1,256,0,2,1,128", False, "sm_100a", [], "--shape 1,256,0,2,1,128: Skv=0: allowed values"),
        ("0,256,256,2,1,128", False, "sm_100a", [], "B=0: allowed values are positive integers"),
        ("1,256,256,3,2,128", True, "sm_100a", [], "Hq=3: allowed values are multiples of Hkv=2"),
        ("_,_,_,2,1,96", True, "sm_100a", [], "--shape _,_,_,2,1,96: D=96: allowed head sizes are 64, 128"),
        ("_,_,_,258,2,128", True, "sm_100a", [], "allowed ratios Hq/Hkv are 1 to 128, got 129"),
        ("9999,999999999,1,1,1,128", True, "sm_100a", [], "--shape 9999,999999999,1,1,1,128: B=9999"),
        (SHAPE, False, "sm_100a", ["pv_split=80,48"], "--schedule: pv_split=(80, 48): allowed values are"),
        (SHAPE, False, "sm_100a", ["statistics=both"], "statistics='both': allowed values are 'pairwise'"),
        (SHAPE, False, "sm_100a", ["kv_stages=9"], "kv_stages=9, o_stages=2: need 429056 bytes of shared memory"),
        (SHAPE, False, "sm_100a", ["softmax_registers=256"], "softmax_registers=256"),
    ],
)
def test_problems_that_are_refused(shape, causal, arch, changes, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        parse_problem(shape, causal, arch, changes)


def test_a_size_that_is_refused_is_told_of_the_underscore():
    with pytest.raises(ArgumentError, match=r"^--shape 1,0,_,2,1,128: Sq=0: allowed values are .* and _$"):
        parse_problem("1,0,_,2,1,128", False, "sm_100a")


def test_data_types_have_two_names():
    assert [parse_dtype(text) for text in ("fp16", "float16", "bf16", "bfloat16")] == 2 * ["float16"] + 2 * ["bfloat16"]
    for text in ("", "fp8", "FP16", "half", "float32"):
        message = f"--dtype {text!r}: allowed values are fp16 (float16), bf16 (bfloat16)"
        with pytest.raises(ArgumentError, match=re.escape(message)):
            parse_problem(SHAPE, False, "sm_100a", dtype=text)


@pytest.mark.parametrize(
    ("text", "scale"),
    [(None, None), ("runtime", "runtime"), ("0.1", 0.1), ("1", 1.0), ("1e-3", 0.001), (".5", 0.5), ("+2", 2.0)],
)
def test_scales(text, scale):
    config = parse_problem(SHAPE, False, "sm_100a", scale=text).config
    assert config.scale == scale
    assert type(config.scale) is type(scale)


@pytest.mark.parametrize("text", ["", "0", "-0.1", "nan", "inf", "1e39", "1e999", "1e-46", "1_0", "1/8", "٣", "none"])
def test_scales_that_are_refused(text):
    message = rf"^--scale {text!r}: allowed values are numbers from 1\.18e-38 to 1\.7e\+38 and runtime$"
    with pytest.raises(ArgumentError, match=message):
        parse_problem(SHAPE, False, "sm_100a", scale=text)


def test_changes_are_laid_over_the_tuned_schedule():
    problem = parse_problem(SHAPE, True, "sm_100a", ["stagger=true"])
    assert problem.row.id == "T2"
    assert problem.schedule.stagger
    assert problem.schedule.pv_split == (64, 64)
    assert problem.stem == "flash_attention4_b1_sq256_skv256_hq2_hkv1_d128_causal"


RUN_TIME = "_,_,_,14,2,64"
STEM = "flash_attention4_b_sq_skv_hq14_hkv2_d64"
TITLE = "B=_ Sq=_ Skv=_ Hq=14 Hkv=2 D=64"


@pytest.mark.parametrize(
    ("causal", "options", "stem", "title"),
    [
        (False, {}, STEM, f"full {TITLE}"),
        (True, {"dtype": "float16"}, f"{STEM}_causal", f"causal {TITLE}"),
        (False, {"dtype": "bf16"}, f"{STEM}_bf16", f"full {TITLE} bf16"),
        (False, {"lse": True}, f"{STEM}_lse", f"full {TITLE} LSE"),
        (False, {"scale": "0.1"}, f"{STEM}_scale_0.1", f"full {TITLE} scale=0.1"),
        (False, {"scale": "1e20"}, f"{STEM}_scale_1e20", f"full {TITLE} scale=1e+20"),
        (
            True,
            {"dtype": "bf16", "lse": True, "scale": "runtime"},
            f"{STEM}_causal_bf16_lse_scale_runtime",
            f"causal {TITLE} bf16 LSE scale=runtime",
        ),
    ],
)
def test_names_of_a_problem(causal, options, stem, title):
    problem = parse_problem(RUN_TIME, causal, "sm_100a", **options)
    assert (problem.stem, problem.title) == (stem, title)


def test_a_size_left_open_is_its_bare_name():
    assert parse_problem("2,_,384,2,1,128", False, "sm_100a").stem == "flash_attention4_b2_sq_skv384_hq2_hkv1_d128"


def test_parameters_in_their_order():
    parameters = parse_problem("_,100,_,14,2,64", True, "sm_100a", dtype="bf16", lse=True, scale="runtime").parameters
    assert [tuple(parameter.values()) for parameter in parameters] == [
        ("Q", "bfloat16", "[B, 100, 14, 64]"),
        ("K", "bfloat16", "[B, Skv, 2, 64]"),
        ("V", "bfloat16", "[B, Skv, 2, 64]"),
        ("O", "bfloat16", "[B, 100, 14, 64]"),
        ("LSE", "float32", "[B, 14, 100]"),
        ("scale", "float32", "[]"),
    ]
    without = parse_problem(SHAPE, True, "sm_100a", scale="0.1").parameters
    assert [parameter["name"] for parameter in without] == ["Q", "K", "V", "O"]


def test_a_problem_as_json():
    problem = parse_problem(RUN_TIME, True, "sm_100a", dtype="bf16", lse=True, scale="0.1")
    assert json.loads(json.dumps(problem.to_dict()))["config"] == {
        "B": None,
        "Sq": None,
        "Skv": None,
        "Hq": 14,
        "Hkv": 2,
        "D": 64,
        "is_causal": True,
        "dtype": "bfloat16",
        "scale": 0.1,
        "return_lse": True,
    }


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
