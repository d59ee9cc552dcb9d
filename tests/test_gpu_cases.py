"""`flash_attention` on a GPU in the ways that public reports tell of: arguments, modes, threads, large numbers."""

from __future__ import annotations

import math
import os
import threading
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.equal_keys import bound
from tests.engines import OP_KERNELS, library, library_file, runtime_libraries
from tests.torch_reference import attention, close

pytestmark = pytest.mark.gpu

torch = pytest.importorskip("torch", reason="needs torch on a machine with a GPU")

from torch.autograd import forward_ad  # noqa: E402

from tirx_attn import flash_attention, preload  # noqa: E402
from tirx_attn.runtime import torch_op  # noqa: E402


def inputs(b=2, sq=200, skv=311, hq=8, hkv=2, dtype=torch.float16, seed=0):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    shapes = (b, sq, hq, 128), (b, skv, hkv, 128), (b, skv, hkv, 128)
    return [torch.randn(shape, device="cuda", generator=generator).to(dtype) for shape in shapes]


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """All kernels of the op; none is compiled, which would need TVM."""
    monkeypatch.setattr(torch_op, "_ready", {})
    for name in OP_KERNELS:
        preload(library_file(name), libraries=runtime_libraries())


class TestArguments:
    @pytest.mark.parametrize(
        "scale", [0.25, np.float32(0.25), np.float64(0.25), np.int64(1), Fraction(1, 4), 1], ids=repr
    )
    def test_numbers_of_any_kind_are_scales(self, scale):
        q, k, v = inputs()
        for _ in range(2):
            assert close(flash_attention(q, k, v, scale=scale), attention(q, k, v, scale=float(scale))[0])

    @pytest.mark.parametrize(
        "options", [{"causal": 1}, {"causal": np.True_}, {"scale": True}, {"return_lse": 0}], ids=str
    )
    def test_what_the_first_call_refuses_later_ones_do(self, options):
        q, k, v = inputs()
        causal = "causal" in options
        for _ in range(2):
            with pytest.raises(TypeError, match="allowed values are"):
                flash_attention(q, k, v, **options)
            flash_attention(q, k, v, causal=causal, return_lse=causal)

    @pytest.mark.parametrize("name", ["q", "k", "v"])
    def test_a_lazily_negated_view_is_read_with_its_sign(self, name):
        tensors = dict(zip("qkv", inputs(), strict=True))
        expected = flash_attention(**{**tensors, name: -tensors[name]})
        tensors[name] = torch._neg_view(tensors[name].clone())
        assert torch.equal(flash_attention(**tensors), expected)

    def test_batches_that_share_one_place(self):
        """70,000 of stride 0."""
        q, k, v = (x.expand(70_000, -1, -1, -1) for x in inputs(1, 1, 3, 1, 1))
        o = flash_attention(q, k, v)
        assert torch.equal(o, o[:1].expand_as(o))
        assert close(o[:1], attention(q[:1], k[:1], v[:1])[0])


class TestDerivatives:
    @pytest.mark.parametrize("name", ["q", "k", "v"])
    def test_a_tangent_is_refused(self, name):
        tensors = dict(zip("qkv", inputs(), strict=True))
        flash_attention(**tensors)
        with forward_ad.dual_level():
            tensors[name] = forward_ad.make_dual(tensors[name], tensors[name])
            with pytest.raises(ValueError, match=f"{name} has a tangent"):
                flash_attention(**tensors)

    def test_jvp_is_refused_and_vmap_works(self):
        q, k, v = inputs()
        op = lambda x: torch.ops.tirx_attn.flash_attention(x, k, v, False, None, False, "")[0]  # noqa: E731
        for function in (op, lambda x: flash_attention(x, k, v)):
            with pytest.raises(ValueError, match="q has a tangent"):
                torch.func.jvp(function, (q,), (q,))
            o = torch.vmap(function)(torch.stack([q, -q]))
            assert close(o[1], attention(-q, k, v)[0])


class TestModes:
    @pytest.mark.parametrize(
        "mode",
        [torch.inference_mode, torch.no_grad, lambda: torch.device("cuda"), lambda: torch.autocast("cuda", torch.half)],
        ids=["inference", "no_grad", "default device", "autocast"],
    )
    def test_modes_change_nothing(self, mode):
        q, k, v = inputs()
        expected = flash_attention(q, k, v)
        with mode():
            assert torch.equal(flash_attention(q, k, v), expected)

    def test_settings_change_nothing(self):
        q, k, v = inputs()
        expected = flash_attention(q, k, v)
        torch.use_deterministic_algorithms(True)
        torch.set_default_dtype(torch.bfloat16)
        try:
            assert torch.equal(flash_attention(q, k, v), expected)
        finally:
            torch.set_default_dtype(torch.float32)
            torch.use_deterministic_algorithms(False)

    def test_parameters_are_tensors(self):
        q, k, v = inputs()
        with torch.no_grad():
            assert torch.equal(flash_attention(*map(torch.nn.Parameter, (q, k, v))), flash_attention(q, k, v))

    @pytest.mark.parametrize("backend", ["cudagraphs", "aot_eager"])
    def test_compiled_with_a_scale_that_changes(self, backend):
        torch._dynamo.reset()
        call = torch.compile(lambda q, k, v, scale: flash_attention(q, k, v, scale=scale), backend=backend)
        q, k, v = inputs()
        for scale in (0.1, 0.2, 0.3):
            assert close(call(q, k, v, scale).clone(), attention(q, k, v, scale=scale)[0])

    def test_graphs_of_several_lengths_in_one_pool(self):
        tensors = {skv: inputs(1, 64, skv) for skv in (100, 300, 77)}
        flash_attention(*tensors[100])
        pool, captured = None, {}
        for skv, (q, k, v) in tensors.items():
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                o = flash_attention(q, k, v)
            pool = pool or graph.pool()
            captured[skv] = (graph, o)
        for skv, (graph, o) in captured.items():
            for x in tensors[skv]:
                x.mul_(-0.5)
            graph.replay()
            torch.cuda.synchronize()
            assert close(o, attention(*tensors[skv])[0])


