"""Small models of transformers on `flash_attention`: their logits beside eager attention."""

from __future__ import annotations

import pytest

from tests.engines import OP_KERNELS, library_file, runtime_libraries

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.integrations.models import CACHE, NAME, assert_as_good_as_eager, bert, llama, logits, mistral, tokens  # noqa: E402
from tests.torch_reference import attention  # noqa: E402
from tirx_attn import preload  # noqa: E402
from tirx_attn.integrations.transformers import register  # noqa: E402
from tirx_attn.runtime import torch_op  # noqa: E402


@pytest.mark.torch
class TestLogits:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_causal(self, reference, dtype):
        model, ids = llama(), tokens()
        exact, rounded = assert_as_good_as_eager(model, dtype, ids)
        assert reference == [((2, 21, 4, 64), (2, 21, 2, 64), True, None)] * 2
        full = logits(model, NAME, ids, is_causal=False)
        assert (full - exact).abs().max() > 10 * rounded  # so a wrong mask would show

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_full(self, reference, dtype):
        assert_as_good_as_eager(bert(), dtype, tokens())
        assert reference == [((2, 21, 2, 64), (2, 21, 2, 64), False, None)] * 2

    def test_a_causal_model_without_its_mask(self, reference):
        assert_as_good_as_eager(llama(), torch.bfloat16, tokens(), is_causal=False)
        assert [call[2] for call in reference] == [False, False]

    @pytest.mark.parametrize("model", [llama, bert])
    def test_a_mask_of_ones(self, reference, model):
        model, ids = model().bfloat16(), tokens()
        with_mask = logits(model, NAME, ids, attention_mask=torch.ones_like(ids))
        assert torch.equal(with_mask, logits(model, NAME, ids))

    def test_keys_in_a_cache(self, reference):
        """A prompt, several tokens at once behind it, then single ones: the mask is aligned with the last key."""
        model, ids = llama(), tokens(21)
        errors = {}
        exact = logits(model.float(), "eager", ids)
        model.bfloat16()
        for implementation in ("eager", NAME):
            cache, parts = transformers.DynamicCache(config=model.config), []
            for part in ids.split([9, 7, 1, 1, 1, 1, 1], dim=1):
                parts.append(logits(model, implementation, part, **{CACHE: cache}))
            errors[implementation] = (torch.cat(parts, 1) - exact).abs().amax((0, 2))
        assert torch.all(errors[NAME] <= 2 * errors["eager"].max())
        assert [(call[0][1], call[1][1]) for call in reference[::2]] == [
            (9, 9), (7, 16), (1, 17), (1, 18), (1, 19), (1, 20), (1, 21),
        ]  # fmt: skip

    def test_generation(self, reference):
        model, ids = llama().bfloat16(), tokens(7)
        found = {}
        for implementation in ("eager", NAME):
            model.set_attn_implementation(implementation)
            found[implementation] = model.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)
        assert found[NAME].shape == (2, 13)
        assert torch.equal(found[NAME], found["eager"])
        assert {call[:2] for call in reference} >= {((2, 1, 4, 64), (2, 12, 2, 64))}

    def test_a_window_that_holds_all_keys(self, reference):
        assert_as_good_as_eager(mistral(sliding_window=21), torch.bfloat16, tokens(21))
        assert len(reference) == 1


@pytest.mark.torch
class TestLayer:
    def test_what_reaches_the_kernel(self, reference):
        layer = transformers.AttentionInterface()[NAME]
        q, kv = torch.randn(1, 4, 3, 128).half(), torch.randn(1, 2, 5, 128).half()
        causal = torch.nn.Identity()
        causal.is_causal = True
        for scaling in (None, 128**-0.5, 0.25):
            o, weights = layer(causal, q, kv, kv, None, scaling=scaling, is_causal=None)
            views = [x.transpose(1, 2) for x in (q, kv, kv)]
            torch.testing.assert_close(o, attention(*views, causal=True, scale=scaling)[0].half())
            assert weights is None
        layer(causal, q, kv, kv, None, is_causal=False)
        assert [call[2:] for call in reference] == [(True, None), (True, None), (True, 0.25), (False, None)]


@pytest.mark.torch
@pytest.mark.simulator
@pytest.mark.slow
@pytest.mark.recorded(
    "tirx_attn/integrations",
    "tirx_attn/runtime/torch_op.py",
    "tirx_attn/verify/attention.py",
    "tests/integrations/models.py",
)
@pytest.mark.parametrize("model", [llama, bert])
def test_on_the_simulator(model):
    register(backend="simulator")
    assert_as_good_as_eager(model(1), torch.bfloat16, tokens(13, 1))


@pytest.mark.gpu
class TestGpu:
    @pytest.fixture(autouse=True)
    def kernels(self, monkeypatch):
        """Loaded, so that none is compiled, which would need TVM."""
        monkeypatch.setattr(torch_op, "_ready", {})
        for name in OP_KERNELS:
            preload(library_file(name), libraries=runtime_libraries())
        register()

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_causal(self, dtype):
        assert_as_good_as_eager(llama().cuda(), dtype, tokens(100).cuda())

    def test_full(self):
        assert_as_good_as_eager(bert().cuda(), torch.float16, tokens(100).cuda())

    def test_generation(self):
        """Token by token with a cache, each step's logits beside those of fp32 for the same tokens."""
        model, ids = llama().cuda().half(), tokens(30).cuda()
        model.set_attn_implementation(NAME)
        done = model.generate(
            ids, max_new_tokens=8, do_sample=False, eos_token_id=None, output_logits=True, return_dict_in_generate=True
        )
        steps = torch.stack(done.logits, 1).float()
        rounded = logits(model, "eager", done.sequences)
        exact = logits(model.float(), "eager", done.sequences)
        assert (steps - exact[:, 29:-1]).abs().max() <= 2 * (rounded - exact).abs().max()
