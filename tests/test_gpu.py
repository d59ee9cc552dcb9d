"""What only a GPU can show of the sm_90a kernels: strides, large tensors, streams, graphs, the same bits every time."""

from __future__ import annotations

import pytest

from tests.engines import GPU_KERNELS, Gpu, library
from tests.torch_reference import attention, close
from tirx_attn.verify import PROBES

pytestmark = pytest.mark.gpu

torch = pytest.importorskip("torch", reason="needs torch on a machine with a GPU")


def normal(*shape, seed=0):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(*shape, device="cuda", generator=generator).half()


def launch(name, q, k, v, o=None):
    """O and LSE; an output that is not given was NaN before."""
    o = torch.full(q.shape, float("nan"), device="cuda", dtype=q.dtype) if o is None else o
    lse = torch.full((q.shape[0], q.shape[2], q.shape[1]), float("nan"), device="cuda")
    library(name)(q, k, v, o, lse)
    return o, lse


def assert_right(name, q, k, v, *, causal=False, o=None):
    o, lse = launch(name, q, k, v, o)
    reference, reference_lse = attention(q, k, v, causal=causal)
    assert close(o, reference)
    torch.testing.assert_close(lse, reference_lse, atol=1e-4, rtol=0)
    return o


class TestLayout:
    """Rows G of the list."""

    def test_g1_heads_before_tokens(self):
        q, k, v = (normal(1, 4, 256, 128, seed=i).transpose(1, 2) for i in range(3))
        assert not q.is_contiguous()
        assert_right("full_4_4", q, k, v)

    def test_g2_slices_of_one_buffer(self):
        packed = normal(1, 128, 3, 4, 128)
        q, k, v = packed.unbind(2)
        assert k.storage_offset() == 4 * 128
        assert_right("full_4_4", q, k, v)

    @pytest.mark.parametrize("stride", [0, 1, 8, 128 * 4 * 128])
    def test_g5_any_stride_of_a_single_batch(self, stride):
        q, k, v = (normal(1, 128, 4, 128, seed=i) for i in range(3))
        natural, _ = launch("full_4_4", q, k, v)
        odd = [x.as_strided(x.shape, (stride, *x.stride()[1:])) for x in (q, k, v)]
        assert torch.equal(launch("full_4_4", *odd)[0], natural)

    def test_g6_every_second_key(self):
        q, v = normal(1, 128, 4, 128), normal(1, 128, 4, 128, seed=1)
        k = normal(1, 256, 4, 128, seed=2)[:, ::2]
        assert_right("full_4_4", q, k, v)

    def test_a_slice_as_output_leaves_its_neighbours_alone(self):
        q, k, v = (normal(2, 100, 4, 128, seed=i) for i in range(3))
        whole = torch.full((2, 104, 3, 4, 128), 7.0, device="cuda").half()
        inner = whole[:, 2:102, 1]
        assert_right("full_4_4", q, k, v, o=inner)
        inner.fill_(7)
        assert torch.all(whole == 7)


class TestAllHeads:
    """Inputs of the list that the simulator takes with some of their heads."""

    @pytest.mark.parametrize(
        ("kernel", "probe", "lengths"),
        [("causal_8_8_bf16", "one", (2, 1024, 1024)), ("causal_8_2", "idx", (1, 1024, 1024))],
        ids=["A5", "A6"],
    )
    def test_known_answers(self, kernel, probe, lengths):
        made = PROBES[probe](GPU_KERNELS[kernel].at(lengths))
        assert made.judge(Gpu().run(kernel, made.arrays).o).ok

    def test_n1_batch_neighbours_do_not_matter(self):
        q, k, v = normal(8, 257, 8, 128), normal(8, 257, 2, 128, seed=1), normal(8, 257, 2, 128, seed=2)
        together, alone = launch("causal_8_2", q, k, v), launch("causal_8_2", q[:1], k[:1], v[:1])
        assert torch.equal(together[0][:1], alone[0])
        assert torch.equal(together[1][:1], alone[1])


