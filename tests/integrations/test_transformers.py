"""Small models of transformers on `flash_attention`: their logits beside eager attention, and what is refused."""

from __future__ import annotations

import importlib
import inspect
import sys

import pytest

from tests.engines import OP_KERNELS, library_file, runtime_libraries

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers import masking_utils  # noqa: E402

from tests.torch_reference import attention  # noqa: E402
from tirx_attn import preload  # noqa: E402
from tirx_attn.integrations.transformers import register  # noqa: E402
from tirx_attn.runtime import torch_op  # noqa: E402

NAME = "tirx_attn"
COMMON = {"vocab_size": 50, "intermediate_size": 128, "initializer_range": 0.2, "max_position_embeddings": 128}
"""Weights so large that attention is far from uniform: with transformers' own a wrong mask would hardly show."""
CACHE = ({"cache", "past_key_values"} & inspect.signature(transformers.LlamaModel.forward).parameters.keys()).pop()
"""What the argument is called; it has another name since 5.24."""


def llama(layers=2, **options):
    """4 query heads over 2 key heads of 64."""
    heads = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    return made(transformers.LlamaConfig(**(COMMON | heads | {"num_hidden_layers": layers} | options)), "CausalLM")


def mistral(**options):
    heads = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    return made(transformers.MistralConfig(**(COMMON | heads | {"num_hidden_layers": 1} | options)), "CausalLM")


def bert(layers=2, **options):
    """2 heads of 64, each query sees all keys."""
    heads = {"hidden_size": 128, "num_attention_heads": 2}
    return made(transformers.BertConfig(**(COMMON | heads | {"num_hidden_layers": layers} | options)), "MaskedLM")


def made(config, task):
    torch.manual_seed(0)
    return getattr(transformers, f"AutoModelFor{task}").from_config(config).eval()


def tokens(length=21, batch=2):
    return torch.randint(3, 50, (batch, length), generator=torch.Generator().manual_seed(length))


def logits(model, implementation, ids, **options):
    model.set_attn_implementation(implementation)
    with torch.inference_mode():
        return model(ids, **options).logits.float()


def assert_as_good_as_eager(model, dtype, ids, **options):
    """Logits whose error beside fp32 is at most twice that of eager attention in the same dtype.

    Eager attention rounds the weights and O, the kernel likewise; all other layers are the same code. So the two errors
    have one size, and it comes with the test: a bound in numbers would depend on the model. Each is the largest of
    thousands, which differ little from one rounding to another.
    """
    exact = logits(model.float(), "eager", ids, **options)
    model.to(dtype)
    rounded = (logits(model, "eager", ids, **options) - exact).abs().max()
    found = (logits(model, NAME, ids, **options) - exact).abs().max()
    assert 0 < found <= 2 * rounded
    return exact, rounded