class TestProcess:
    def test_threads(self):
        expected, found = {}, {}

        def work(seed):
            q, k, v = inputs(seed=seed)
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                found[seed] = [flash_attention(q, k, v) for _ in range(20)]
                torch.cuda.current_stream().synchronize()

        for seed in range(8):
            expected[seed] = flash_attention(*inputs(seed=seed))
        torch.cuda.synchronize()
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)
        assert set(found) == set(expected)
        for seed, each in found.items():
            assert all(torch.equal(o, expected[seed]) for o in each)

    def test_a_fork_leaves_the_parent_well(self):
        q, k, v = inputs()
        expected = flash_attention(q, k, v)
        torch.cuda.synchronize()
        child = os.fork()
        if not child:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert torch.equal(flash_attention(q, k, v), expected)

    def test_out_of_memory_and_afterwards(self):
        q, k, v = inputs()
        expected = flash_attention(q, k, v)
        large = q[:1, :1].expand(1, 2**27, -1, -1)  # its O would be 256 GiB
        with pytest.raises(torch.OutOfMemoryError):
            flash_attention(large, k[:1], v[:1])
        assert torch.equal(flash_attention(q, k, v), expected)


class TestNumbers:
    @pytest.mark.parametrize("power", [12, 15, 18, 21])
    @pytest.mark.parametrize("name", ["full", "causal_bf16"])
    def test_equal_keys_within_the_rule_for_them(self, name, power):
        """One key and value repeated: O is the value, LSE its score and ln n. README.md has the rule."""
        n, dtype = 2**power, torch.bfloat16 if name.endswith("bf16") else torch.float16
        q, k, v = inputs(1, 1 if dtype is torch.bfloat16 else 128, 1, 1, 1, dtype)  # under a mask the last row sees all
        o = torch.full_like(q, float("nan"))
        lse = torch.full((1, 1, q.shape[1]), float("nan"), device="cuda")
        library(name)(q, k.expand(-1, n, -1, -1), v.expand(-1, n, -1, -1), o, lse)
        allowed = (torch.finfo(dtype).eps / 2 + bound(n)) * v.double().abs()
        assert torch.all((o.double() - v.double()).abs() <= allowed)
        scores = torch.einsum("bshd,bthd->bhs", q.double(), k.double()) / math.sqrt(128)
        assert (lse.double() - scores - math.log(n)).abs().max() <= 1e-4

    def test_large_values_overflow_before_the_division(self):
        """bf16 holds 3e36; 256 of equal weight sum up to more than fp32 holds."""
        q, k, v = inputs(1, 128, 256, 8, 2, torch.bfloat16)
        k.zero_()
        for value, expected in ((1e36, 1e36), (3e36, torch.inf)):
            o = flash_attention(q, k, v.fill_(value)).float()
            torch.testing.assert_close(o, torch.full_like(o, expected), rtol=0.01, atol=0)

    @pytest.mark.parametrize("power", [100.0, 127.0])
    def test_extreme_scores(self, power):
        """Scores of ±2^power, negative and positive: O = 1 for V = 1, and LSE is the score and ln Skv."""
        for sign in (1, -1):
            q, k, v = inputs(1, 4, 200, 1, 1, torch.bfloat16)
            q.zero_()
            k.zero_()
            q[..., 0], k[..., 0] = 2.0 ** (power / 2), sign * 2.0 ** (power / 2 - 4)
            o = torch.full_like(q, float("nan"))
            lse = torch.full((1, 1, 4), float("nan"), device="cuda")
            library("causal_bf16")(q, k, v.fill_(1), o, lse)
            assert torch.all(o == 1)
            score = float(q[0, 0, 0, 0].double() * k[0, 0, 0, 0].double()) / math.sqrt(128)
            torch.testing.assert_close(lse.double(), torch.full_like(lse, score).double(), rtol=1e-5, atol=6)

    @pytest.mark.parametrize("value", [65504.0, 2.0**-24, -65504.0])
    def test_the_largest_and_the_smallest_value_of_fp16(self, value):
        """O is an average of equal values; weights that round up must not carry it beyond the largest."""
        q, k, v = inputs()
        o = flash_attention(q, k, v.fill_(value))
        assert torch.isfinite(o).all()
        torch.testing.assert_close(o.float(), torch.full_like(o, value).float(), rtol=2**-10, atol=0)

    @pytest.mark.parametrize("scale", [1e38, 2.0**-126])
    def test_the_largest_and_the_smallest_scale(self, scale):
        """Scores of 0 give the mean of V at any scale; with the smallest one all scores are 0 in effect."""
        q, k, v = inputs()
        if scale > 1:
            k.zero_()
        o = flash_attention(q, k, v, scale=scale)
        assert close(o, v.float().mean(1, keepdim=True).repeat_interleave(4, 2).expand(q.shape))

    def test_products_of_subnormal_numbers(self):
        q, k, v = inputs()
        q, k = q * 2.0**-17, k * 2.0**-17  # most are below fp16's smallest normal number, 2^-14
        assert close(flash_attention(q, k, v, scale=2.0**30), attention(q, k, v, scale=2.0**30)[0])
