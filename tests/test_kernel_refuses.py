"""What the kernel's host launcher refuses, and with which words."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest

from tests.kernel_launch import AT
from tests.runtime.launcher import CPU, Call, Tensor, compact
from tirx_attn.config import MAX_SIZE
from tirx_attn.schedule.schedule import MAX_TASKS

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to stand in for CUDA")


def refused(call: Call) -> str:
    """The error, without the signature that TVM puts in the middle."""
    assert call.launch is None
    return re.sub(r"argument (#\d) when calling:\s+`.*`,\s+", r"\1, ", call.error, flags=re.DOTALL)


def bad(name: str, *shape: int, **more) -> dict[str, Tensor]:
    return {name: compact(*shape, address=AT[name], **more)}


REFUSED = {
    "Q in fp32": (bad("Q", 2, 300, 4, 128, dtype="float32"), "TypeError: Mismatched Q.dtype on #0, expected float16"),
    "K in bf16": (bad("K", 2, 400, 2, 128, dtype="bfloat16"), "TypeError: Mismatched K.dtype on #1, expected float16"),
    "O in bf16": (bad("O", 2, 300, 4, 128, dtype="bfloat16"), "TypeError: Mismatched O.dtype on #3, expected float16"),
    "heads of Q": (bad("Q", 2, 300, 6, 128), "ValueError: Invalid Q.shape[2] on #0, expected 4"),
    "heads of V": (bad("V", 2, 400, 4, 128), "ValueError: Invalid V.shape[2] on #2, expected 2"),
    "D of K": (bad("K", 2, 400, 2, 64), "ValueError: Invalid K.shape[3] on #1, expected 128"),
    "Sq of O": (bad("O", 2, 301, 4, 128), "ValueError: Mismatched O.shape[1] on #3, expected to match Q.shape[1]"),
    "Skv of V": (bad("V", 2, 401, 2, 128), "ValueError: Mismatched V.shape[1] on #2, expected to match K.shape[1]"),
    "B of K": (bad("K", 3, 400, 2, 128), "ValueError: Mismatched K.shape[0] on #1, expected to match Q.shape[0]"),
    "B of O": (bad("O", 1, 300, 4, 128), "ValueError: Mismatched O.shape[0] on #3, expected to match Q.shape[0]"),
    "dimensions of Q": (bad("Q", 2, 300, 512), "ValueError: Mismatched Q.ndim on #0, expected 4"),
    "device of O": (
        bad("O", 2, 300, 4, 128, device=CPU),
        "ValueError: Mismatched O.device_type on #3, expected cuda",
    ),
    "columns of V": (
        {"V": Tensor((2, 400, 2, 128), (204800, 512, 256, 2))},
        "ValueError: Invalid V.strides[3] on #2, expected 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(full, name):
    given, text = REFUSED[name]
    call = full(2, 300, 400, **given)
    assert (refused(call), call.encodes) == (text, ())


LSE = compact(2, 6, 300, dtype="float32", address=AT["LSE"])
NOT_COMPACT = "ValueError: Mismatched LSE.strides on #4, expected to be compact array"
LSE_REFUSED = {
    "every second": (replace(LSE, strides=(3600, 600, 2)), NOT_COMPACT),
    "transposed": (replace(LSE, strides=(300, 600, 1)), NOT_COMPACT),
    "padded batches": (replace(LSE, strides=(2400, 300, 1)), NOT_COMPACT),
    "byte offset": (replace(LSE, byte_offset=16), "ValueError: Invalid LSE.byte_offset on #4, expected 0"),
    "fp16": (replace(LSE, dtype="float16"), "TypeError: Mismatched LSE.dtype on #4, expected float32"),
    "heads": (compact(2, 5, 300, dtype="float32"), NOT_COMPACT),
    "dimensions": (compact(2, 1800, dtype="float32"), "ValueError: Mismatched LSE.ndim on #4, expected 3"),
    "Sq": (
        compact(2, 6, 301, dtype="float32"),
        "ValueError: Mismatched LSE.shape[2] on #4, expected to match Q.shape[1]",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LSE_REFUSED)
def test_lse_refused_by_name(causal, name):
    lse, text = LSE_REFUSED[name]
    assert refused(causal(2, 300, 400, LSE=lse)) == text


@pytest.mark.slow
def test_other_sizes_than_the_fixed_ones_are_refused(fixed):
    assert refused(fixed(2, 128, 128)) == "ValueError: Invalid Q.shape[0] on #0, expected 1"
    assert refused(fixed(1, 129, 128)) == "ValueError: Invalid Q.shape[1] on #0, expected 128"
    assert refused(fixed(1, 128, 127)) == "ValueError: Invalid K.shape[1] on #1, expected 128"


SIZE = f": allowed are sizes from 1 to {MAX_SIZE}"
TASKS = f"B, Sq: allowed are fewer than {MAX_TASKS} tasks"


@pytest.mark.parametrize("kernel", ["full", pytest.param("causal", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize(
    ("taken", "beyond", "message"),
    [
        ((1, 1, MAX_SIZE), (1, 1, MAX_SIZE + 1), "Skv" + SIZE),
        ((1, 1, MAX_SIZE), (1, 1, 2**31), "Skv" + SIZE),
        ((1, 1, 1), (1, 1, 2**32 + 1), "Skv" + SIZE),
        ((1, 2**29, 1), (1, MAX_SIZE + 1, 1), "Sq" + SIZE),
        ((1, 2**29, 1), (1, 2**32 + 1, 1), "Sq" + SIZE),
        ((MAX_TASKS // 2 - 1, 1, 1), (MAX_TASKS // 2, 1, 1), TASKS),
        ((MAX_TASKS // 4 - 1, 129, 1), (MAX_TASKS // 4, 129, 1), TASKS),
        ((1, 1, 1), (2**32 + 1, 1, 1), "B" + SIZE),
        ((1, 1, 1), (0, 1, 1), "B" + SIZE),
        ((1, 1, 1), (1, 0, 1), "Sq" + SIZE),
        ((1, 1, 1), (1, 1, 0), "Skv" + SIZE),
    ],
)
def test_sizes_that_the_device_cannot_take_are_refused(kernel, taken, beyond, message):
    assert kernel(*taken).error is None
    assert refused(kernel(*beyond)) == f"ValueError: {message}"


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.0, -0.1, float("nan"), float("inf"), 1e-40])
def test_a_scale_that_is_no_positive_number_is_refused(causal, scale):
    assert causal(1, 30, 30, scale=0.1).error is None
    assert refused(causal(1, 30, 30, scale=scale)) == "ValueError: scale: allowed are positive numbers"


def test_a_misaligned_tensor_is_refused(full):
    """By TVM, whose text names no argument; `check_layout` does."""
    call = full(1, 30, 30, K=replace(full.compact("K", 1, 30, 2, 128), byte_offset=8))
    assert "& 0b1111" in refused(call)
