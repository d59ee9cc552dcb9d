"""`flash_attention` on torch tensors, over stand-ins for kernels: what it refuses, answers, and looks like to torch."""

from __future__ import annotations

import math
from contextlib import contextmanager

import pytest

from tests.runtime.artifacts import content, description
from tirx_attn.runtime.errors import ArtifactError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from tests.runtime.tensors import inputs  # noqa: E402
from tests.torch_reference import attention  # noqa: E402
from tirx_attn import flash_attention, preload  # noqa: E402
from tirx_attn.runtime import torch_op  # noqa: E402


@pytest.mark.parametrize(("device", "current", "changes"), [(None, 1, []), (1, 1, []), (0, 1, [0]), (1, 0, [1])])
def test_the_current_device_is_changed_only_where_it_is_another(monkeypatch, device, current, changes):
    """A call on the device that is current anyway does not pay for the change."""
    entered, launched = [], []

    @contextmanager
    def change(number):
        entered.append(number)
        yield

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "device", change)
    ready = torch_op.Ready(lambda *arguments: launched.append((arguments, list(entered))), device)
    torch_op._launch(ready, *"qkvo", None, None)
    assert launched == [(tuple("qkvo"), changes)]
    assert entered == changes


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"q": lambda q: q.float()}, TypeError, r"q has dtype float32: allowed are float16 and bfloat16"),
            ({"k": lambda k: k.bfloat16()}, TypeError, r"k has dtype bfloat16: allowed is the dtype of q, float16"),
            ({"q": lambda q: q[0]}, ValueError, r"q has shape \(5, 4, 64\): allowed are four dimensions"),
            ({"k": lambda k: k[:1]}, ValueError, r"k has shape \(1, 9, 2, 64\): allowed are B=2 and D=64"),
            ({"v": lambda v: v[:, :3]}, ValueError, r"v has shape \(2, 3, 2, 64\): allowed is the shape of k"),
            ({"k": lambda k: k.repeat(1, 1, 2, 1)[:, :, :3], "v": lambda v: v.repeat(1, 1, 2, 1)[:, :, :3]},
             ValueError, r"Hq=4: allowed values are multiples of Hkv=3"),
            ({"q": lambda q: q.numpy()}, TypeError, r"q is ndarray: allowed are torch tensors"),
            ({"v": lambda v: v.to("meta")}, ValueError, r"q is on cpu, v on meta: allowed is one device for all"),
            ({"v": lambda v: v.transpose(1, 3).contiguous().transpose(1, 3)},
             ValueError, r"v.strides\[3\]=18: allowed"),
            ({"k": lambda k: torch.zeros(2 * 9 * 2 * 64 + 1).half()[1:].view(2, 9, 2, 64)},
             ValueError, r"k at address 0x[0-9a-f]+: allowed are positive multiples of 16 bytes"),
        ],
        ids=["dtype", "mixed", "dimensions", "batch", "lengths", "heads", "library", "devices", "strides", "address"],
    )  # fmt: skip
    @pytest.mark.usefixtures("reference")
    def test_tensors(self, change, error, message):
        tensors = dict(zip("qkv", inputs(), strict=True))
        tensors = {name: change.get(name, lambda x: x)(x) for name, x in tensors.items()}
        with pytest.raises(error, match=message):
            flash_attention(*tensors.values(), backend="simulator")

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"causal": 2}, TypeError, r"is_causal=2: allowed values are True and False"),
            ({"scale": -1.0}, ValueError, r"scale=-1.0"),
            ({"scale": "runtime"}, TypeError, r"scale='runtime': allowed values are None and positive numbers"),
            ({"backend": "cutlass"}, ValueError, r"backend='cutlass': allowed are None and 'simulator'"),
            (
                {"backend": None},
                ValueError,
                r"q is on cpu with backend=None: allowed are CUDA tensors, and CPU tensors",
            ),
        ],
    )
    def test_options(self, options, error, message):
        with pytest.raises(error, match=message):
            flash_attention(*inputs(), **{"backend": "simulator", **options})

    @pytest.mark.parametrize("name", ["q", "k", "v"])
    def test_gradients(self, reference, name):
        tensors = dict(zip("qkv", inputs(), strict=True))
        tensors[name].requires_grad_()
        with pytest.raises(ValueError, match=rf"{name}.requires_grad=True: allowed are inputs without gradients"):
            flash_attention(**tensors, backend="simulator")
        with torch.no_grad():
            assert flash_attention(**tensors, backend="simulator").requires_grad is False

    def test_what_a_launcher_refuses_is_told_by_name(self, kernel):
        q, k, v = inputs()
        flash_attention(q, k, v)
        with pytest.raises(ValueError, match=r"v has shape \(2, 8, 2, 64\): allowed is the shape of k"):
            flash_attention(q, k, v[:, :8])
        assert len(kernel) == 2

    def test_what_only_the_launcher_knows_is_passed_on(self, kernel):
        q, k, v = inputs()
        flash_attention(q, k, v)
        with pytest.raises(ValueError, match=r"Mismatched K.shape"):  # the stand-in's own rule
            flash_attention(q, k[:, :8], v[:, :8])


