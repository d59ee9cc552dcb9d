"""What models of transformers ask for and the kernel does not do, by its name; and what `register` takes."""

from __future__ import annotations

import importlib
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers import masking_utils  # noqa: E402

from tests.integrations.models import CACHE, NAME, bert, llama, logits, mistral, tokens  # noqa: E402
from tirx_attn.integrations.transformers import register  # noqa: E402


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
