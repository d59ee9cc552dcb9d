"""Layouts by the words of `check_layout`, and by the host launcher of a copy kernel."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.runtime.launch_layouts import BASE, CONTIGUOUS, STRIDES, layouts, one_head
from tests.runtime.launcher import Launcher, Tensor, compact
from tirx_attn.runtime.layout import check_array, check_layout

LAYOUTS = layouts(4, 64) | one_head(64)
OUTPUTS_ONLY = {"the same batch twice": 0, "the same token each time": 1, "the same head each time": 2}
"""The axis along which elements share a place: nothing but `check_layout` knows which tensor is written."""

WRITTEN = ": allowed are positive strides, since the kernel writes to each element"


def refusal(tensor: Tensor, itemsize: int = 2, **kind: bool) -> str | None:
    try:
        check_layout("K", tensor.shape, tensor.strides, itemsize, tensor.address + tensor.byte_offset, **kind)
    except ValueError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def launcher(cuda_stubs):
    with Launcher(cuda_stubs, "tests.runtime.strided_copy.strided_copy", {"size_one": "select"}) as launcher:
        yield launcher


@pytest.mark.parametrize("name", LAYOUTS)
def test_input(name):
    tensor, text = LAYOUTS[name]
    assert refusal(tensor) == (None if text is None else "K" + text)


@pytest.mark.parametrize("name", LAYOUTS)
def test_output(name):
    tensor, text = LAYOUTS[name]
    if name in OUTPUTS_ONLY:
        text = f".strides[{OUTPUTS_ONLY[name]}]=0" + WRITTEN
    assert refusal(tensor, output=True) == (None if text is None else "K" + text)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("written", [False, True])
def test_the_launcher_takes_the_same(launcher, name, written):
    tensor, text = LAYOUTS[name]
    _, tokens, heads, _ = tensor.shape
    plain = compact(*tensor.shape)
    call = launcher(*((plain, tensor) if written else (tensor, plain)), tokens, heads, 1)
    assert (call.launch is None, call.error is None) == (text is not None, text is None)
    assert all(encode.allowed for encode in call.encodes)


LSE = compact(2, 6, 300)
NOT_COMPACT = ", since K has to be compact"


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (LSE, None),
        (compact(2, 6, 1), None),
        (Tensor((1, 6, 300), (0, 300, 1)), None),
        (Tensor((1, 1, 1), (0, -7, 5)), None),
        (compact(2, 6, 300, address=2**40 + 4), None),
        (compact(2, 6, 300, address=2**40 + 4, byte_offset=8), None),
        (compact(2, 6, 300, address=2), "K at address 0x2: allowed are positive multiples of 4 bytes"),
        (Tensor((2, 6, 300), (3600, 600, 2)), "K.strides[2]=2: allowed is 1" + NOT_COMPACT),
        (Tensor((2, 6, 300), (300, 600, 1)), "K.strides[1]=600: allowed is 300" + NOT_COMPACT),
        (Tensor((2, 6, 300), (2400, 300, 1)), "K.strides[0]=2400: allowed is 1800" + NOT_COMPACT),
        (Tensor((2, 6, 1), (6, 0, 1)), "K.strides[1]=0: allowed is 1" + NOT_COMPACT),
    ],
)
def test_compact_output(tensor, text):
    assert refusal(tensor, 4, output=True, compact=True) == text


@pytest.mark.parametrize(("itemsize", "taken"), [(1, False), (2, True), (4, True)])
def test_strides_count_in_bytes(itemsize, taken):
    tensor = Tensor((2, 300, 4, 64), (300 * 264, 264, 72, 1))
    assert (refusal(tensor, itemsize) is None) == taken


def test_a_stride_for_each_dimension():
    text = "K.strides=(64, 1): allowed is one for each of the 3 dimensions"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        check_layout("K", (2, 300, 64), (64, 1), 2, 16)


@pytest.mark.parametrize("shape", [(0, 300, 4, 64), (2, 0, 4, 64), (2, 300, 0, 64)])
@pytest.mark.parametrize("kind", [{}, {"output": True}, {"compact": True}])
def test_nothing_is_asked_of_an_empty_tensor(shape, kind):
    assert refusal(Tensor(shape, (-3, 0, 7, 5), address=0), **kind) is None


def array_refusal(array: np.ndarray, **kind: bool) -> str | None:
    try:
        check_array("Q", array, **kind)
    except ValueError as error:
        return str(error)
    return None


def test_numpy_views():
    storage = np.zeros(2 * 300 * 3 * 4 * 64 + 16, np.float16)
    start = -storage.ctypes.data % 16 // 2
    qkv = storage[start : start + 2 * 300 * 3 * 4 * 64].reshape(2, 300, 3, 4, 64)
    assert array_refusal(qkv[:, :, 1]) is None
    assert array_refusal(qkv[:, ::2, 1], output=True) is None
    assert array_refusal(qkv[:, ::-1, 1]) == "Q.strides[1]=-768, -1536 bytes" + STRIDES
    assert array_refusal(qkv[..., ::2]) == "Q.strides[4]=2" + CONTIGUOUS
    shifted = storage[start + 4 :][: 2 * 4 * 64].reshape(2, 1, 4, 64)
    assert array_refusal(shifted) == f"Q at address {storage.ctypes.data + 2 * start + 8:#x}" + BASE
    one = np.broadcast_to(qkv[:, :, 0, :1], (2, 300, 4, 64))
    assert array_refusal(one) is None
    assert array_refusal(one, output=True) == "Q.strides[2]=0" + WRITTEN
    assert array_refusal(qkv[:, :, 1], compact=True) == "Q.strides[1]=768: allowed is 256, since Q has to be compact"


def test_numpy_view_with_strides_within_an_element():
    fields = np.zeros(300, np.dtype([("tag", "u1"), ("x", "f2")]))
    assert array_refusal(fields["x"]) == "Q.strides=(3,) bytes: allowed are multiples of 2"
