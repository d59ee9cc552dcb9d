"""What torch may hand to `flash_attention`: derivatives, tensors without plain memory, flags that are no booleans."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tests.runtime.artifacts import description  # noqa: E402
from tests.runtime.tensors import inputs  # noqa: E402
from tests.torch_reference import attention  # noqa: E402
from tirx_attn import flash_attention  # noqa: E402
from tirx_attn.runtime.load import Kernel  # noqa: E402

SIMULATOR = {"backend": "simulator"}


def op(q, k, v):
    return torch.ops.tirx_attn.flash_attention(q, k, v, False, None, False, "simulator")[0]


def function(q, k, v):
    return flash_attention(q, k, v, **SIMULATOR)


def compiled(backend):
    torch._dynamo.reset()
    return torch.compile(function, backend=backend)


FUNCTIONS = {
    "flash_attention": lambda: function,
    "the op": lambda: op,
    **{
        f"torch.compile {backend}": pytest.param(lambda backend=backend: compiled(backend), marks=pytest.mark.slow)
        for backend in ("eager", "aot_eager")
    },
}
ALL = pytest.mark.parametrize("make", FUNCTIONS.values(), ids=FUNCTIONS)


@pytest.mark.usefixtures("reference")
class TestDerivatives:
    @ALL
    @pytest.mark.parametrize("name", ["q", "k", "v"])
    def test_a_tangent_is_refused_by_name(self, make, name):
        tensors = dict(zip("qkv", inputs(), strict=True))
        call = make()
        with forward_ad.dual_level():
            tensors[name] = forward_ad.make_dual(tensors[name], tensors[name])
            with pytest.raises(Exception, match=rf"{name} has a tangent: allowed are inputs without one"):
                call(**tensors)

    @pytest.mark.parametrize("make", [FUNCTIONS["flash_attention"], FUNCTIONS["the op"]])
    @pytest.mark.parametrize(
        "transform",
        [
            lambda f, q: torch.func.jvp(f, (q,), (q,)),
            lambda f, q: torch.func.jacfwd(f)(q),
            lambda f, q: torch.func.linearize(f, q),
            lambda f, q: torch.func.jvp(torch.vmap(f), (q[None],), (q[None],)),
            lambda f, q: torch.autograd.functional.jvp(f, q, q, strict=True),
        ],
        ids=["jvp", "jacfwd", "linearize", "jvp of vmap", "double backward"],
    )
    def test_forward_mode_is_refused(self, make, transform):
        q, k, v = inputs()
        with pytest.raises(ValueError, match=r"^q (has a tangent|.requires_grad=True)|^q.requires_grad=True"):
            transform(lambda x: make()(x, k, v), q)

    @pytest.mark.parametrize(
        "transform",
        [torch.func.grad, lambda f: lambda q: torch.func.vjp(f, q), torch.func.hessian, torch.func.jacrev],
        ids=["grad", "vjp", "hessian", "jacrev"],
    )
    @pytest.mark.parametrize("make", [FUNCTIONS["flash_attention"], FUNCTIONS["the op"]])
    def test_reverse_mode_is_refused(self, make, transform):
        q, k, v = inputs()
        with pytest.raises(ValueError, match=r"q.requires_grad=True: allowed are inputs without gradients"):
            transform(lambda x: make()(x, k, v).float().sum())(q)

    @pytest.mark.parametrize("number", range(3))
    def test_a_tangent_is_refused_by_a_kernel_that_is_called_itself(self, tmp_path, number):
        calls = []
        kernel = Kernel(tmp_path, description(), lambda *arguments: calls.append(arguments))
        tensors = [*inputs(), torch.zeros(1)]
        kernel(*tensors)
        with forward_ad.dual_level():
            kernel(*tensors)
            tensors[number] = forward_ad.make_dual(tensors[number], tensors[number])
            with pytest.raises(ValueError, match=f"{'qkv'[number]} has a tangent"):
                kernel(*tensors)
        assert len(calls) == 2

    def test_a_tangent_is_refused_by_a_kernel_that_is_ready(self, kernel):
        q, k, v = inputs()
        flash_attention(q, k, v)
        with forward_ad.dual_level():
            with pytest.raises(ValueError, match="v has a tangent"):
                flash_attention(q, k, forward_ad.make_dual(v, v))
            primal = forward_ad.unpack_dual(forward_ad.make_dual(v, v)).primal
            torch.testing.assert_close(flash_attention(q, k, primal, **SIMULATOR), function(q, k, v))
        assert len(kernel) == 1


@pytest.mark.usefixtures("reference")
class TestMemory:
    """On the CPU's way through the op, and, where a kernel is ready, ahead of it."""

    @pytest.mark.parametrize("dims", [(0, None, None), (None, 0, 0), (0, 0, 0), (1, None, 2)])
    def test_vmap_is_one_call_of_the_op(self, monkeypatch, dims):
        from tirx_attn.runtime import torch_op

        calls = []
        simulated = torch_op._simulated
        monkeypatch.setattr(torch_op, "_simulated", lambda *rest: calls.append(1) or simulated(*rest))
        tensors = inputs()
        stacked = [
            x if dim is None else torch.stack([x, -x, 2 * x], dim) for x, dim in zip(tensors, dims, strict=True)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns of a loop in place of a batching rule
            o, lse = torch.vmap(
                lambda *x: flash_attention(*x, causal=True, return_lse=True, **SIMULATOR), in_dims=dims
            )(*stacked)
        assert calls == [1]
        for number in range(3):
            one = [x if dim is None else x.select(dim, number) for x, dim in zip(stacked, dims, strict=True)]
            expected, expected_lse = attention(*one, causal=True)
            torch.testing.assert_close(o[number], expected.half())
            torch.testing.assert_close(lse[number], expected_lse)

    def test_vmap_where_a_kernel_is_ready(self, kernel):
        """It cannot read what a level of torch.func holds, and the op has it do so below."""
        q, k, v = inputs()
        flash_attention(q, k, v)
        o = torch.vmap(lambda x: flash_attention(x, k, v, **SIMULATOR))(torch.stack([q, -q]))
        torch.testing.assert_close(o[1], function(-q, k, v))

    def test_meta_tensors_have_shapes(self):
        q, k, v = (x.to("meta") for x in inputs())
        o, lse = flash_attention(q, k, v, return_lse=True)
        assert (o.device.type, o.shape, o.dtype, lse.shape, lse.dtype) == (
            "meta", (2, 5, 4, 64), torch.float16, (2, 4, 5), torch.float32,
        )  # fmt: skip
        assert torch.ops.tirx_attn.flash_attention(q, k, v, False, None, False, "")[0].shape == q.shape
        with pytest.raises(ValueError, match=r"v has shape \(2, 3, 2, 64\): allowed is the shape of k"):
            flash_attention(q, k, v[:, :3])

    @pytest.mark.parametrize("name", ["q", "k", "v"])
    @pytest.mark.parametrize(
        ("change", "layout"),
        [
            (lambda x: x.to_sparse(), "torch.sparse_coo"),
            (lambda x: x[0, :, 0].to_sparse_csr(), "torch.sparse_csr"),
            (lambda x: torch.nested.nested_tensor([x[0], x[0, :3]]), "nested"),
            (lambda x: torch.nested.nested_tensor([x[0], x[0, :3]], layout=torch.jagged), "nested"),
            (lambda x: x.float().to_mkldnn(), "torch._mkldnn"),
        ],
        ids=["sparse", "csr", "nested", "jagged", "mkldnn"],
    )
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("fast", [False, True])
    def test_other_layouts_are_named(self, request, name, change, layout, fast):
        if fast:
            request.getfixturevalue("kernel")
        tensors = dict(zip("qkv", inputs(), strict=True))
        tensors[name] = change(tensors[name])
        with pytest.raises(ValueError, match=rf"{name} has layout {layout}: allowed is torch.strided"):
            flash_attention(**tensors, **({} if fast else SIMULATOR))

    @pytest.mark.parametrize("name", ["q", "k", "v"])
    def test_a_lazily_negated_view_is_read_with_its_sign(self, kernel, name):
        tensors = dict(zip("qkv", inputs(), strict=True))
        flash_attention(**tensors)
        expected = function(**{**tensors, name: -tensors[name]})
        tensors[name] = torch._neg_view(tensors[name].clone())
        torch.testing.assert_close(flash_attention(**tensors, **SIMULATOR), expected)
        with pytest.raises(ValueError, match="q is on cpu with backend=None"):  # the op's, since no kernel was given it
            flash_attention(**tensors)
        assert len(kernel) == 1

    @pytest.mark.filterwarnings("ignore")
    def test_the_imaginary_part_of_a_conjugate_too(self):
        """It is a negated view that torch makes by itself; its stride is that of the pairs."""
        q, k, v = inputs()
        z = torch.view_as_complex(torch.stack([q, q], -1).contiguous()).conj()
        assert z.imag.is_neg()
        with pytest.raises(ValueError, match=r"q.strides\[3\]=2: allowed is 1"):
            function(z.imag, k, v)


@pytest.mark.usefixtures("reference")
class TestColdAndWarm:
    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"causal": 0}, TypeError, "is_causal=0: allowed values are True and False"),
            ({"causal": np.False_}, TypeError, r"is_causal=np.False_: allowed values are True and False"),
            ({"return_lse": 0}, TypeError, "return_lse=0: allowed values are True and False"),
            ({"return_lse": 1.0}, TypeError, "return_lse=1.0: allowed values are True and False"),
            ({"causal": None}, TypeError, "is_causal=None: allowed values are True and False"),
            ({"scale": True}, TypeError, r"scale=True \(bool\): allowed values are None, positive numbers"),
            ({"scale": np.True_}, TypeError, r"scale=np.True_ .*: allowed values are None, positive numbers"),
            ({"scale": "0.5"}, TypeError, "scale='0.5': allowed values are None and positive numbers"),
        ],
        ids=str,
    )
    def test_what_the_first_call_refuses_later_ones_do(self, kernel, options, error, message):
        q, k, v = inputs()
        for _ in range(2):
            with pytest.raises(error, match=message):
                flash_attention(q, k, v, **options)
            flash_attention(q, k, v, return_lse="return_lse" in options, scale=0.5 if "scale" in options else None)
        with pytest.raises(error, match=message):
            flash_attention(q, k, v, **options, **SIMULATOR)
        assert len(kernel) == 2

    @pytest.mark.slow
    def test_compiled_ones_too(self):
        torch._dynamo.reset()
        call = torch.compile(lambda *x: flash_attention(*x, causal=1, **SIMULATOR), backend="eager")
        with pytest.raises(Exception, match="is_causal=1: allowed values are True and False"):
            call(*inputs())

    @pytest.mark.parametrize("scale", [0.5, np.float32(0.5), np.float64(0.5), Fraction(1, 2)], ids=repr)
    def test_numbers_of_any_kind_are_scales(self, kernel, scale):
        q, k, v = inputs()
        expected, _ = attention(q, k, v, scale=0.5)
        torch.testing.assert_close(flash_attention(q, k, v, scale=scale, **SIMULATOR), expected.half())

    def test_a_whole_number_is_a_scale(self, kernel):
        q, k, v = inputs()
        flash_attention(q, k, v, scale=1)
        assert kernel[0][4] == 1


