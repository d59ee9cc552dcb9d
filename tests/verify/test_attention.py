"""`simulate`: what it refuses at the border, what it answers without a launch, and what it launches."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.launches import LIMIT
from tirx_attn import AttentionConfig, verify
from tirx_attn.schedule.parts import Launch
from tirx_attn.schedule.plan import make_plan
from tirx_attn.verify import attention, attention_reference, simulator


def inputs(b=1, sq=128, skv=128, hq=1, hkv=1, d=128, dtype=np.float16):
    rng = np.random.default_rng(0)
    shapes = ((b, sq, hq, d), (b, skv, hkv, d), (b, skv, hkv, d))
    return dict(zip("qkv", (rng.standard_normal(shape).astype(dtype) for shape in shapes), strict=True))


class TestBorder:
    """Bad input fails, and empty input is answered, without TVM and without a child process."""

    @pytest.fixture(autouse=True)
    def no_process(self, monkeypatch):
        def refuse():
            raise AssertionError("reached the simulator")

        monkeypatch.setattr(attention, "require_simulator", refuse)
        monkeypatch.setattr(simulator, "_worker", refuse)

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"q": [1]}, TypeError, r"q is list: allowed are NumPy arrays"),
            ({"q": np.zeros((1, 128, 1, 128), np.float32)}, TypeError, r"q has dtype float32: allowed are float16 and"),
            ({"k": np.zeros((1, 128, 1, 128), ml_dtypes.bfloat16)}, TypeError, r"k has dtype bfloat16: .*q, float16"),
            ({"v": np.zeros((128, 1, 128), np.float16)}, ValueError, r"v has shape \(128, 1, 128\): allowed are four"),
            ({"k": np.zeros((2, 128, 1, 128), np.float16)}, ValueError, r"k has shape \(2, .*B=1"),
            ({"v": np.zeros((1, 256, 1, 128), np.float16)}, ValueError, r"v has shape .*shape of k"),
            ({"causal": 1}, TypeError, r"is_causal=1"),
            ({"return_lse": 1}, TypeError, r"return_lse=1"),
            ({"scale": 0}, ValueError, r"scale=0: allowed"),
            ({"scale": "runtime"}, TypeError, r"scale='runtime': allowed values are None and positive numbers"),
            ({"schedule": 3}, TypeError, r"schedule=3: allowed"),
            ({"k": np.zeros((1, 128, 1, 256), np.float16)[..., ::2]}, ValueError, r"k.strides\[3\]=2: allowed is 1"),
            ({"q": np.zeros(128 * 128 + 1, np.float16)[1:].reshape(1, 128, 1, 128)}, ValueError, r"q at address .*16"),
            ({"v": np.zeros((1, 128, 1, 132), np.float16)[..., :128]}, ValueError, r"v.strides\[1\]=132, 264 bytes"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_named(self, change, error, message):
        with pytest.raises(error, match=message):
            verify.simulate(**(inputs() | change))

    @pytest.mark.parametrize(("hq", "hkv"), [(3, 2), (33, 2), (256, 1)])
    def test_heads_are_named(self, hq, hkv):
        with pytest.raises(ValueError, match=rf"Hq={hq}"):
            verify.simulate(**inputs(hq=hq, hkv=hkv))

    @pytest.mark.parametrize("d", [8, 16, 96, 160, 192, 256, 512])
    def test_head_sizes_are_named(self, d):
        with pytest.raises(ValueError, match=rf"D={d}: allowed head sizes are 64, 128"):
            verify.simulate(**inputs(d=d))

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("sq", [1, 64, 128, 256])
    def test_h1_no_keys(self, sq, causal):
        o, lse = verify.simulate(**inputs(b=2, sq=sq, skv=0, hq=6, hkv=2), causal=causal, return_lse=True)
        assert (o.shape, o.dtype) == ((2, sq, 6, 128), np.float16)
        assert not o.any()
        assert lse.shape == (2, 6, sq)
        assert np.all(lse == -np.inf)

    @pytest.mark.parametrize(("b", "sq"), [(0, 5), (3, 0), (0, 0)])
    def test_nothing_to_do(self, b, sq):
        o, lse = verify.simulate(**inputs(b=b, sq=sq, dtype=ml_dtypes.bfloat16), return_lse=True)
        assert (o.shape, o.dtype, lse.shape) == ((b, sq, 1, 128), ml_dtypes.bfloat16, (b, 1, sq))
        assert verify.simulate(**inputs(b=b, sq=sq)).shape == (b, sq, 1, 128)

    def test_empty_input_is_still_checked(self):
        with pytest.raises(ValueError, match=r"Hq=3"):
            verify.simulate(**inputs(skv=0, hq=3, hkv=2))


class TestSimulatedPlan:
    def test_the_grid_is_fixed_only_where_it_follows_from_a_length(self):
        open_plan = make_plan(AttentionConfig(None, None, None, 2, 1, 128, True))
        assert verify.simulated_plan(open_plan, 65).launch == Launch(strided=False, grid=128)
        assert verify.simulated_plan(open_plan, 3).launch.grid == attention.SMALLEST_GRID
        with pytest.raises(ValueError, match="tasks=None"):
            verify.simulated_plan(open_plan)
        for config in (AttentionConfig(None, None, None, 2, 1, 128), AttentionConfig(1, 256, 256, 2, 1, 128, True)):
            assert verify.simulated_plan(make_plan(config)).launch == Launch(strided=False, grid=None)


@pytest.mark.simulator
@pytest.mark.slow
@pytest.mark.recorded("tirx_attn/verify/attention.py", "tirx_attn/verify/binding.py", unit="simulate")
class TestLaunches:
    """Rows G of the list, as far as a simulator without strides can take them: by value. The strides themselves are
    proved on the host launcher."""

    @pytest.fixture(autouse=True)
    def simulator(self):
        pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")

    def judge(self, q, k, v):
        o, lse = verify.simulate(q, k, v, return_lse=True, time_limit=LIMIT)
        verdict = verify.judge(o, q, k, v)
        assert verdict.ok, verdict
        np.testing.assert_allclose(lse, attention_reference(q, k, v)[1], atol=1e-4)
        return o

    def test_b1_one_length_after_the_other(self):
        for seed, length in enumerate((64, 1, 130)):
            rng = np.random.default_rng(seed)
            q, k, v = (rng.standard_normal((1, length, 4, 128)).astype(np.float16) for _ in range(3))
            self.judge(q, k, v)
        ones = np.ones((1, 64, 4, 128), np.float16)
        assert np.all(self.judge(q[:, :64], k[:, :64], ones) == 1)

    def test_g1_heads_before_tokens(self):
        rng = np.random.default_rng(1)
        q, k, v = (rng.standard_normal((1, 4, 256, 128)).astype(np.float16).transpose(0, 2, 1, 3) for _ in range(3))
        assert not q.flags.c_contiguous
        self.judge(q, k, v)

    def test_g2_one_buffer_for_all(self):
        rng = np.random.default_rng(2)
        packed = rng.standard_normal((3, 1, 128, 4, 128)).astype(np.float16)
        self.judge(*packed)

    def test_g6_every_second_key(self):
        rng = np.random.default_rng(3)
        q, v = (rng.standard_normal((1, 128, 4, 128)).astype(np.float16) for _ in range(2))
        k = rng.standard_normal((1, 256, 4, 128)).astype(np.float16)[:, ::2]
        self.judge(q, k, v)

    def test_a_scale_is_a_number_of_the_launch(self):
        rng = np.random.default_rng(4)
        q, k, v = (rng.standard_normal((1, 40, 4, 128)).astype(np.float16) for _ in range(3))
        for scale in (0.02, 0.3):
            o = verify.simulate(q, k, v, causal=True, scale=scale, time_limit=LIMIT)
            verdict = verify.judge(o, q, k, v, causal=True, scale=scale)
            assert verdict.ok, verdict