class TestLarge:
    def test_i1_keys_beyond_2_31_elements_in_sum(self):
        """4,194,304 keys, 8 heads on one K/V head: V is 1 for the last half of the keys that the last query sees."""
        q = torch.zeros(1, 2048, 8, 128, device="cuda", dtype=torch.float16)
        k = torch.zeros(1, 4194304, 1, 128, device="cuda", dtype=torch.float16)
        v = torch.zeros_like(k)
        v[:, 2097152:] = 1
        o, lse = launch("causal_8_1", q, k, v)
        seen = torch.arange(4194304 - 2047, 4194304 + 1, device="cuda", dtype=torch.float64)
        expected = (seen - 2097152) / seen
        assert torch.allclose(o[0, :, 0, 0].double(), expected, atol=2**-11)
        assert torch.equal(o, o[:, :, :1, :1].expand_as(o))
        torch.testing.assert_close(lse[0, 0].double(), seen.log(), atol=1e-4, rtol=0)

    def test_i2_tensors_beyond_2_31_elements(self):
        q = torch.zeros(1, 128, 128, 128, device="cuda", dtype=torch.float16)
        k = torch.zeros(1, 131200, 128, 128, device="cuda", dtype=torch.float16)
        v = torch.zeros_like(k)
        assert k.numel() == 2149580800
        v[:, -128:] = 1
        o, _ = launch("full_128_128", q, k, v)
        assert torch.allclose(o.float(), torch.tensor(128 / 131200, device="cuda"), rtol=2**-10)

    @pytest.mark.parametrize("batches", [65535, 65536])
    def test_i4_batches(self, batches):
        q, k = (torch.zeros(batches, 4, 8, 128, device="cuda", dtype=torch.float16) for _ in range(2))
        v = torch.arange(batches, device="cuda").remainder(2048).half()[:, None, None, None].expand_as(k).contiguous()
        o, _ = launch("full_8_8", q, k, v)
        assert torch.equal(o, v)


class TestStreams:
    def test_a_thousand_times_the_same_bits_beside_a_busy_stream(self):
        q, k, v = (normal(2, 700, 8, 128, seed=i) for i in range(3))
        first, first_lse = launch("full_8_8", q, k, v)
        torch.cuda.synchronize()
        other, a = torch.cuda.Stream(), normal(2048, 2048)
        differences = torch.zeros((), device="cuda", dtype=torch.int64)
        for i in range(1000):
            if i % 10 == 0:
                with torch.cuda.stream(other):
                    a @ a
            o, lse = launch("full_8_8", q, k, v)
            differences += (o.view(torch.int16) != first.view(torch.int16)).sum()
            differences += (lse.view(torch.int32) != first_lse.view(torch.int32)).sum()
        assert int(differences) == 0

    def test_it_runs_on_the_callers_stream(self):
        """Behind a copy that the same stream makes first: on another one the old values would be read."""
        q, k, v = (normal(1, 512, 8, 128, seed=i) for i in range(3))
        stream, late = torch.cuda.Stream(), torch.zeros_like(v)
        filler = normal(4096, 4096)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(20):
                filler @ filler
            late.copy_(v)
            o, _ = launch("full_8_8", q, k, late)
        stream.synchronize()
        assert close(o, attention(q, k, v)[0])

    def test_j3_a_captured_graph_takes_new_contents(self):
        q, k, v = normal(2, 1, 8, 128), normal(2, 512, 2, 128), normal(2, 512, 2, 128)
        o = torch.empty_like(q)
        lse = torch.empty(2, 8, 1, device="cuda")
        kernel = library("full_8_2")
        kernel(q, k, v, o, lse, 0.11)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel(q, k, v, o, lse, 0.11)
        for seed in range(10):
            for tensor, shift in ((q, 0), (k, 1), (v, 2)):
                tensor.copy_(normal(*tensor.shape, seed=3 * seed + shift))
            o.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            assert close(o, attention(q, k, v, scale=0.11)[0])


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"k": lambda k: k.float()}, r"Mismatched K\.dtype"),
            ({"v": lambda v: v[..., :64]}, r"Invalid V\.shape\[3\]"),
            ({"q": lambda q: q.cpu()}, r"Mismatched Q\.device_type"),
            ({"k": lambda k: k[:, :0], "v": lambda v: v[:, :0]}, r"Skv: allowed are sizes from 1"),
        ],
        ids=["dtype", "head_size", "device", "empty"],
    )
    def test_named(self, change, message):
        tensors = {name: normal(1, 128, 4, 128) for name in "qkv"}
        o, lse = torch.empty_like(tensors["q"]), torch.empty(1, 4, 128, device="cuda")
        tensors = {name: change.get(name, lambda x: x)(x) for name, x in tensors.items()}
        kernel = library("full_4_4")
        with pytest.raises(Exception, match=message):
            kernel(*tensors.values(), o, lse)