@pytest.mark.usefixtures("reference")
class TestTools:
    def test_flops_are_those_of_torchs_own_attention(self):
        q, k, v = inputs(1, 8, 8, 1, 1, 64)
        for options in ({}, {"causal": True}):
            with FlopCounterMode(display=False) as ours:
                flash_attention(q, k, v, **options, **SIMULATOR)
            assert ours.get_total_flops() == 16384
        with FlopCounterMode(display=False) as grouped:
            function(*inputs(2, 5, 9, 4, 2, 64))
        assert grouped.get_total_flops() == 4 * 2 * 4 * 5 * 9 * 64

    def test_flops_without_data(self):
        q, k, v = (x.to("meta") for x in inputs(1, 8, 8, 1, 1, 64))
        with FlopCounterMode(display=False) as found:
            flash_attention(q, k, v)
        assert found.get_total_flops() == 16384

    @pytest.mark.slow
    def test_export_and_functionalize_know_the_op(self):
        q, k, v = inputs()

        class Model(torch.nn.Module):
            def forward(self, q, k, v):
                return function(q, k, v)

        program = torch.export.export(Model(), (q, k, v))
        assert "tirx_attn.flash_attention" in str(program.graph)
        torch.testing.assert_close(program.module()(q, k, v), function(q, k, v))
        torch.testing.assert_close(torch.func.functionalize(function)(q, k, v), function(q, k, v))

    @pytest.mark.slow
    @pytest.mark.parametrize("scale", [lambda q: q.shape[-1] ** -0.5, lambda q: q.shape[1] ** -0.5])
    def test_a_scale_from_a_shape_under_dynamic_shapes(self, scale):
        torch._dynamo.reset()
        call = torch.compile(
            lambda q, k, v: flash_attention(q, k, v, scale=scale(q), **SIMULATOR),
            backend="aot_eager", dynamic=True, fullgraph=True,
        )  # fmt: skip
        for sq, skv in ((5, 9), (6, 11), (7, 3)):
            q, k, v = inputs(2, sq, skv)
            torch.testing.assert_close(call(q, k, v), attention(q, k, v, scale=scale(q))[0].half())
