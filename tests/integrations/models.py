"""Small models of transformers with random weights, and their logits by one attention or another."""

from __future__ import annotations

import inspect

import torch
import transformers

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
