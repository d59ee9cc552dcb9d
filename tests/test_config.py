"""AttentionConfig: what is refused and with which words; its derived numbers against direct counts."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import CASES
from tirx_attn import AttentionConfig

GOOD = {"B": 1, "Sq": 128, "Skv": 128, "Hq": 2, "Hkv": 1, "D": 128}
SIZES = tuple(GOOD)
ALLOWED_SIZES = {
    name: "positive integers up to 2**30 - 256" + (" and None" if name in ("B", "Sq", "Skv") else "") for name in SIZES
}


def refused(error: type[Exception], **changes) -> str:
    """Text of the error that GOOD with `changes` raises."""
    with pytest.raises(error) as raised:
        AttentionConfig(**{**GOOD, **changes})
    return str(raised.value)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -1, -128, 2**30 - 255, 2**31, 2**64])
def test_a_size_out_of_range_is_a_value_error(name, value):
    assert refused(ValueError, **{name: value}) == f"{name}={value}: allowed values are {ALLOWED_SIZES[name]}"


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [1.0, 128.0, "128", (128,), np.float32(128), 1 + 0j], ids=repr)
def test_a_size_that_is_no_integer_is_a_type_error(name, value):
    message = refused(TypeError, **{name: value})
    assert message == f"{name}={value!r} ({type(value).__name__}): allowed values are {ALLOWED_SIZES[name]}"


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [True, False])
def test_a_bool_is_no_size(name, value):
    message = refused(TypeError, **{name: value})
    assert message == f"{name}={value}: allowed values are {ALLOWED_SIZES[name]}, not bool"


@pytest.mark.parametrize("name", SIZES[3:])
def test_heads_and_head_size_are_known(name):
    message = refused(TypeError, **{name: None})
    assert message == f"{name}=None (NoneType): allowed values are {ALLOWED_SIZES[name]}"


@pytest.mark.parametrize("names", [(), ("B",), ("Sq",), ("Skv",), ("B", "Skv"), ("Sq", "Skv"), ("B", "Sq", "Skv")])
def test_batch_and_lengths_may_be_left_to_run_time(names):
    config = AttentionConfig(**{**GOOD, **dict.fromkeys(names)})
    assert config.run_time_names == names
    assert [getattr(config, name) for name in names] == [None] * len(names)
    if names:
        for size in ("lengths", "flops"):
            with pytest.raises(ValueError, match=f"^{', '.join(names)}=None: allowed"):
                getattr(config, size)
    else:
        assert config.lengths == (1, 128, 128)


@pytest.mark.parametrize("value", [0, 1, None, "causal", np.bool_(True)], ids=repr)
@pytest.mark.parametrize("name", ["is_causal", "return_lse"])
def test_a_switch_is_a_bool(name, value):
    assert refused(TypeError, **{name: value}) == f"{name}={value!r}: allowed values are True and False"


@pytest.mark.parametrize("d", [1, 8, 16, 32, 63, 65, 96, 127, 129, 160, 192, 256, 512])
def test_head_sizes_that_do_not_exist(d):
    assert refused(ValueError, D=d) == f"D={d}: allowed head sizes are 64, 128"


@pytest.mark.parametrize(("hq", "hkv"), [(33, 2), (3, 2), (1, 2), (7, 4)])
def test_query_heads_are_a_multiple_of_kv_heads(hq, hkv):
    assert refused(ValueError, Hq=hq, Hkv=hkv) == f"Hq={hq}: allowed values are multiples of Hkv={hkv}"


@pytest.mark.parametrize(("hq", "hkv"), [(129, 1), (258, 2), (256, 1), (512, 2), (2**29, 1)])
def test_a_ratio_is_at_most_a_tile(hq, hkv):
    message = refused(ValueError, Hq=hq, Hkv=hkv)
    assert message == f"Hq={hq} with Hkv={hkv}: allowed ratios Hq/Hkv are 1 to 128, got {hq // hkv}"


def test_every_ratio_up_to_a_tile_is_allowed():
    ratios = range(1, 129)
    assert [AttentionConfig(**{**GOOD, "Hq": 3 * ratio, "Hkv": 3}).ratio for ratio in ratios] == list(ratios)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("skv", [1, 64, 127, 128, 129, 200, 257, 2**30 - 256])
def test_every_key_length_is_allowed(skv, causal):
    config = AttentionConfig(**{**GOOD, "Skv": skv, "D": 64}, is_causal=causal)
    assert (config.Skv, config.D) == (skv, 64)


def test_tensors_may_have_more_elements_than_32_bits_count():
    config = AttentionConfig(8, 2**18, 2**18, 128, 8, 128)
    assert config.B * config.Sq * config.Hq * config.D == 2**35


@pytest.mark.parametrize(
    ("written", "dtype"),
    [
        ("float16", "float16"),
        ("fp16", "float16"),
        ("bfloat16", "bfloat16"),
        ("bf16", "bfloat16"),
        (np.dtype("float16").name, "float16"),
        (np.str_("bf16"), "bfloat16"),
    ],
)
def test_names_of_the_data_types(written, dtype):
    config = AttentionConfig(**GOOD, dtype=written)
    assert (config.dtype, type(config.dtype)) == (dtype, str)
    assert (AttentionConfig(**GOOD) == config) == (dtype == "float16")


@pytest.mark.parametrize("value", ["float32", "fp8", "half", "FP16", "", "float16 "])
def test_a_data_type_without_a_kernel_is_a_value_error(value):
    assert refused(ValueError, dtype=value) == f"dtype={value!r}: allowed values are 'float16' and 'bfloat16'"


@pytest.mark.parametrize("value", [None, 16, np.float16, np.dtype("float16"), b"fp16"], ids=repr)
def test_a_data_type_is_a_name(value):
    message = refused(TypeError, dtype=value)
    assert message == f"dtype={value!r} ({type(value).__name__}): allowed values are 'float16' and 'bfloat16'"


@pytest.mark.parametrize(
    ("value", "scale"),
    [
        (0.25, 0.25),
        (1, 1.0),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float16(0.5), 0.5),
        (np.int64(2), 2.0),
        (Fraction(1, 8), 0.125),
        (2.0**-126, 2.0**-126),
        (2**127, 2.0**127),
    ],
)
def test_a_number_is_the_scale(value, scale):
    config = AttentionConfig(**GOOD, scale=value)
    assert (config.scale, type(config.scale)) == (scale, float)
    assert config.softmax_scale == scale


SCALES = "allowed values are None, positive numbers (from 2**-126 to 2**127) and 'runtime'"


@pytest.mark.parametrize(
    "value",
    [0, 0.0, -0.0, -1.0, math.inf, -math.inf, math.nan, np.float32("nan"), 1e-39, 3e38, 10**400, "auto", "Runtime", ""],
    ids=repr,
)
def test_a_scale_out_of_range_is_a_value_error(value):
    assert refused(ValueError, scale=value) == f"scale={value!r}: {SCALES}"


@pytest.mark.parametrize("value", [True, np.bool_(True), (1.0,), np.ones(1), 1j, b"runtime"], ids=repr)
def test_a_scale_that_is_no_number_is_a_type_error(value):
    assert refused(TypeError, scale=value) == f"scale={value!r} ({type(value).__name__}): {SCALES}"


def test_every_scale_stays_a_normal_float32_in_base_2():
    """The kernel multiplies logits by scale·log2(e) in float32, where subnormal numbers are flushed to 0."""
    for scale in (2.0**-126, 2.0**127):
        in_base_2 = np.float32(scale * math.log2(math.e))
        assert np.finfo(np.float32).tiny <= np.float32(scale) <= in_base_2 <= np.finfo(np.float32).max


def test_a_scale_of_run_time_is_not_baked_in():
    config = AttentionConfig(**GOOD, scale="runtime")
    assert config.scale == "runtime"
    with pytest.raises(ValueError, match=r"scale='runtime'"):
        _ = config.softmax_scale


def test_the_last_arguments_go_by_name():
    with pytest.raises(TypeError, match="positional"):
        AttentionConfig(1, 128, 128, 2, 1, 128, False, "float16")


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint16])
def test_numpy_integers_give_the_same_problem(kind):
    """One problem has one key, however it was written."""
    plain = AttentionConfig(**GOOD, scale=0.5)
    sizes = {name: kind(value) for name, value in GOOD.items()}
    other = AttentionConfig(**sizes, dtype="fp16", scale=np.float32(0.5))
    assert other == plain
    assert hash(other) == hash(plain)
    assert all(type(getattr(other, name)) is int for name in SIZES)


@pytest.mark.parametrize(
    "change",
    [
        {"B": None},
        {"Skv": None},
        {"D": 64},
        {"is_causal": True},
        {"dtype": "bf16"},
        {"scale": 1.0},
        {"scale": "runtime"},
        {"return_lse": True},
    ],
    ids=repr,
)
def test_every_argument_is_part_of_the_key(change):
    assert AttentionConfig(**{**GOOD, **change}) != AttentionConfig(**GOOD)


def test_a_config_cannot_be_changed():
    with pytest.raises(AttributeError):
        AttentionConfig(**GOOD).Sq = 256


@pytest.mark.parametrize(("d", "scale"), [(64, 0.125), (128, 0.08838834764831845)])
def test_the_scale_is_that_of_the_head_size(d, scale):
    assert AttentionConfig(**{**GOOD, "D": d}).softmax_scale == pytest.approx(scale, rel=1e-15)


# 4·B·Hq·D per visible pair: 2 operations per multiply-add, two products.
@pytest.mark.parametrize(
    ("arguments", "flops"),
    [
        ((1, 8192, 8192, 32, 32, 128, False), 4 * 32 * 128 * 8192 * 8192),
        ((1, 8192, 8192, 32, 32, 128, True), 4 * 32 * 128 * (8192 * 8193 // 2)),
        ((1, 256, 128, 1, 1, 128, True), 4 * 128 * (128 * 129 // 2)),
        ((2, 128, 384, 4, 2, 128, True), 4 * 2 * 4 * 128 * sum(range(257, 385))),
        ((1, 1, 1, 1, 1, 128, True), 4 * 128),
        ((1, 2, 3, 3, 1, 64, False), 4 * 3 * 64 * 6),
    ],
)
def test_flops_of_known_problems(arguments, flops):
    assert AttentionConfig(*arguments).flops == flops


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    batch=st.integers(1, 3),
    sq=st.integers(1, 70),
    skv=st.integers(1, 70),
    hkv=st.integers(1, 3),
    ratio=st.integers(1, 128),
)
def test_causal_flops_count_the_visible_pairs(batch, sq, skv, hkv, ratio):
    pairs = sum(j <= i + skv - sq for i in range(sq) for j in range(skv))
    config = AttentionConfig(batch, sq, skv, hkv * ratio, hkv, 128, True)
    assert config.flops == 4 * batch * hkv * ratio * 128 * pairs


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_flops_of_the_shared_cases(case):
    config = case.config
    rows, keys = np.arange(config.Sq)[:, None], np.arange(config.Skv)[None, :]
    visible = (keys <= rows + config.Skv - config.Sq) | (not config.is_causal)
    assert config.flops == 4 * config.B * config.Hq * config.D * int(visible.sum())
