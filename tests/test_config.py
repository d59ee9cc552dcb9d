"""AttentionConfig: what is refused, with which words, and before what; its derived numbers against direct counts."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import CASES, REJECTED
from tirx_attn import AttentionConfig, Schedule

GOOD = {"B": 1, "Sq": 128, "Skv": 128, "Hq": 2, "Hkv": 1, "D": 128}
SIZES = tuple(GOOD)


def refused(error: type[Exception], **changes) -> str:
    """Text of the error that GOOD with `changes` raises."""
    with pytest.raises(error) as raised:
        AttentionConfig(**{**GOOD, **changes})
    return str(raised.value)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -1, -128, 2**31])
def test_a_size_out_of_range_is_a_value_error(name, value):
    message = refused(ValueError, **{name: value})
    assert message == f"{name}={value}: allowed values are positive integers below 2**31"


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [1.0, 128.0, "128", None, (128,), np.float32(128), 1 + 0j], ids=repr)
def test_a_size_that_is_no_integer_is_a_type_error(name, value):
    message = refused(TypeError, **{name: value})
    assert message == f"{name}={value!r} ({type(value).__name__}): allowed values are positive integers"


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [True, False])
def test_a_bool_is_no_size(name, value):
    assert refused(TypeError, **{name: value}) == f"{name}={value}: allowed values are positive integers, not bool"


@pytest.mark.parametrize("value", [0, 1, None, "causal", np.bool_(True)], ids=repr)
def test_the_mask_is_a_bool(value):
    assert refused(TypeError, is_causal=value) == f"is_causal={value!r}: allowed values are True and False"


@pytest.mark.parametrize("d", [1, 8, 16, 32, 64, 96, 127, 129, 160, 192, 256, 512])
def test_only_head_size_128_exists(d):
    assert refused(ValueError, D=d) == f"D={d}: allowed head sizes are 128"


@pytest.mark.parametrize(("hq", "hkv"), [(33, 2), (3, 2), (1, 2), (7, 4)])
def test_query_heads_are_a_multiple_of_kv_heads(hq, hkv):
    assert refused(ValueError, Hq=hq, Hkv=hkv) == f"Hq={hq}: allowed values are multiples of Hkv={hkv}"


@pytest.mark.parametrize(("hq", "hkv"), [(3, 1), (12, 4), (7, 1), (40, 4), (96, 1), (256, 1), (512, 2)])
def test_the_ratio_divides_a_tile(hq, hkv):
    message = refused(ValueError, Hq=hq, Hkv=hkv)
    assert message.startswith(f"Hq={hq} with Hkv={hkv}: allowed ratios Hq/Hkv are the divisors of 128")
    assert message.endswith(f"got {hq // hkv}")


@pytest.mark.parametrize("ratio", [1, 2, 4, 8, 16, 32, 64, 128])
def test_every_divisor_of_a_tile_is_a_ratio(ratio):
    assert AttentionConfig(**{**GOOD, "Hq": 2 * ratio, "Hkv": 2}).ratio == ratio


@pytest.mark.parametrize("skv", [1, 64, 127, 129, 200, 257])
def test_without_a_mask_keys_come_in_whole_tiles(skv):
    message = refused(ValueError, Skv=skv)
    assert message == f"Skv={skv}: allowed values without a causal mask are multiples of 128"
    assert AttentionConfig(**{**GOOD, "Skv": skv}, is_causal=True).Skv == skv


def test_tensors_stay_below_32_bit_indices():
    largest = AttentionConfig(1, 128, 2**17 - 128, 128, 128, 128)  # K: (2**17 - 128) * 2**14 elements
    assert largest.Skv * largest.Hkv * largest.D < 2**31
    with pytest.raises(ValueError, match=r"K has 2147483648 elements: allowed are fewer than 2\*\*31"):
        AttentionConfig(1, 128, 2**17, 128, 128, 128)
    with pytest.raises(ValueError, match=r"Q has 2147483648 elements: allowed are fewer than 2\*\*31"):
        AttentionConfig(1, 2**17, 128, 128, 128, 128)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint16])
def test_numpy_integers_give_the_same_problem(kind):
    """One problem has one key, however its sizes were written."""
    plain = AttentionConfig(**GOOD)
    other = AttentionConfig(**{name: kind(value) for name, value in GOOD.items()})
    assert other == plain
    assert hash(other) == hash(plain)
    assert all(type(getattr(other, name)) is int for name in SIZES)


def test_a_config_cannot_be_changed():
    with pytest.raises(AttributeError):
        AttentionConfig(**GOOD).Sq = 256


def test_scales_of_head_size_128():
    config = AttentionConfig(**GOOD)
    assert config.softmax_scale == pytest.approx(0.08838834764831845, rel=1e-15)
    assert config.softmax_scale_log2 == pytest.approx(math.log2(math.exp(config.softmax_scale)), rel=1e-12)


# 4·B·Hq·D per visible pair: 2 operations per multiply-add, two products.
@pytest.mark.parametrize(
    ("arguments", "flops"),
    [
        ((1, 8192, 8192, 32, 32, 128, False), 4 * 32 * 128 * 8192 * 8192),
        ((1, 8192, 8192, 32, 32, 128, True), 4 * 32 * 128 * (8192 * 8193 // 2)),
        ((1, 256, 128, 1, 1, 128, True), 4 * 128 * (128 * 129 // 2)),
        ((2, 128, 384, 4, 2, 128, True), 4 * 2 * 4 * 128 * sum(range(257, 385))),
        ((1, 1, 1, 1, 1, 128, True), 4 * 128),
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
    ratio=st.sampled_from([1, 2, 4, 8]),
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


def test_refusals_and_plans_need_no_tvm():
    """A fresh interpreter: every bad argument is refused, and a plan and its protocol are made, with TVM unloaded."""
    script = f"""
