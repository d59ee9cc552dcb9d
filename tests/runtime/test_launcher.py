"""What the generated host launcher encodes and launches for strided tensors, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.launcher import CPU, Launcher, Tensor, compact, view
from tests.runtime.strided_copy import COLUMNS, ROWS

BUILDER = "tests.runtime.strided_copy.strided_copy"
X_AT, Y_AT = 1 << 40, 1 << 41
FLOAT16, BFLOAT16, SWIZZLE_128B = 6, 9, 3
"""Enumerators of cuda.h."""


@pytest.fixture(scope="module")
def launcher(cuda_stubs):
    with Launcher(cuda_stubs, BUILDER) as launcher:
        yield launcher


@pytest.fixture(scope="module", params=["if_then_else", pytest.param("select", marks=pytest.mark.slow)])
def forgiving(request, cuda_stubs):
    with Launcher(cuda_stubs, BUILDER, {"size_one": request.param}) as launcher:
        yield launcher


@pytest.fixture(scope="module")
def literal(cuda_stubs):
    """Takes the strides of dimensions of size 1 as they are given."""
    with Launcher(cuda_stubs, BUILDER, {"size_one": "as given"}) as launcher:
        yield launcher


def copy(launcher: Launcher, x: Tensor, y: Tensor, tiles: int | None = None):
    batch, n, h, _ = x.shape
    return launcher(x, y, n, h, -(-n // ROWS) * h * batch if tiles is None else tiles)


def descriptor(call, buffer: str):
    assert call.error is None
    (encode,) = call.launch.descriptors(buffer)
    return encode


def half(*shape: int) -> np.ndarray:
    return np.empty(shape, np.float16)


# A view of [B, N, H, 64]; where it begins in its storage, in bytes; dims and byte strides, innermost first.
VIEWS = {
    "compact": (half(2, 300, 4, 64), 0, (64, 4, 300, 2), (128, 512, 153600)),
    "K of QKV side by side": (half(2, 300, 3, 4, 64)[:, :, 1], 512, (64, 4, 300, 2), (128, 1536, 460800)),
    "V of QKV stacked": (half(3, 2, 128, 4, 64)[2], 262144, (64, 4, 128, 2), (128, 512, 65536)),
    "K of QKV stacked, one batch": (half(3, 1, 128, 4, 64)[1], 65536, (64, 4, 128, 1), (128, 512, 128)),
    "stored [B, H, N, 64]": (half(2, 4, 300, 64).transpose(0, 2, 1, 3), 0, (64, 4, 300, 2), (38400, 128, 153600)),
    "stored [N, B, H, 64]": (half(300, 2, 4, 64).transpose(1, 0, 2, 3), 0, (64, 4, 300, 2), (128, 1024, 512)),
    "every second token": (half(2, 600, 4, 64)[:, 1::2], 512, (64, 4, 300, 2), (128, 1024, 307200)),
    "the last tokens": (half(2, 400, 4, 64)[:, 100:], 51200, (64, 4, 300, 2), (128, 512, 204800)),
    "the last heads": (half(2, 300, 8, 64)[:, :, 4:], 512, (64, 4, 300, 2), (128, 1024, 307200)),
    "the second batch": (half(2, 300, 4, 64)[1:], 153600, (64, 4, 300, 1), (128, 512, 128)),
    "columns of wider rows": (half(2, 300, 4, 80)[..., 16:], 32, (64, 4, 300, 2), (160, 640, 192000)),
    "one head for all": (np.broadcast_to(half(2, 300, 1, 64), (2, 300, 4, 64)), 0, (64, 4, 300, 2), (0, 128, 38400)),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("role", ["loaded", "stored"])
def test_a_view_is_described_where_it_lies(launcher, name, role):
    array, offset, dims, strides = VIEWS[name]
    if role == "loaded":
        at = X_AT
        viewed, plain = "X", "Y"
        call = copy(launcher, view(array, address=X_AT), compact(*array.shape, address=Y_AT))
    else:
        at = Y_AT
        viewed, plain = "Y", "X"
        call = copy(launcher, compact(*array.shape, address=X_AT), view(array, address=Y_AT))
    encode = descriptor(call, viewed)
    assert (encode.address - at, encode.dims, encode.strides) == (offset, dims, strides)
    other = descriptor(call, plain)
    _, n, h, _ = array.shape
    assert (other.address, other.dims) == (X_AT + Y_AT - at, dims)
    assert other.strides == (128, 128 * h, 128 * h * n if array.shape[0] > 1 else 128)


def test_box_and_swizzle_are_those_of_the_tile(launcher):
    call = copy(launcher, compact(2, 300, 4, 64), compact(2, 300, 4, 64))
    for encode in call.encodes:
        assert (encode.box, encode.steps) == ((COLUMNS, 1, ROWS, 1), (1, 1, 1, 1))
        assert (encode.dtype, encode.swizzle, encode.interleave, encode.oob_fill) == (FLOAT16, SWIZZLE_128B, 0, 0)


def test_launch_gets_its_own_descriptors_and_scalars(launcher):
    for n, grid in ((300, 24), (129, 16), (1, 8)):
        call = copy(launcher, compact(2, n, 4, 64, address=X_AT), compact(2, n, 4, 64, address=Y_AT))
        launch = call.launch
        assert (launch.kernel, launch.grid, launch.block) == ("main_kernel", (grid, 1, 1), (128, 1, 1))
        assert (launch.cluster, launch.smem) == ((1, 1, 1), ROWS * COLUMNS * 2 + 8)
        assert {name: launch.parameters[name] for name in ("n", "h", "tiles")} == {"n": n, "h": 4, "tiles": grid}
        assert len(launch.parameters) == 5
        assert (descriptor(call, "X").address, descriptor(call, "Y").address) == (X_AT, Y_AT)
        assert len(call.encodes) == 2


def test_an_offset_in_the_pointer_and_a_byte_offset_are_the_same(launcher):
    y = compact(2, 300, 4, 64, address=Y_AT)
    in_pointer = descriptor(copy(launcher, compact(2, 300, 4, 64, address=X_AT + 384), y), "X")
    as_offset = descriptor(copy(launcher, compact(2, 300, 4, 64, address=X_AT, byte_offset=384), y), "X")
    assert in_pointer.address == as_offset.address == X_AT + 384


def test_bfloat16(cuda_stubs):
    with Launcher(cuda_stubs, BUILDER, {"dtype": "bfloat16"}) as launcher:
        y = compact(2, 300, 4, 64, dtype="bfloat16")
        call = copy(launcher, compact(2, 300, 4, 64, dtype="bfloat16"), y)
        assert descriptor(call, "X").dtype == BFLOAT16
        assert "Mismatched X.dtype on argument #0" in copy(launcher, compact(2, 300, 4, 64), y).error


# Shape, strides in elements, byte strides in the descriptor: no address depends on the stride of a dimension of size 1.
ODD = {
    "batch 0": ((1, 300, 4, 64), (0, 256, 64, 1), (128, 512, 128)),
    "batch 1": ((1, 300, 4, 64), (1, 256, 64, 1), (128, 512, 128)),
    "batch -7": ((1, 300, 4, 64), (-7, 256, 64, 1), (128, 512, 128)),
    "token 0": ((2, 1, 4, 64), (256, 0, 64, 1), (128, 128, 512)),
    "token 1": ((2, 1, 4, 64), (256, 1, 64, 1), (128, 128, 512)),
    "head 1": ((2, 300, 1, 64), (19200, 64, 1, 1), (128, 128, 38400)),
    "head 2^62": ((2, 300, 1, 64), (19200, 64, 2**62, 1), (128, 128, 38400)),
    "all 1": ((1, 1, 1, 64), (1, 1, 1, 1), (128, 128, 128)),
    "all 0": ((1, 1, 1, 64), (0, 0, 0, 1), (128, 128, 128)),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_strides_of_size_one_can_be_declared_away(forgiving, name):
    shape, strides, expected = ODD[name]
    odd, plain = Tensor(shape, strides), compact(*shape)
    for x, y in ((odd, plain), (plain, odd), (odd, odd)):
        call = copy(forgiving, x, y)
        assert descriptor(call, "X").strides == descriptor(call, "Y").strides == expected


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("batch 1", "global strides must be multiple of 16"),
        ("batch -7", "globalStrides[2] must be non-negative"),
        ("head 1", "global strides must be multiple of 16"),
        ("head 2^62", "globalStrides[0] must be non-negative"),
    ],
)
def test_without_that_declaration_they_are_refused(literal, name, refusal):
    shape, strides, _ = ODD[name]
    call = copy(literal, Tensor(shape, strides), compact(*shape))
    assert call.launch is None
    assert call.error.endswith(refusal)


@pytest.mark.slow
def test_that_declaration_changes_no_device_code(literal, forgiving):
    assert literal.source == forgiving.source


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((3, 300, 4, 64), (3 * 10**9, 256, 64, 1), (128, 512, 6 * 10**9)),
        ((2, 300, 4, 64), (2**31 + 64, 256, 64, 1), (128, 512, 2**32 + 128)),
        ((2, 300, 4, 64), (2**34, 2**32, 2**31, 1), (2**32, 2**33, 2**35)),
        ((2, 300, 4, 64), (2**39 - 8, 256, 64, 1), (128, 512, 2**40 - 16)),
        ((2, 2**32, 1, 64), (2**38, 64, 64, 1), (128, 128, 2**39)),
    ],
)
def test_strides_and_lengths_beyond_32_bits(launcher, shape, strides, expected):
    tensor = Tensor(shape, strides)
    encode = descriptor(launcher(tensor, tensor, 300, 4, 1), "X")
    assert (encode.strides, encode.dims) == (expected, shape[::-1])


PLAIN = compact(2, 300, 4, 64)
REFUSED = {
    "last dimension of X not contiguous": (
        view(half(2, 300, 4, 128)[..., ::2]),
        PLAIN,
        "ValueError: Invalid X.strides[3] on argument #0",
    ),
    "last dimension of Y not contiguous": (
        PLAIN,
        view(half(2, 300, 64, 4).transpose(0, 1, 3, 2)),
        "ValueError: Invalid Y.strides[3] on argument #1",
    ),
    "byte offset 2 of X": (
        compact(2, 300, 4, 64, byte_offset=2),
        PLAIN,
        "(reinterpret_cast<uint64_t>(tensor_ptr) & 0b1111) == 0 (2 vs. 0)",
    ),
    "byte offset 8 of Y": (
        PLAIN,
        compact(2, 300, 4, 64, byte_offset=8),
        "(reinterpret_cast<uint64_t>(tensor_ptr) & 0b1111) == 0 (8 vs. 0)",
    ),
    "rows that are not 16 bytes apart": (
        view(half(2, 300, 4, 65)[..., :64]),
        PLAIN,
        "global strides must be multiple of 16",
    ),
    "tokens in reverse": (view(half(2, 300, 4, 64)[:, ::-1]), PLAIN, "globalStrides[1] must be non-negative"),
    "2^40 bytes apart": (
        Tensor((2, 300, 4, 64), (2**39, 256, 64, 1)),
        PLAIN,
        "globalStrides[2] must be less than 2^40",
    ),
    "a byte stride beyond 64 bits": (
        Tensor((2, 300, 4, 64), (2**62, 256, 64, 1)),
        PLAIN,
        "globalStrides[2] must be non-negative",
    ),
    "wrong last dimension": (compact(2, 300, 4, 32), PLAIN, "ValueError: Invalid X.shape[3] on argument #0"),
    "lengths differ": (PLAIN, compact(2, 301, 4, 64), "ValueError: Mismatched Y.shape[1] on argument #1"),
    "on the CPU": (compact(2, 300, 4, 64, device=CPU), PLAIN, "ValueError: Mismatched X.device_type on argument #0"),
    "null": (compact(2, 300, 4, 64, address=0), PLAIN, "ValueError: X data pointer is NULL on argument #0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_any_launch(launcher, name):
    x, y, text = REFUSED[name]
    call = copy(launcher, x, y)
    assert text in call.error
    assert call.launch is None
    assert all(encode.allowed for encode in call.encodes)


@pytest.mark.parametrize(("shape", "dim"), [((0, 300, 4, 64), 3), ((2, 0, 4, 64), 2), ((2, 300, 0, 64), 1)])
@pytest.mark.parametrize("address", [0, X_AT])
def test_a_zero_size_is_refused_by_the_encode(launcher, shape, dim, address):
    """By position only, so Python has to answer for empty tensors; the null pointer that they may have is no matter."""
    tensor = compact(*shape, address=address)
    call = launcher(tensor, tensor, 300, 4, 1)
    assert call.error.startswith("InternalError: ")
    assert call.error.endswith(f"globalDim[{dim}] must be non-zero")
    assert (call.encodes, call.launch) == ((), None)


def test_a_grid_of_zero_is_launched_as_one_cta(launcher):
    assert copy(launcher, PLAIN, PLAIN, tiles=0).launch.grid == (1, 1, 1)


def test_scalars_are_not_checked(launcher):
    """Neither against the shapes nor against their own 32 bits."""
    assert launcher(PLAIN, PLAIN, 2**33 + 7, 5, 24).launch.parameters["n"] == 7
    assert launcher(PLAIN, PLAIN, 7, 5, -1).launch.grid == (2**32 - 1, 1, 1)
    assert "argument #2" in launcher(PLAIN, PLAIN, 1.5, 4, 24).error


def test_a_kernel_that_does_not_compile_is_told(cuda_stubs):
    with pytest.raises(RuntimeError, match="unexpected keyword argument 'color'"):
        Launcher(cuda_stubs, BUILDER, {"color": "red"})


def test_a_process_that_takes_too_long_is_ended(cuda_stubs):
    with pytest.raises(RuntimeError, match="ended with -9"):
        Launcher(cuda_stubs, BUILDER, seconds=0.05)
