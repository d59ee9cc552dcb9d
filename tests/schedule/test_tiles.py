"""TaskTiles against counts over the mask itself, as Python ints and as TIR expressions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import CASES, MASK_LENGTHS
from tests.schedule.tir import evaluate
from tirx_attn import AttentionConfig
from tirx_attn.schedule.tiles import TILES_PER_TASK, TaskTiles

RATIOS = (1, 2, 4, 8, 16, 32, 64, 128)


def causal(sq: int, skv: int, ratio: int) -> TaskTiles:
    return TaskTiles(AttentionConfig(1, sq, skv, ratio, 1, 128, True))


def padded_mask(tiles: TaskTiles) -> np.ndarray:
    """visible[token, key] of the causal rule, with token rows up to the last tile's end and keys up to a block's."""
    config = tiles.config
    tokens = np.arange(tiles.m_blocks * TILES_PER_TASK * tiles.tokens_per_tile)[:, None]
    keys = np.arange(-(-max(config.Skv, tokens.size + config.Skv) // 128) * 128)[None, :]
    return keys <= tokens + config.Skv - config.Sq


def leading(flags: np.ndarray) -> int:
    """How many of `flags` are set before the first that is not."""
    return int(flags.size if flags.all() else flags.argmin())


@pytest.mark.parametrize("skv", MASK_LENGTHS)
@pytest.mark.parametrize("sq", MASK_LENGTHS)
def test_causal_ranges_are_those_of_the_mask(sq, skv):
    for ratio in RATIOS:
        check_causal_ranges(causal(sq, skv, ratio))


def check_causal_ranges(tiles: TaskTiles) -> None:
    sq, skv = tiles.config.Sq, tiles.config.Skv
    mask = padded_mask(tiles)
    blocks = mask.reshape(mask.shape[0], -1, 128)
    assert tiles.m_blocks == -(-sq * tiles.config.ratio // 256)
    for m_block in range(tiles.m_blocks):
        task = slice(tiles.first_token(m_block, 0), min(tiles.first_token(m_block + 1, 0), sq))
        assert task.start < task.stop, "a task without rows"
        key_blocks = tiles.key_blocks(m_block)
        assert key_blocks == leading(blocks[task].any(axis=(0, 2)))
        assert key_blocks * 128 < skv + 128  # no block lies wholly behind the last key
        for stage in range(TILES_PER_TASK):
            first = tiles.first_token(m_block, stage)
            tile = blocks[first : first + tiles.tokens_per_tile]
            unmasked = tiles.unmasked_blocks(m_block, stage)
            assert unmasked == min(leading(tile.all(axis=(0, 2))), key_blocks)
            if first < sq:
                assert unmasked * 128 <= skv  # an unmasked block has no key beyond the last one


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("skv", [length for length in MASK_LENGTHS if length % 128 == 0])
@pytest.mark.parametrize("sq", MASK_LENGTHS)
def test_without_a_mask_every_task_walks_every_block(sq, skv, ratio):
    tiles = TaskTiles(AttentionConfig(1, sq, skv, ratio, 1, 128))
    for m_block in range(tiles.m_blocks):
        assert tiles.key_blocks(m_block) == skv // 128
        assert [tiles.unmasked_blocks(m_block, stage) for stage in (0, 1)] == [skv // 128] * 2


@pytest.mark.parametrize("ratio", [1, 4, 128])
@pytest.mark.parametrize(("sq", "skv"), [(1, 1), (129, 257), (257, 129), (384, 128), (128, 384)])
def test_visible_columns_are_those_of_the_mask(sq, skv, ratio):
    tiles = causal(sq, skv, ratio)
    mask = padded_mask(tiles)
    rows = np.arange(128)
    for m_block in range(tiles.m_blocks):
        for stage in range(TILES_PER_TASK):
            tokens = tiles.first_token(m_block, stage) + rows // ratio
            for block in range(tiles.key_blocks(m_block)):
                limits = [tiles.visible_columns(m_block, stage, row, block) for row in range(128)]
                counted = mask[tokens, 128 * block : 128 * (block + 1)].sum(axis=1)
                assert np.clip(limits, 0, 128).tolist() == counted.tolist()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    sq=st.integers(1, 3000),
    skv=st.integers(1, 3000),
    ratio=st.sampled_from(RATIOS),
    data=st.data(),
)
def test_every_visible_pair_is_walked_once_and_unmasked_blocks_hide_nothing(sq, skv, ratio, data):
    tiles = causal(sq, skv, ratio)
    token = data.draw(st.integers(0, sq - 1))
    row = token * ratio + data.draw(st.integers(0, ratio - 1))
    m_block, stage, row = row // 256, row % 256 // 128, row % 128
    seen = 0
    for block in range(tiles.key_blocks(m_block)):
        limit = tiles.visible_columns(m_block, stage, row, block)
        if block < tiles.unmasked_blocks(m_block, stage):
            assert limit >= 128
        seen += min(max(limit, 0), 128)
    assert seen == max(0, token + 1 + skv - sq)


@pytest.mark.parametrize("ratio", RATIOS)
def test_packed_rows_are_token_major(ratio):
    """Row r: token r // ratio of the tile, query head r % ratio of the group; every (token, head) has one row."""
    tiles = causal(300, 300, ratio)
    assert tiles.tokens_per_tile * ratio == 128
    places = [(tiles.row_token(row), row % ratio) for row in range(128)]
    assert places == [(token, head) for token in range(128 // ratio) for head in range(ratio)]


@pytest.mark.parametrize("ratio", [1, 8])
def test_tiles_of_a_sequence_follow_each_other(ratio):
    tiles = causal(1000, 1000, ratio)
    starts = [tiles.first_token(m_block, stage) for m_block in range(tiles.m_blocks) for stage in (0, 1)]
    assert starts == list(range(0, len(starts) * (128 // ratio), 128 // ratio))
    assert starts[-2] < 1000 <= starts[-1] + 128 // ratio


@pytest.mark.parametrize(
    "tiles",
    [
        *[pytest.param(causal(sq, skv, ratio), id=f"{sq}-{skv}-{ratio}")
          for sq in MASK_LENGTHS for skv in MASK_LENGTHS for ratio in (1, 8)],
        *[pytest.param(TaskTiles(case.config), id=case.name) for case in CASES],
    ],
)  # fmt: skip
def test_tir_expressions_have_the_values_of_the_ints(tiles):
    from tvm import tirx

    m_block, stage, row, block = (tirx.Var(name, "int32") for name in ("m_block", "stage", "row", "block"))
    key_blocks = tiles.key_blocks(m_block)
    unmasked = tiles.unmasked_blocks(m_block, stage)
    visible = tiles.visible_columns(m_block, stage, row, block)
    first = tiles.first_token(m_block, stage)
    for m in range(tiles.m_blocks):
        assert evaluate(key_blocks, m_block=m) == tiles.key_blocks(m)
        for s in range(TILES_PER_TASK):
            assert evaluate(unmasked, m_block=m, stage=s) == tiles.unmasked_blocks(m, s)
            assert evaluate(first, m_block=m, stage=s) == tiles.first_token(m, s)
            for r, b in ((0, 0), (127, 0), (64, max(tiles.key_blocks(m) - 1, 0))):
                expected = tiles.visible_columns(m, s, r, b)
                assert evaluate(visible, m_block=m, stage=s, row=r, block=b) == expected
