"""Hugging Face transformers: after `register()`, models take attn_implementation="tirx_attn".

The kernel knows two masks, causal (bottom-right aligned) and none. transformers is told to build no mask where a model
wants one of them; whatever else a model wants is refused, before its first layer where the mask tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

try:
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function
except ImportError as error:
    raise ImportError(
        "tirx_attn.integrations.transformers needs torch and transformers: pip install tirx-attn[transformers]"
    ) from error

from tirx_attn.runtime.torch_op import SIMULATOR, flash_attention

INSTEAD = "; or load the model with another attn_implementation, as 'eager'"

REFUSED = {
    "softcap": "the kernel does not bound the logits",
    "position_bias": "the kernel adds nothing to the logits",
    "s_aux": "the kernel has no attention sinks",
    "sinks": "the kernel has no attention sinks",
    "indices": "the kernel visits all keys",
    "block_indices": "the kernel visits all keys",
    "cache": "the kernel has no paged keys, so that continuous batching is not possible",
    "cu_seq_lens_q": "the kernel takes no packed sequences: give each its row of the batch",
    "cu_seq_lens_k": "the kernel takes no packed sequences: give each its row of the batch",
    "cu_seqlens": "the kernel takes no packed sequences: give each its row of the batch",
    "seq_idx": "the kernel takes no packed sequences: give each its row of the batch",
}
"""Arguments of transformers' attention functions that would change the result -> why they have to be None."""


def register(name: str = "tirx_attn", *, backend: str | None = None) -> None:
    """Make attn_implementation=name run `tirx_attn.flash_attention` in transformers' models.

    Models are float16 or bfloat16 with heads of 64 or 128, called without gradients. A later call with the same name
    replaces what an earlier one registered, also for models that are loaded already.

    Args:
        name: what models then name; without "/" and "|", which transformers reads as parts of other names.
        backend: "simulator" runs models on the CPU, slowly; None needs CUDA tensors.

    Raises:
        TypeError, ValueError: an argument that does not fit, by its name.
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {type(name).__name__}: allowed are strings")
    if not name or "/" in name or "|" in name:
        raise ValueError(f"name={name!r}: allowed are names without '/' and '|'")
    if backend not in (None, SIMULATOR):
        raise ValueError(f"backend={backend!r}: allowed are None and {SIMULATOR!r}")
    AttentionInterface.register(name, partial(attention, backend=backend))
    AttentionMaskInterface.register(name, mask)


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    backend: str | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """What a model's layer calls: query [B, Hq, Sq, D], key and value [B, Hkv, Skv, D]; returns O [B, Sq, Hq, D].

    Args:
        module: the layer, whose `is_causal` counts unless the argument is given; True where it has none, which is
            transformers' rule. The single query of a decoding step sees all keys either way.
        others: what the model passes on besides; ignored, or refused where it would change the result.

    Raises:
        ValueError: what the kernel does not do, by the argument's name; others as `flash_attention`.
    """
    if attention_mask is not None:
        raise ValueError(
            f"attention_mask is a tensor of shape {tuple(attention_mask.shape)} in the layer: allowed is None, since "
            f"the kernel knows causal and full attention only; pass the model no mask, or one [B, Skv] of ones{INSTEAD}"
        )
    if dropout:
        raise ValueError(f"dropout={dropout}: allowed is 0, since the kernel has none; call model.eval(){INSTEAD}")
    if sliding_window is not None and sliding_window < key.shape[2]:
        _refuse_window(sliding_window, key.shape[2])
    if others.get("output_attentions"):
        raise ValueError(f"output_attentions=True: allowed is False, since no weights are written{INSTEAD}")
    for name, why in REFUSED.items():
        if others.get(name) is not None:
            raise ValueError(f"{name} is given: allowed is None, since {why}{INSTEAD}")
    baked = scaling is None or math.isclose(scaling, 1 / math.sqrt(query.shape[-1]), rel_tol=1e-12)
    o = flash_attention(
        *(x.transpose(1, 2) for x in (query, key, value)),
        causal=bool(getattr(module, "is_causal", True) if is_causal is None else is_causal),
        scale=None if baked else scaling,
        backend=backend,
    )
    assert isinstance(o, torch.Tensor)
    return o, None


def mask(
    *,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Any],
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    attention_mask: torch.Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **others: Any,
) -> None:
    """What a model calls once per forward pass to make the mask of its layers: None, or an error.

    Query i stands at position q_offset + i, key j at kv_offset + j. Looking for zeros in `attention_mask` waits for the
    GPU, where it is there; a model that is called without a mask waits for nothing.

    Args:
        attention_mask: [B, kv_length], True for the tokens to be seen.
        local_size: sliding window or chunk, where `mask_function` has one.
        allow_is_causal_skip, allow_is_bidirectional_skip: whether the model takes None; the first is of causal masks.

    Raises:
        ValueError: a mask that is neither causal nor full, by the name of what asks for it.
    """
    # A causal mask is bottom-right aligned only where the last query stands at the last key. A cache of fixed length,
    # known by its offset in a tensor, has room for later keys, which no query may see.
    end, keys = int(q_offset) + q_length, kv_offset + kv_length
    if end != keys and (isinstance(q_offset, torch.Tensor) or mask_function is not bidirectional_mask_function):
        raise ValueError(
            f"cache or attention_mask has {keys} keys, but the last query is number {end}: allowed are a cache that "
            "holds the keys seen so far and nothing else, as cache_implementation='dynamic', and a mask as long"
        )
    if attention_mask is not None:
        _refuse_padding(attention_mask, keys)
    if local_size is not None and local_size < end:
        _refuse_window(local_size, end)
    composed = local_size is None and mask_function not in (causal_mask_function, bidirectional_mask_function)
    if composed or not (allow_is_causal_skip or allow_is_bidirectional_skip):
        raise ValueError(
            "mask_function is none of transformers' plain ones, or is wanted as a tensor: allowed are causal and full "
            "attention; packed sequences (position_ids that start anew in a row), and a model that adds a mask of its "
            f"own, are not: give each sequence its row of the batch{INSTEAD}"
        )


def _refuse_padding(attention_mask: torch.Tensor, keys: int) -> None:
    if attention_mask.ndim != 2 or attention_mask.shape[1] != keys:
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}: allowed are None and [B, {keys}], a number for "
            f"each key{INSTEAD}"
        )
    if not bool(attention_mask.all()):
        raise ValueError(
            "attention_mask has zeros: allowed are None and ones only, since the kernel sees all tokens of a batch; "
            f"call the model on sequences of one length, without padding{INSTEAD}"
        )


def _refuse_window(window: int, keys: int) -> None:
    raise ValueError(
        f"sliding_window={window} with {keys} keys: allowed are windows (or chunks) that hold all keys, "
        f"since the kernel leaves none out{INSTEAD}"
    )
