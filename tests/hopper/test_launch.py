"""The host launcher of an sm_90a kernel, over stand-ins for the CUDA libraries: what it launches, what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kernel_launch import AT
from tests.runtime.launcher import CPU, Launcher, Tensor, compact
from tirx_attn import AttentionConfig

pytestmark = pytest.mark.slow

CONFIG = AttentionConfig(None, None, None, 4, 4, 128, True, return_lse=True)


@pytest.fixture(scope="module")
def launcher(cuda_stubs):
    arguments = {"config": CONFIG, "arch": "sm_90a"}
    with Launcher(cuda_stubs, "tirx_attn.family.get_kernel", arguments, arch="sm_90a") as made:
        yield made


def call(launcher, b=2, sq=300, skv=400, **changes: Tensor):
    shapes = {"Q": (b, sq, 4, 128), "K": (b, skv, 4, 128), "V": (b, skv, 4, 128), "O": (b, sq, 4, 128)}
    tensors = {name: compact(*shape, address=AT[name]) for name, shape in shapes.items()}
    tensors["LSE"] = compact(b, 4, sq, dtype="float32", address=AT["LSE"])
    return launcher(*(tensors | changes).values())


def test_the_grid_is_the_gpu_whatever_the_lengths(launcher):
    for lengths in ((2, 300, 400), (1, 1, 1), (70000, 3, 5)):
        launch = call(launcher, *lengths).launch
        assert (launch.grid, launch.block, launch.smem) == ((132, 1, 1), (384, 1, 1), 230400)


def test_descriptors(launcher):
    """Boxes of 64 columns of 128 bytes, swizzled; a query tile is 128 tokens of one head."""
    made = call(launcher)
    for name, tokens in (("Q", 300), ("K", 400), ("V", 400), ("O", 300)):
        for encode in made.launch.descriptors(name):
            assert encode.address == AT[name]
            assert (encode.dims, encode.strides) == ((128, 4, tokens, 2), (256, 1024, 1024 * tokens))
            assert encode.box == ((64, 1, 128, 1))
            assert (encode.swizzle, encode.allowed) == (3, True)


def test_strides_reach_the_descriptors(launcher):
    q = Tensor((2, 300, 4, 128), (3 * 4 * 128 * 300, 3 * 4 * 128, 128, 1), address=AT["Q"], byte_offset=1024)
    for encode in call(launcher, Q=q).launch.descriptors("Q"):
        assert encode.address == AT["Q"] + 1024
        assert encode.strides == (256, 3072, 3072 * 300)


TENSOR = compact(2, 400, 4, 128, address=AT["K"])
REFUSED = {
    "dtype": ({"K": replace(TENSOR, dtype="float32")}, "TypeError: Mismatched K.dtype on argument #1"),
    "head size": ({"V": compact(2, 400, 4, 64, address=AT["V"])}, "ValueError: Invalid V.shape[3] on argument #2"),
    "device": (
        {"Q": compact(2, 300, 4, 128, address=AT["Q"], device=CPU)},
        "ValueError: Mismatched Q.device_type on argument #0",
    ),
    "lengths": ({"V": compact(2, 401, 4, 128, address=AT["V"])}, "ValueError: Mismatched V.shape[1] on argument #2"),
    "strides": (
        {"K": Tensor((2, 400, 4, 128), (400 * 520, 520, 129, 1), address=AT["K"])},
        "K.strides[2]: allowed are multiples of 16 bytes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(launcher, name):
    changes, message = REFUSED[name]
    made = call(launcher, **changes)
    assert made.launch is None
    assert message in made.error


def test_a_size_of_0_is_refused(launcher):
    assert "Sq: allowed are sizes from 1" in call(launcher, sq=0).error