import sys
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.schedule import make_plan
from tirx_attn.barriers.protocol import protocol
for arguments in {[case.arguments for case in REJECTED]!r}:
    try:
        AttentionConfig(*arguments)
    except ValueError:
        continue
    raise SystemExit(f"accepted {{arguments}}")
for change in (dict(pv_split=(100, 28)), dict(kv_stages=1), dict(epilogue_owner="mma")):
    try:
        Schedule(**change)
    except ValueError:
        continue
    raise SystemExit(f"accepted {{change}}")
plan = make_plan(AttentionConfig(1, 256, 256, 2, 1, 128, True))
protocol(plan)
loaded = [name for name in sys.modules if name.split(".")[0] in ("tvm", "tvm_ffi", "torch")]
raise SystemExit(f"loaded {{loaded}}" if loaded else 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def no_tracing(monkeypatch):
    """Building a kernel would be an error."""
    from tirx_attn import kernel

    def build(plan):
        raise AssertionError(f"traced {plan.config}")

    monkeypatch.setattr(kernel, "build_kernel", build)
    return kernel.get_flash_attention4_kernel


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case.name)
def test_the_kernel_refuses_before_it_traces(case, no_tracing):
    with pytest.raises(ValueError, match=case.message):
        no_tracing(*case.arguments)


@pytest.mark.parametrize("value", [True, 2.0, "2"], ids=repr)
def test_the_kernel_refuses_a_wrong_type_before_it_traces(value, no_tracing):
    with pytest.raises(TypeError, match=r"B=.*allowed values are positive integers"):
        no_tracing(value, 128, 128, 1, 1, 128)


def test_the_kernel_refuses_a_bad_schedule_before_it_traces(no_tracing):
    with pytest.raises(TypeError, match=r"schedule='fast': allowed values are None and tirx_attn.Schedule"):
        no_tracing(1, 128, 128, 1, 1, 128, schedule="fast")
    with pytest.raises(ValueError, match=r"kv_stages=4: needs .* bytes of shared memory, allowed are 232448 on B200"):
        no_tracing(1, 128, 128, 1, 1, 128, schedule=Schedule(kv_stages=4))
    with pytest.raises(ValueError, match=r"softmax_registers=208.*need 67584 registers, allowed are 65536"):
        no_tracing(1, 128, 128, 1, 1, 128, schedule=Schedule(softmax_registers=208))


def test_good_arguments_reach_the_tracer(no_tracing):
    with pytest.raises(AssertionError, match="traced"):
        no_tracing(1, 128, 128, 1, 1, 128)
