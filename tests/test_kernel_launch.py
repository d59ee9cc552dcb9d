"""What the kernel's host launcher encodes and launches for given tensors."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from tests.kernel_launch import AT, Kernel, counts, placed, unnumbered
from tests.runtime.launch_layouts import layouts
from tests.runtime.launcher import Call, Tensor, view
from tirx_attn.schedule import make_plan

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to stand in for CUDA")

FLOAT16, BFLOAT16, SWIZZLE_128B, L2_PROMOTION_128B = 6, 9, 3, 2
"""Enumerators of cuda.h."""


def check_compact(kernel: Kernel, call: Call, q, k, q_box, copies: int, dtype: int) -> None:
    """Dims and byte strides of Q and O, of K and V; the box of Q and O; descriptors that the kernel has of K and V."""
    assert placed(call) == {"Q": (0, *q), "K": (0, *k), "V": (0, *k), "O": (0, *q)}
    assert [len(call.launch.descriptors(name)) for name in "QKVO"] == [2, copies, copies, 1]
    assert len(call.encodes) == 7
    for name, box in {"Q": q_box, "K": (64, 1, 128, 1), "V": (64, 1, 128, 1), "O": q_box}.items():
        for encode in call.launch.descriptors(name):
            assert (encode.box, encode.steps, encode.dtype) == (box, (1, 1, 1, 1), dtype)
            assert (encode.swizzle, encode.l2_promotion) == (SWIZZLE_128B, L2_PROMOTION_128B)
            assert (encode.interleave, encode.oob_fill, encode.allowed) == (0, 0, True)
    launch = call.launch
    assert (launch.kernel, launch.block, launch.cluster) == ("flash_attention4_kernel", (512, 1, 1), (1, 1, 1))
    assert launch.smem == make_plan(kernel.config).smem.size


def test_compact(full):
    q, k = ((128, 4, 300, 2), (256, 1024, 307200)), ((128, 2, 400, 2), (256, 512, 204800))
    check_compact(full, full(2, 300, 400), q, k, q_box=(64, 2, 64, 1), copies=2, dtype=FLOAT16)


@pytest.mark.slow
def test_compact_with_rows_that_hold_no_query(causal):
    q, k = ((64, 6, 300, 2), (128, 768, 230400)), ((64, 2, 400, 2), (128, 256, 102400))
    check_compact(causal, causal(2, 300, 400), q, k, q_box=(64, 3, 42, 1), copies=2, dtype=BFLOAT16)


@pytest.mark.slow
def test_compact_with_one_block_of_keys(fixed):
    there = ((128, 4, 128, 1), (256, 1024, 131072))
    check_compact(fixed, fixed(1, 128, 128), there, there, q_box=(64, 1, 128, 1), copies=1, dtype=FLOAT16)


@pytest.mark.parametrize(
    ("sizes", "m_blocks"), [((1, 1, 1), 1), ((2, 300, 400), 3), ((5, 4096, 77), 32), ((70000, 129, 9), 2)]
)
def test_a_persistent_launch_has_a_cta_for_each_sm(full, sizes, m_blocks):
    call = full(*sizes)
    assert call.launch.grid == (148, 1, 1)
    assert counts(call) == sorted((*sizes, m_blocks))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "m_blocks", "l2_heads"),
    [
        ((1, 1, 1), 1, 2),
        ((3, 84, 700), 1, 6),
        ((3, 85, 700), 2, 6),
        ((3, 168, 700), 2, 6),
        ((3, 300, 102400), 4, 2),
        ((3, 4096, 5), 49, 6),
        ((7, 300, 2**29), 4, 1),
        ((65536, 300, 400), 4, 512),
        ((70000, 1, 2**20), 1, 1),
    ],
)
def test_a_causal_launch_has_a_cta_for_each_task(causal, sizes, m_blocks, l2_heads):
    b, sq, skv = sizes
    call = causal(b, sq, skv, scale=0.3)
    tasks = 2 * b * m_blocks
    assert call.launch.grid == (tasks, 1, 1)
    # Sq comes twice: 64-bit as well, for the offsets of LSE.
    assert counts(call) == sorted((b, sq, sq, skv, m_blocks, l2_heads, tasks))
    assert call.launch.parameters["LSE_ptr"] == AT["LSE"]
    assert call.launch.parameters["scale"] == float(np.float32(0.3))


@pytest.mark.slow
def test_fixed_sizes_are_no_parameters(fixed):
    call = fixed(1, 128, 128)
    assert call.launch.grid == (4, 1, 1)
    assert (counts(call), len(call.launch.parameters)) == ([], 5)


@pytest.mark.slow
def test_more_heads_than_a_grid_has_rows(many_heads):
    call = many_heads(2, 300, 130)
    assert call.launch.grid == (280000, 1, 1)
    assert placed(call)["K"] == (0, (64, 70000, 130, 2), (128, 8960000, 1164800000))


def half(*shape: int) -> np.ndarray:
    return np.empty(shape, np.float16)


@pytest.mark.slow
def test_parts_of_a_stacked_buffer(fixed):
    qkv = half(3, 1, 128, 4, 128)
    parts = {name: view(qkv[i], address=AT[name]) for i, name in enumerate("QKV")}
    there = ((128, 4, 128, 1), (256, 1024, 131072))
    expected = {"Q": (0, *there), "K": (131072, *there), "V": (262144, *there), "O": (0, *there)}
    assert placed(fixed(1, 128, 128, **parts)) == expected


def test_heads_of_a_fused_buffer(full):
    qkv = half(2, 300, 8, 128)
    slices = {"Q": qkv[:, :, :4], "K": qkv[:, :, 4:6], "V": qkv[:, :, 6:]}
    call = full(2, 300, 300, **{name: view(part, address=AT[name]) for name, part in slices.items()})
    strides = (256, 2048, 614400)
    assert placed(call) == {
        "Q": (0, (128, 4, 300, 2), strides),
        "K": (1024, (128, 2, 300, 2), strides),
        "V": (1536, (128, 2, 300, 2), strides),
        "O": (0, (128, 4, 300, 2), (256, 1024, 307200)),
    }
    assert call.launch.grid == (148, 1, 1)


def test_heads_outside_of_tokens(full):
    queries, keys = (half(2, heads, length, 128).transpose(0, 2, 1, 3) for heads, length in ((4, 300), (2, 400)))
    call = full(2, 300, 400, **{n: view(queries if n in "QO" else keys, address=AT[n]) for n in "QKVO"})
    q = (0, (128, 4, 300, 2), (76800, 256, 307200))
    k = (0, (128, 2, 400, 2), (102400, 256, 204800))
    assert placed(call) == {"Q": q, "K": k, "V": k, "O": q}


def test_k_and_v_lie_differently(full):
    call = full(2, 300, 400, K=view(half(2, 801, 2, 128)[:, 1::2], address=AT["K"]))
    dims = (128, 2, 400, 2)
    assert placed(call)["K"] == (512, dims, (256, 1024, 410112))
    assert placed(call)["V"] == (0, dims, (256, 512, 204800))


@pytest.mark.parametrize(
    "kernel",
    ["full", *(pytest.param(name, marks=pytest.mark.slow) for name in ("causal", "fixed"))],
    indirect=True,
)
def test_the_batch_stride_of_one_batch_does_not_matter(kernel):
    plain = kernel(1, 128, 128)
    heads = {"Q": kernel.config.Hq, "K": kernel.config.Hkv, "V": kernel.config.Hkv, "O": kernel.config.Hq}
    for stride in (0, 1, -7, 2**62):
        given = {}
        for name, count in heads.items():
            tensor = kernel.compact(name, 1, 128, count, kernel.config.D)
            given[name] = replace(tensor, strides=(stride, *tensor.strides[1:]))
        assert unnumbered(kernel(1, 128, 128, **given)) == unnumbered(plain)


def test_a_slice_is_written_within_its_bounds(full):
    o = half(4, 500, 9, 192)[1:3, 100:400, 4:8, 64:]
    offset, dims, strides = placed(full(2, 300, 400, O=view(o, address=AT["O"])))["O"]
    assert offset == 2 * (1 * 500 * 9 * 192 + 100 * 9 * 192 + 4 * 192 + 64)
    assert (dims, strides) == ((128, 4, 300, 2), (384, 3456, 1728000))


def test_more_than_2_to_the_31_elements(full):
    call = full(64, 128, 131200)
    assert placed(call)["K"] == placed(call)["V"] == (0, (128, 2, 131200, 64), (256, 512, 67174400))
    last_heads = Tensor((2, 131200, 2, 128), (2149580800, 16384, 128, 1), address=AT["K"], byte_offset=126 * 256)
    call = full(2, 128, 131200, K=last_heads, V=replace(last_heads, address=AT["V"]))
    expected = (126 * 256, (128, 2, 131200, 2), (256, 32768, 4299161600))
    assert placed(call)["K"] == placed(call)["V"] == expected


@pytest.mark.parametrize("name", layouts(2, 128))
def test_layouts(full, name):
    """As `check_layout` of inputs, each tensor alone; outputs are no different to the launcher."""
    tensors = {n: layouts(4 if n in "QO" else 2, 128)[name] for n in "QKVO"}
    for buffer, (tensor, text) in tensors.items():
        b, length, _, _ = tensor.shape
        call = full(b, length, length, **{buffer: tensor})
        assert (call.launch is None, call.error is None) == (text is not None, text is None), buffer
        if text and ".strides" in text:
            assert re.match(rf"ValueError: .*\b{buffer}\.strides\[[0-3]\]", call.error), call.error
