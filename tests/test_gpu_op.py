"""`flash_attention` and `load` on a GPU: values, devices, streams, graphs, torch.compile, what the host pays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.startup import host_microseconds
from tests.engines import OP_KERNELS, library_file, runtime_libraries
from tests.torch_reference import attention, close

pytestmark = pytest.mark.gpu

torch = pytest.importorskip("torch", reason="needs torch on a machine with a GPU")

from tirx_attn import flash_attention, load, preload  # noqa: E402
from tirx_attn.runtime import ArtifactError, torch_op  # noqa: E402


def inputs(b=2, sq=300, skv=411, hq=8, hkv=2, dtype=torch.float16, device="cuda", seed=0):
    generator = torch.Generator(device=device).manual_seed(seed)
    shapes = (b, sq, hq, 128), (b, skv, hkv, 128), (b, skv, hkv, 128)
    return [torch.randn(shape, device=device, generator=generator).to(dtype) for shape in shapes]


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """All kernels of the op, loaded for each GPU; none is compiled, which would need TVM."""
    monkeypatch.setattr(torch_op, "_ready", {})
    for index in range(torch.cuda.device_count()):
        for name in OP_KERNELS:
            preload(library_file(name), device=index, libraries=runtime_libraries())


class TestValues:
    def test_full(self):
        q, k, v = inputs()
        assert close(flash_attention(q, k, v), attention(q, k, v)[0])

    def test_causal_with_lse(self):
        q, k, v = inputs()
        o, lse = flash_attention(q, k, v, causal=True, return_lse=True)
        reference, reference_lse = attention(q, k, v, causal=True)
        assert close(o, reference)
        torch.testing.assert_close(lse, reference_lse, atol=1e-4, rtol=0)

    def test_scale_and_bf16(self):
        q, k, v = inputs()
        assert close(flash_attention(q, k, v, scale=0.21), attention(q, k, v, scale=0.21)[0])
        q, k, v = inputs(dtype=torch.bfloat16)
        assert close(flash_attention(q, k, v), attention(q, k, v)[0])

    def test_slices_of_one_buffer(self):
        packed = torch.randn(2, 300, 12, 128, device="cuda").half()
        q, k, v = packed.split([8, 2, 2], dim=2)
        o = flash_attention(q, k, v)
        assert o.is_contiguous()
        assert close(o, attention(q, k, v)[0])

    def test_nothing_to_compute(self):
        q, k, v = inputs()
        assert flash_attention(q[:, :0], k, v).shape == (2, 0, 8, 128)
        assert torch.all(flash_attention(q, k[:, :0], v[:, :0]) == 0)
        assert torch.all(flash_attention(q, k[:, :0], v[:, :0], causal=True, return_lse=True)[1] == -torch.inf)


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"v": lambda v: v[:, :300]}, ValueError, r"v has shape \(2, 300, 2, 128\): allowed is the shape of k"),
            ({"k": lambda k: k.bfloat16()}, TypeError, r"k has dtype bfloat16: allowed is the dtype of q"),
            ({"k": lambda k: k.cpu()}, ValueError, r"q is on cuda:0, k on cpu: allowed is one device for all"),
            ({"k": lambda k: torch.zeros(k.numel() + 1, device="cuda").half()[1:].view(k.shape)},
             ValueError, r"k at address 0x[0-9a-f]+: allowed are positive multiples of 16 bytes"),
        ],
        ids=["lengths", "dtype", "device", "address"],
    )  # fmt: skip
    def test_by_its_name(self, change, error, message):
        tensors = dict(zip("qkv", inputs(), strict=True))
        tensors = {name: change.get(name, lambda x: x)(x) for name, x in tensors.items()}
        with pytest.raises(error, match=message):
            flash_attention(**tensors)

    def test_l8_a_kernel_for_another_gpu(self):
        with pytest.raises(ArtifactError, match=r"blackwell.so: the kernel is for sm_100a, but GPU 0 is sm_90a"):
            load(library_file("blackwell"), libraries=runtime_libraries())


class TestStreamsAndGraphs:
    def test_the_callers_stream_and_no_wait(self):
        q, k, v = inputs(1, 512, 512)
        flash_attention(q, k, v)
        stream, late = torch.cuda.Stream(), torch.zeros_like(v)
        filler = torch.randn(8192, 8192, device="cuda").half()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(20):
                filler @ filler
            late.copy_(v)
            done = torch.cuda.Event()
            o = flash_attention(q, k, late)
            done.record()
            assert not done.query()  # the call came back before the GPU was there
        stream.synchronize()
        assert close(o, attention(q, k, v)[0])

    def test_nothing_waits_for_the_gpu(self):
        q, k, v = inputs()
        flash_attention(q, k, v)
        torch.cuda.set_sync_debug_mode("error")
        try:
            flash_attention(q, k, v)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_only_the_outputs_are_allocated(self):
        q, k, v = inputs()
        flash_attention(q, k, v, causal=True, return_lse=True)
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        o, lse = flash_attention(q, k, v, causal=True, return_lse=True)
        assert torch.cuda.memory_stats()["allocation.all.allocated"] == before + 2
        assert (o.shape, lse.shape) == (q.shape, (2, 8, 300))

    def test_j3_a_graph_that_holds_the_first_call(self):
        """In a process of its own, since a kernel stays loaded."""
        done = subprocess.run([sys.executable, "-m", "tests.gpu_graph"], capture_output=True, text=True, timeout=1500)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout == "10 replays right\n"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
class TestTwoGpus:
    @pytest.mark.parametrize("current", [0, 1])
    @pytest.mark.parametrize("index", [0, 1])
    def test_j1_tensors_on_another_device_than_the_current(self, current, index):
        with torch.cuda.device(current):
            q, k, v = inputs(1, 128, 128, 1, 1, device=f"cuda:{index}")
            o = flash_attention(q, k, v)
            assert o.device.index == index
            assert torch.cuda.current_device() == current
            assert close(o, attention(q, k, v)[0])

    def test_j5_two_devices_in_one_call(self):
        q, k, v = inputs()
        with pytest.raises(ValueError, match=r"q is on cuda:0, k on cuda:1: allowed is one device for all"):
            flash_attention(q, k.to("cuda:1"), v)


def test_k1_one_graph_under_torch_compile():
    def model(q, k, v):
        return flash_attention(q * 2, k, v) + 1

    q, k, v = inputs()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q, k, v), model(q, k, v))


def test_what_the_host_pays_for_a_call():
    """Beside torch's scaled_dot_product_attention: half for a kernel with outputs, no more for `flash_attention`."""
    q, k, v = inputs(1, 128, 128, 8, 2)
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    o = torch.empty_like(q)
    kernel = load(library_file("op_full"), libraries=runtime_libraries())
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls = {
        "kernel": lambda: kernel(q, k, v, o),
        "flash_attention": lambda: flash_attention(q, k, v),
        "scaled_dot_product_attention": lambda: sdpa(*heads_first, enable_gqa=True),
    }
    with torch.inference_mode():
        found = host_microseconds(calls, torch.cuda.synchronize)
    print("\nhost time per call in us:", {name: round(each, 1) for name, each in found.items()})
    assert found["kernel"] <= 0.5 * found["scaled_dot_product_attention"]
    assert found["flash_attention"] <= found["scaled_dot_product_attention"]


FIRST_CALL = """
import torch
from tests.engines import library_file, runtime_libraries
from tests.torch_reference import attention, close
from tirx_attn import load
kernel = load(library_file("op_24"), libraries=runtime_libraries())
q, k, v = (torch.randn(1, 4608, 24, 128, device="cuda").half() for _ in "qkv")
o = torch.full_like(q, float("nan"))
kernel(q, k, v, o)
assert close(o[:, :, ::8], attention(q[:, :, ::8], k[:, :, ::8], v[:, :, ::8])[0])
print("right")
"""


def test_l5_l6_the_first_call_of_a_process_that_finds_no_compiler():
    env = {**os.environ, "PATH": ""}
    command = [sys.executable, "-c", FIRST_CALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, env=env)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr[-3000:]