@pytest.fixture
def reference(monkeypatch):
    """torch in place of the simulator, and what it was asked for."""
    calls = []

    def computed(q, k, v, causal, scale, return_lse):
        calls.append((tuple(q.shape), tuple(k.shape), causal, scale))
        return attention(q, k, v, causal=causal, scale=scale)[0].to(q.dtype), torch.empty(0)

    monkeypatch.setattr(torch_op, "_simulated", computed)
    register(backend="simulator")
    return calls


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
class TestRefused:
    @pytest.mark.parametrize("model", [llama, bert])
    def test_padding(self, reference, model):
        ids = tokens()
        attention_mask = torch.ones_like(ids)
        attention_mask[0, :2] = 0
        with pytest.raises(ValueError, match=r"attention_mask has zeros: allowed are None and ones only"):
            logits(model(1).bfloat16(), NAME, ids, attention_mask=attention_mask)
        assert reference == []

    @pytest.mark.parametrize("model", [llama, bert])
    def test_a_mask_with_queries(self, reference, model):
        ids = tokens()
        attention_mask = torch.zeros(2, 1, 21, 21).bfloat16()
        with pytest.raises(ValueError, match=r"attention_mask is a tensor of shape \(2, 1, 21, 21\) in the layer"):
            logits(model(1).bfloat16(), NAME, ids, attention_mask=attention_mask)

    def test_a_mask_of_another_length(self, reference):
        with pytest.raises(ValueError, match=r"cache or attention_mask has 30 keys, but the last query is number 21"):
            logits(llama(1).bfloat16(), NAME, tokens(), attention_mask=torch.ones(2, 30), use_cache=False)
        cache = transformers.DynamicCache()
        model = llama(1).bfloat16()
        logits(model, NAME, tokens(), **{CACHE: cache})
        with pytest.raises(ValueError, match=r"attention_mask has shape \(2, 3\): allowed are None and \[B, 24\]"):
            logits(model, NAME, tokens(3), **{CACHE: cache}, attention_mask=torch.ones(2, 3))

    def test_a_cache_of_fixed_length(self, reference):
        model = llama(1).bfloat16()
        cache = transformers.StaticCache(config=model.config, max_cache_len=32)
        with pytest.raises(ValueError, match=r"has 32 keys, but the last query is number 21: allowed are a cache that"):
            logits(model, NAME, tokens(), **{CACHE: cache})

    def test_packed_sequences(self, reference):
        ids, position_ids = tokens(8), torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2]] * 2)
        model = llama(1).bfloat16()
        with pytest.raises(ValueError, match=r"packed sequences \(position_ids that start anew in a row\)"):
            logits(model, NAME, ids, position_ids=position_ids, use_cache=False)
        ends = torch.tensor([0, 5, 8])
        with pytest.raises(
            ValueError, match=r"cu_seq_lens_q is given: allowed is None, since the kernel takes no packed"
        ):
            logits(model, NAME, ids, cu_seq_lens_q=ends, cu_seq_lens_k=ends)

    def test_a_window_smaller_than_the_sequence(self, reference):
        with pytest.raises(ValueError, match=r"sliding_window=20 with 21 keys: allowed are windows \(or chunks\) that"):
            logits(mistral(sliding_window=20).bfloat16(), NAME, tokens(21))
        model = mistral(sliding_window=21).bfloat16()
        model.set_attn_implementation(NAME)
        with pytest.raises(ValueError, match=r"sliding_window=21 with 22 keys"):
            model.generate(tokens(21), max_new_tokens=3, do_sample=False, eos_token_id=None)

    def test_dropout_in_training(self, reference):
        for model in llama(1, attention_dropout=0.25), bert(1, attention_probs_dropout_prob=0.25):
            model.bfloat16().train()
            with pytest.raises(
                ValueError, match=r"dropout=0.25: allowed is 0, since the kernel has none; call model.eval"
            ):
                logits(model, NAME, tokens())

    def test_gradients(self, reference):
        model = llama(1).bfloat16()
        model.set_attn_implementation(NAME)
        with pytest.raises(ValueError, match=r"q.requires_grad=True: allowed are inputs without gradients"):
            model(tokens())

    @pytest.mark.parametrize("size", [32, 96])
    def test_head_size(self, reference, size):
        with pytest.raises(ValueError, match=rf"D={size}: allowed"):
            logits(llama(1, head_dim=size).bfloat16(), NAME, tokens())

    def test_dtype(self, reference):
        with pytest.raises(TypeError, match=r"q has dtype float32: allowed are float16 and bfloat16"):
            logits(llama(1), NAME, tokens())

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"softcap": 50.0}, r"softcap is given: allowed is None, since the kernel does not bound the logits"),
            ({"s_aux": torch.zeros(4)}, r"s_aux is given: allowed is None, since the kernel has no attention sinks"),
            ({"position_bias": torch.zeros(1)}, r"position_bias is given: allowed is None"),
            ({"sliding_window": 4}, r"sliding_window=4 with 5 keys"),
            ({"output_attentions": True}, r"output_attentions=True: allowed is False"),
        ],
    )
    def test_what_a_layer_passes(self, reference, options, message):
        layer = transformers.AttentionInterface()[NAME]
        x = torch.zeros(1, 2, 5, 64).half()
        assert layer(None, x, x, x, None, softcap=None, sliding_window=5, position_ids=1)[0].shape == (1, 5, 2, 64)
        with pytest.raises(ValueError, match=message):
            layer(None, x, x, x, None, **options)


