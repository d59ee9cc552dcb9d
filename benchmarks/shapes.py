"""The shapes of the comparison, in groups that each fit one short run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tirx_attn.config import DTYPES, AttentionConfig

TOKENS = 16384
"""Tokens of a batch in the groups with as many K/V heads as query heads."""

MHA_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
GQA_LENGTHS = (2048, 4096, 8192, 16384, 32768)
GQA_HEADS = ((32, 8), (32, 4))
INFORMATION = (
    # B, Sq, Skv, Hq, Hkv, masks: a causal mask hides nothing from the last row.
    (16, 1, 4096, 32, 8, (False,)),
    (2, 1000, 1777, 16, 16, (False, True)),
    (1, 4097, 4097, 16, 16, (False, True)),
)
GROUPS = ("mha_d128_fp16", "mha_d128_bf16", "mha_d64", "gqa", "mha_h32", "information")


@dataclass(frozen=True)
class Shape:
    """One row of the results: a problem with known lengths, and the group it belongs to."""

    group: str
    config: AttentionConfig

    @property
    def name(self) -> str:
        """Unique name, such as `fp16_causal_b4_s4096_h16_d128`."""
        c = self.config
        batches, sq, skv = c.lengths
        length = f"s{sq}" if sq == skv else f"q{sq}_k{skv}"
        heads = f"h{c.Hq}" if c.Hq == c.Hkv else f"h{c.Hq}x{c.Hkv}"
        return f"{DTYPES[c.dtype]}_{mask_name(c)}_b{batches}_{length}_{heads}_d{c.D}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products over the visible (query, key) pairs."""
        return self.config.flops


def mask_name(config: AttentionConfig) -> str:
    """`causal` or `full`."""
    return "causal" if config.is_causal else "full"


def all_shapes() -> list[Shape]:
    """Every shape, group by group in the order of GROUPS."""
    shapes = []
    for group, dtype, head_dim in (
        ("mha_d128_fp16", "float16", 128),
        ("mha_d128_bf16", "bfloat16", 128),
        ("mha_d64", "float16", 64),
    ):
        for causal in (False, True):
            for s in MHA_LENGTHS:
                shapes.append(Shape(group, AttentionConfig(TOKENS // s, s, s, 16, 16, head_dim, causal, dtype=dtype)))
    # The group mha_h32 is what the grouped rows are compared with: the same problem, a K/V head for each query head.
    for group, hq, hkv in (*(("gqa", *heads) for heads in GQA_HEADS), ("mha_h32", 32, 32)):
        for causal in (False, True):
            shapes += [Shape(group, AttentionConfig(1, s, s, hq, hkv, 128, causal)) for s in GQA_LENGTHS]
    for b, sq, skv, hq, hkv, masks in INFORMATION:
        shapes += [Shape("information", AttentionConfig(b, sq, skv, hq, hkv, 128, causal)) for causal in masks]
    return shapes


def select(shapes: Iterable[Shape], groups: Sequence[str] = (), patterns: Sequence[str] = ()) -> list[Shape]:
    """The shapes of `groups` whose name matches one of `patterns` (with * and ?); an empty filter lets all pass.

    Raises:
        ValueError: a group is unknown, or a pattern matches nothing in these groups.
    """
    for group in groups:
        if group not in GROUPS:
            raise ValueError(f"group {group!r}: allowed are {', '.join(GROUPS)}")
    chosen = [shape for shape in shapes if not groups or shape.group in groups]
    for pattern in patterns:
        if not any(fnmatchcase(shape.name, pattern) for shape in chosen):
            raise ValueError(f"shapes {pattern!r}: no shape has such a name; --list shows them")
    return [s for s in chosen if not patterns or any(fnmatchcase(s.name, pattern) for pattern in patterns)]
