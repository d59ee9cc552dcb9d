"""Merging partial attention: against fp64 attention over all keys, by hand, and at the ends of the range."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import permutations

import ml_dtypes
import numpy as np
import pytest

from tirx_attn import merge_states
from tirx_attn.verify.reference import attention_reference

pytestmark = pytest.mark.filterwarnings("error")

INF, NAN = math.inf, math.nan
DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32]
# O below 1 is rounded in the part and in the merge, by half a unit of the dtype at most; fp32 adds its own noise.
ATOL = {np.float16: 5e-4, ml_dtypes.bfloat16: 4e-3, np.float32: 1e-6}


class NumPy:
    def array(self, x):
        return x

    def numpy(self, x):
        return x


class Torch:
    def __init__(self):
        self.torch = pytest.importorskip("torch")

    def array(self, x):
        dtype = getattr(self.torch, x.dtype.name)
        return self.torch.from_numpy(x.astype(np.float32)).to(dtype)  # fp32 holds every number of all three

    def numpy(self, x):
        name = str(x.dtype).removeprefix("torch.")
        return x.float().numpy().astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@pytest.fixture(params=[NumPy, pytest.param(Torch, marks=pytest.mark.torch)])
def lib(request):
    return request.param()


@pytest.fixture
def merge(lib):
    """merge_states on NumPy arrays, by way of the library under test."""

    def call(*states):
        o, lse = merge_states(*map(lib.array, states))
        assert type(o) is type(lse) is type(lib.array(states[0]))
        return lib.numpy(o), lib.numpy(lse)

    return call


def attention_inputs(sq, skv, heads=1, d=128, dtype=np.float16, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((1, s, heads, d)).astype(dtype) for s in (sq, skv, skv)]


def part(q, k, v, keys, dtype):
    o, lse = attention_reference(q, k[:, keys], v[:, keys])
    return o.astype(dtype), lse.astype(np.float32)


def state(o, lse, dtype=np.float32):
    """One query, one head per entry of lse: o is a row of D numbers for each."""
    return np.array(o, dtype)[None, None], np.array(lse, np.float32)[None, :, None]


def states(dtype=np.float32):
    """Two parts of shape B=2, Sq=3, Hq=4, D=5: no two extents are equal."""
    rng = np.random.default_rng(7)
    return [
        x
        for _ in range(2)
        for x in (rng.standard_normal((2, 3, 4, 5)).astype(dtype), rng.standard_normal((2, 4, 3)).astype(np.float32))
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_case_f1_two_parts_are_one_pass(merge, dtype):
    """3136 keys as 3072 + 64."""
    q, k, v = attention_inputs(64, 3136, dtype=dtype)
    whole, whole_lse = attention_reference(q, k, v)
    o, lse = merge(*part(q, k, v, slice(3072), dtype), *part(q, k, v, slice(3072, None), dtype))
    assert o.dtype == dtype
    assert lse.dtype == np.float32
    np.testing.assert_allclose(o.astype(np.float64), whole, rtol=0, atol=5e-4)
    np.testing.assert_allclose(lse, whole_lse, rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_three_parts_in_any_order(merge, dtype):
    q, k, v = attention_inputs(8, 96, heads=3, d=32, dtype=dtype)
    whole, whole_lse = attention_reference(q, k, v)
    parts = [part(q, k, v, keys, dtype) for keys in (slice(64), slice(64, 65), slice(65, None))]
    for a, b, c in permutations(parts):
        for o, lse in (merge(*merge(*a, *b), *c), merge(*a, *merge(*b, *c))):
            np.testing.assert_allclose(o.astype(np.float64), whole, rtol=0, atol=2 * ATOL[dtype])
            np.testing.assert_allclose(lse, whole_lse, rtol=0, atol=2e-6)


def test_two_keys_by_hand(merge):
    """Weights 1/4 and 3/4: logits ln 1 and ln 3, and LSE ln 4; base 2 would give neither."""
    o, lse = merge(*state([[4.0, -8.0]], [0.0]), *state([[8.0, 0.0]], [1.0986123]))
    np.testing.assert_allclose(o, [[[[7.0, -2.0]]]], rtol=1e-6)
    np.testing.assert_allclose(lse, [[[1.3862944]]], rtol=1e-6)


def test_each_query_and_head_has_its_own_weight(merge):
    """Every (b, i, h) merges a part of ones with weight 1/n and a part of zeros."""
    shape = (2, 3, 4)
    n = 2.0 + np.arange(24).reshape(shape)
    ones, zeros = np.ones((*shape, 5), np.float32), np.zeros((*shape, 5), np.float32)
    lse2 = np.log(n - 1).transpose(0, 2, 1).astype(np.float32)
    o, lse = merge(ones, np.zeros((2, 4, 3), np.float32), zeros, lse2)
    np.testing.assert_allclose(o, np.repeat(1 / n[..., None], 5, axis=-1), rtol=2e-6)
    np.testing.assert_allclose(lse, np.log(n).transpose(0, 2, 1), rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [0.0, NAN, INF], ids=str)
def test_an_empty_part_changes_nothing(merge, dtype, left):
    o, lse, o2, lse2 = states(dtype)
    o2[:], lse2[:] = left, -INF
    for merged, merged_lse in (merge(o, lse, o2, lse2), merge(o2, lse2, o, lse)):
        np.testing.assert_array_equal(merged, o)
        np.testing.assert_array_equal(merged_lse, lse)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [0.0, NAN, INF], ids=str)
def test_two_empty_parts_are_empty(merge, dtype, left):
    o, lse, o2, lse2 = states(dtype)
    o[:], lse[:], o2[:], lse2[:] = left, -INF, left, -INF
    merged, merged_lse = merge(o, lse, o2, lse2)
    assert (merged == 0).all()
    assert (merged_lse == -INF).all()


@pytest.mark.parametrize(
    ("lse", "lse2", "weight", "merged"),
    [
        (1e30, -1e30, 1.0, 1e30),
        (-1e30, 1e30, 0.0, 1e30),
        (1e30, 1e30, 0.5, 1e30),
        (-1e30, -1e30, 0.5, -1e30),
        (-1e30, -INF, 1.0, -1e30),
        (3.4e38, -3.4e38, 1.0, 3.4e38),
        (200.0, 200.0, 0.5, 200.693147),
        (-200.0, -200.0, 0.5, -199.306853),
    ],
)
def test_no_finite_lse_is_too_large(merge, lse, lse2, weight, merged):
    o, out = merge(*state([[1.0]], [lse]), *state([[0.0]], [lse2]))
    np.testing.assert_array_equal(o, [[[[weight]]]])
    np.testing.assert_allclose(out, [[[merged]]], rtol=1e-7)


@pytest.mark.parametrize("other", [0.0, 1e30, INF, -INF, NAN], ids=str)
@pytest.mark.parametrize("bad", [NAN, INF], ids=str)
def test_nan_and_inf_in_lse_show_in_their_row_only(merge, bad, other):
    good, damaged = state([[1.0], [2.0]], [other, 0.0]), state([[3.0], [4.0]], [bad, 0.0])
    for o, lse in (merge(*good, *damaged), merge(*damaged, *good)):
        np.testing.assert_array_equal(o, [[[[NAN], [3.0]]]])
        np.testing.assert_allclose(lse, [[[NAN], [0.693147181]]], rtol=1e-6)


@pytest.mark.parametrize("lse", [0.0, -1e30], ids=str)
def test_nan_in_o_of_a_part_with_keys_shows(merge, lse):
    o, out = merge(*state([[NAN, 1.0]], [lse]), *state([[1.0, 1.0]], [0.0]))
    np.testing.assert_array_equal(o, [[[[NAN, 1.0]]]])
    assert np.isfinite(out).all()


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 4, 0)], ids=str)
def test_extents_of_zero(merge, shape):
    b, sq, hq, _ = shape
    o, lse = merge(*[np.zeros(shape, np.float16), np.zeros((b, hq, sq), np.float32)] * 2)
    assert o.shape == shape
    assert lse.shape == (b, hq, sq)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_are_neither_changed_nor_shared(lib, dtype):
    arrays = states(dtype)
    arrays[3][0, 0, 0] = arrays[1][0, 0, 0] = -INF
    arrays[3][1, 1, 1] = -INF
    before = [x.copy() for x in arrays]
    given = [lib.array(x) for x in arrays]
    o, lse = merge_states(*given)
    o[:], lse[:] = 9.0, 9.0
    for x, saved in zip(given, before, strict=True):
        np.testing.assert_array_equal(lib.numpy(x), saved)


def test_numpy_settings_of_the_caller_do_not_matter():
    with np.errstate(all="raise"):
        o, lse = merge_states(*state([[1.0]], [-90.0]), *state([[0.0]], [0.0]))
        merge_states(*state([[1.0]], [INF]), *state([[0.0]], [0.0]))
    assert o.item() == pytest.approx(math.exp(-90.0), rel=1e-3)
    assert lse.item() == 0.0


@pytest.mark.torch
def test_torch_values_are_never_read():
    """Tensors on the meta device have no values: reading one, as a synchronisation does, is an error."""
    torch = pytest.importorskip("torch")
    o, lse = torch.empty(2, 3, 4, 5, dtype=torch.float16, device="meta"), torch.empty(2, 4, 3, device="meta")
    merged, merged_lse = merge_states(o, lse, o, lse)
    assert (merged.device.type, merged.dtype, merged.shape) == ("meta", torch.float16, (2, 3, 4, 5))
    assert (merged_lse.device.type, merged_lse.dtype, merged_lse.shape) == ("meta", torch.float32, (2, 4, 3))


@pytest.mark.torch
@pytest.mark.filterwarnings("default")
def test_torch_compile_sees_one_graph():
    torch = pytest.importorskip("torch")
    given = [Torch().array(x) for x in states()]
    compiled = torch.compile(merge_states, backend="eager", fullgraph=True)
    for ours, theirs in zip(merge_states(*given), compiled(*given), strict=True):
        torch.testing.assert_close(theirs, ours)


NAMES = ("o", "lse", "o2", "lse2")


def replaced(name, change):
    """Arguments for merge_states with one of the four changed."""
    arrays = states()
    arrays[NAMES.index(name)] = change(arrays[NAMES.index(name)])
    return arrays


@pytest.mark.parametrize("name", NAMES)
def test_other_types_are_refused(name):
    with pytest.raises(TypeError, match=rf"^{name} is a list: allowed are NumPy arrays and torch tensors$"):
        merge_states(*replaced(name, np.ndarray.tolist))
    with pytest.raises(TypeError, match=rf"^{name} is a NoneType: "):
        merge_states(*replaced(name, lambda x: None))


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES[1:])
def test_two_libraries_are_refused(name):
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=rf"^{name} is a Tensor: allowed is the library of o, numpy$"):
        merge_states(*replaced(name, torch.from_numpy))
    tensors = [x if n == name else torch.from_numpy(x) for n, x in zip(NAMES, states(), strict=True)]
    with pytest.raises(TypeError, match=rf"^{name} is a ndarray: allowed is the library of o, torch$"):
        merge_states(*tensors)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("o", lambda x: x.astype(np.float64), r"^o has dtype float64: allowed: float16, bfloat16, float32$"),
        ("o2", lambda x: x.astype(np.int32), r"^o2 has dtype int32: allowed: float16, bfloat16, float32$"),
        ("o2", lambda x: x.astype(np.float16), r"^o2 has dtype \S*float16: allowed is the dtype of o, \S*float32$"),
        ("lse", lambda x: x.astype(np.float64), r"^lse has dtype float64: allowed: float32$"),
        ("lse2", lambda x: x.astype(np.float16), r"^lse2 has dtype float16: allowed: float32$"),
        ("o", lambda x: x[0], r"^o has shape \(3, 4, 5\): allowed are four dimensions \[B, Sq, Hq, D\]$"),
        ("o2", lambda x: x[:, :2], r"^o2 has shape \(2, 2, 4, 5\): allowed is the shape of o, \(2, 3, 4, 5\)$"),
        ("o2", lambda x: x[:1], r"^o2 has shape \(1, 3, 4, 5\): allowed is the shape of o"),
        ("lse", lambda x: x.swapaxes(1, 2), r"^lse has shape \(2, 3, 4\): allowed is \[B, Hq, Sq\] of o, \(2, 4, 3\)$"),
        ("lse2", lambda x: x[..., None], r"^lse2 has shape \(2, 4, 3, 1\): allowed is \[B, Hq, Sq\] of o"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(merge, name, change, message):
    arrays = replaced(name, change)
    with pytest.raises(TypeError if "dtype" in message else ValueError, match=message):
        merge(*arrays)


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES[1:])
def test_two_devices_are_refused(name):
    pytest.importorskip("torch")
    arrays = [Torch().array(x) for x in states()]
    arrays[NAMES.index(name)] = arrays[NAMES.index(name)].to("meta")
    with pytest.raises(ValueError, match=rf"^{name} is on device meta: allowed is the device of o, cpu$"):
        merge_states(*arrays)


def test_importing_and_merging_need_no_torch_and_no_tvm():
    """bf16 included: the package's import loads not even NumPy."""
    code = (
        "import sys, tirx_attn;"
        "assert not {'numpy', 'torch', 'tvm', 'ml_dtypes'} & sys.modules.keys();"
        "tirx_attn.merge_states;"
        "assert not {'torch', 'tvm', 'ml_dtypes'} & sys.modules.keys();"
        "import ml_dtypes, numpy as np;"
        "o, lse = np.ones((1, 1, 1, 1), ml_dtypes.bfloat16), np.zeros((1, 1, 1), np.float32);"
        "print(tirx_attn.merge_states(o, lse, 3 * o, lse)[0].item());"
        "assert not {'torch', 'tvm'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.0\n", "")