class TestAnswers:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.usefixtures("reference")
    def test_outputs(self, causal, dtype):
        q, k, v = inputs(dtype=dtype)
        o, lse = flash_attention(q, k, v, causal=causal, scale=0.3, return_lse=True, backend="simulator")
        expected, expected_lse = attention(q, k, v, causal=causal, scale=0.3)
        assert (o.dtype, o.shape, lse.dtype, lse.shape) == (dtype, q.shape, torch.float32, (2, 4, 5))
        torch.testing.assert_close(o, expected.to(dtype))
        torch.testing.assert_close(lse, expected_lse)

    @pytest.mark.parametrize("sizes", [{"b": 0}, {"sq": 0}, {"skv": 0}])
    @pytest.mark.parametrize("fast", [False, True])
    def test_nothing_to_compute(self, request, monkeypatch, sizes, fast):
        if fast:
            request.getfixturevalue("kernel")
        monkeypatch.setattr(torch_op, "_simulated", None)
        q, k, v = inputs(**sizes)
        backend = None if fast and 0 in q.shape else "simulator"
        o, lse = flash_attention(q, k, v, return_lse=True, backend="simulator" if backend is None else backend)
        assert (o.shape, lse.shape) == (q.shape, (q.shape[0], 4, q.shape[1]))
        assert torch.all(o == 0)
        assert torch.all(lse == -math.inf)

    def test_the_fast_way_hands_over_what_the_kernel_takes(self, kernel):
        q, k, v = inputs()
        o = flash_attention(q, k, v)
        assert [x is y for x, y in zip(kernel[0], (q, k, v, o), strict=True)] == [True] * 4
        o, lse = flash_attention(q, k, v, return_lse=True, scale=0.5)
        assert kernel[1][3] is o
        assert kernel[1][4] is lse
        assert kernel[1][5] == 0.5
        assert lse.shape == (2, 4, 5)

    def test_parameters_are_tensors(self, reference):
        q, k, v = (torch.nn.Parameter(x) for x in inputs())
        with torch.inference_mode():
            o = flash_attention(q, k, v, backend="simulator")
        torch.testing.assert_close(o, attention(q, k, v)[0].half())


class TestTorch:
    """How the op looks to torch, on CPU tensors."""

    @pytest.mark.slow
    @pytest.mark.usefixtures("reference")
    @pytest.mark.parametrize("return_lse", [False, True])
    def test_opcheck(self, return_lse):
        q, k, v = inputs()
        arguments = (q, k, v, True, None, return_lse, "simulator")
        done = torch.library.opcheck(torch.ops.tirx_attn.flash_attention.default, arguments)
        assert set(done.values()) == {"SUCCESS"}
        assert len(done) == 4

    @pytest.mark.slow
    @pytest.mark.usefixtures("reference")
    def test_k1_one_graph(self):
        graphs = []

        def backend(graph, _):
            graphs.append(graph)
            return graph.forward

        def model(q, k, v):
            return flash_attention(q * 2, k, v, causal=True, backend="simulator") + 1

        q, k, v = inputs(1, 128, 128, 1, 1, 128)
        torch._dynamo.reset()
        o = torch.compile(model, backend=backend, fullgraph=True)(q, k, v)
        torch.testing.assert_close(o, model(q, k, v))
        assert len(graphs) == 1
        assert [str(node.target) for node in graphs[0].graph.nodes if "flash_attention" in str(node.target)]

    def test_shapes_without_data(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode() as mode:
            q, k, v = (mode.from_tensor(x) for x in inputs())
            o, lse = flash_attention(q, k, v, return_lse=True)
            assert (o.shape, o.stride(), lse.shape) == (q.shape, q.stride(), (2, 4, 5))
            assert flash_attention(q, k, v).dtype == torch.float16
            with pytest.raises(ValueError, match=r"v has shape"):
                flash_attention(q, k, v[:, :3])

    @pytest.mark.simulator
    @pytest.mark.slow
    @pytest.mark.recorded("tirx_attn/runtime/torch_op.py", "tirx_attn/verify/attention.py")
    def test_on_the_simulator(self):
        q, k, v = inputs(1, 40, 70, 4, 2, 64, dtype=torch.bfloat16)  # the kernel of the Llama of tests/integrations
        o, lse = flash_attention(q, k, v, causal=True, return_lse=True, backend="simulator")
        expected, expected_lse = attention(q, k, v, causal=True)
        torch.testing.assert_close(o.float(), expected, atol=0.02, rtol=0.02)
        torch.testing.assert_close(lse, expected_lse, atol=1e-3, rtol=0)


class TestPreload:
    def test_only_kernels_for_all_lengths(self, monkeypatch, tmp_path):
        file = tmp_path / "kernel.so"
        config = description().config
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        made = []

        def load(path, **options):
            made.append(options)
            return torch_op.Kernel(file, description(config=torch_op.replace(config, Sq=4)), lambda *a: None)

        monkeypatch.setattr(torch_op, "load", load)
        with pytest.raises(ValueError, match=r"kernel.so: the kernel has B=None, Sq=4, Skv=None, scale=None: allowed"):
            preload(file)
        assert made == [{"device": 0, "libraries": None}]

    def test_a_wrong_file_is_refused_at_once(self, tmp_path):
        file = tmp_path / "kernel.so"
        file.write_bytes(content()[:-1])
        with pytest.raises(ArtifactError, match=r"no file that `export` wrote"):
            preload(file, device=0)
