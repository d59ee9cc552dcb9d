"""The list of shapes, its filters, and the libraries that it needs."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.kernels import library_name, load, needed, open_config
from benchmarks.shapes import GROUPS, all_shapes, select
from tirx_attn import AttentionConfig

SHAPES = all_shapes()


def test_groups_hold_the_shapes_of_the_comparison():
    assert Counter(shape.group for shape in SHAPES) == {
        "mha_d128_fp16": 12, "mha_d128_bf16": 12, "mha_d64": 12, "gqa": 20, "mha_h32": 10, "information": 5,
    }  # fmt: skip
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert list(dict.fromkeys(shape.group for shape in SHAPES)) == list(GROUPS)


def test_mha_groups_have_16k_tokens():
    expected = {"mha_d128_fp16": ("float16", 128), "mha_d128_bf16": ("bfloat16", 128), "mha_d64": ("float16", 64)}
    for shape in SHAPES:
        c = shape.config
        if shape.group in expected:
            assert c.B * c.Sq == 16384
            assert (c.Sq, c.Hq, c.Hkv) == (c.Skv, 16, 16)
            dtype, head_dim = expected[shape.group]
            assert (c.dtype, c.D) == (dtype, head_dim)


def test_every_grouped_row_has_a_row_to_compare_with():
    lengths = {g: Counter((s.config.B, s.config.Sq, s.config.is_causal) for s in select(SHAPES, [g])) for g in GROUPS}
    assert set(lengths["gqa"]) == set(lengths["mha_h32"])
    assert {s.config.Hkv for s in select(SHAPES, ["mha_h32"])} == {32}


def test_flops_count_visible_pairs():
    flops = {shape.name: shape.flops for shape in SHAPES}
    assert flops["fp16_full_b4_s4096_h16_d128"] == 4 * 4 * 16 * 128 * 4096**2
    assert flops["fp16_causal_b4_s4096_h16_d128"] == 4 * 4 * 16 * 128 * (4096 * 4097 // 2)
    assert flops["fp16_full_b16_q1_k4096_h32x8_d128"] == 4 * 16 * 32 * 128 * 4096
    visible = sum(1777 - 1000 + row + 1 for row in range(1000))
    assert flops["fp16_causal_b2_q1000_k1777_h16_d128"] == 4 * 2 * 16 * 128 * visible


def test_filters_choose_and_refuse():
    chosen = select(SHAPES, ["gqa"], ["*_causal_*h32x4*", "fp16_full_b1_s2048_h32x8_d128"])
    assert len(chosen) == 6
    assert select(SHAPES) == SHAPES
    with pytest.raises(ValueError, match=r"group 'mha': allowed are mha_d128_fp16"):
        select(SHAPES, ["mha"])
    with pytest.raises(ValueError, match=r"shapes '\*h32x8\*': no shape"):
        select(SHAPES, ["mha_d64"], ["*h32x8*"])


def test_one_library_serves_all_lengths():
    assert sorted(needed(select(SHAPES, ["mha_d128_fp16", "information"]))) == [
        "attention_fp16_causal_h16x16_d128.so",
        "attention_fp16_full_h16x16_d128.so",
        "attention_fp16_full_h32x8_d128.so",
    ]
    config = AttentionConfig(1, 2, 3, 32, 4, 64, dtype="bf16")
    assert library_name(config) == "attention_bf16_full_h32x4_d64.so"
    assert open_config(config) == AttentionConfig(None, None, None, 32, 4, 64, dtype="bf16")
    assert len(needed(SHAPES)) == 12


def test_a_missing_library_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"x\.so"):
        load(tmp_path / "x.so")