CAUSAL = {"q_length": 3, "kv_length": 5, "q_offset": 2, "mask_function": masking_utils.causal_mask_function}
FULL = {
    "q_length": 3,
    "kv_length": 5,
    "mask_function": masking_utils.bidirectional_mask_function,
    "allow_is_causal_skip": False,
    "allow_is_bidirectional_skip": True,
}


@pytest.mark.torch
class TestMask:
    """What models of other kinds than those above may ask for."""

    pytestmark = pytest.mark.usefixtures("reference")

    @pytest.mark.parametrize(
        "arguments",
        [
            CAUSAL,
            CAUSAL | {"attention_mask": torch.ones(2, 5, dtype=torch.bool), "dtype": torch.float16},
            CAUSAL | {"q_offset": torch.tensor(2)},
            FULL,
            FULL | {"q_offset": torch.tensor(2)},
        ],
    )
    def test_none_is_built(self, arguments):
        assert transformers.AttentionMaskInterface()[NAME](**arguments) is None

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                CAUSAL | {"mask_function": lambda b, h, q, k: k < q},
                r"mask_function is none of transformers' plain ones",
            ),
            (CAUSAL | {"allow_is_causal_skip": False}, r"or is wanted as a tensor"),
            (FULL | {"allow_is_bidirectional_skip": False}, r"or is wanted as a tensor"),
            (FULL | {"q_offset": torch.tensor(0)}, r"has 5 keys, but the last query is number 3"),
            (CAUSAL | {"kv_offset": 2, "q_offset": 4, "local_size": 6}, r"sliding_window=6 with 7 keys"),
            (CAUSAL | {"attention_mask": torch.ones(2, 5, 5)}, r"attention_mask has shape \(2, 5, 5\)"),
        ],
    )
    def test_refused(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            transformers.AttentionMaskInterface()[NAME](**arguments)


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
class TestRegister:
    def test_a_later_call_replaces_an_earlier_one(self, reference):
        model = llama(1).bfloat16()
        register()
        with pytest.raises(ValueError, match=r"q is on cpu with backend=None"):
            logits(model, NAME, tokens())
        register(backend="simulator")
        logits(model, NAME, tokens())
        assert len(reference) == 1

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"name": "a/b"}, ValueError, r"name='a/b': allowed are names without"),
            ({"name": ""}, ValueError, r"name='': allowed are names without"),
            ({"name": 3}, TypeError, r"name is int: allowed are strings"),
            ({"backend": "cuda"}, ValueError, r"backend='cuda': allowed are None and 'simulator'"),
        ],
    )
    def test_arguments(self, arguments, error, message):
        with pytest.raises(error, match=message):
            register(**arguments)

    def test_without_transformers(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "transformers", None)
        monkeypatch.delitem(sys.modules, "tirx_attn.integrations.transformers")
        with pytest.raises(ImportError, match=r"needs torch and transformers: pip install tirx-attn\[transformers\]"):
            importlib.import_module("tirx_attn.integrations.transformers")


@pytest.mark.torch
@pytest.mark.simulator
@pytest.mark.slow
@pytest.mark.parametrize("model", [llama, bert])
def test_on_the_simulator(model):
    register(backend="simulator")
    assert_as_good_as_eager(model(1), torch.bfloat16, tokens(13, 1))


@pytest.mark.gpu
@pytest.mark.timeout(600)
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
