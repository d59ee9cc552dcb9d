"""TaskTiles against counts over the mask itself, as Python ints and as TIR expressions."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cases import MASK_LENGTHS
from tests.schedule.tir import evaluate, simplify
from tirx_attn import AttentionConfig
from tirx_attn.config import MAX_SIZE
from tirx_attn.schedule.tiles import TILES_PER_TASK, TaskTiles

RATIOS = (1, 2, 3, 8, 12, 64, 65, 127, 128)
MASKS = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
LENGTHS = st.one_of(
    st.integers(1, 700), st.sampled_from([n + d for n in (128, 256, 384, 512, 640) for d in (-1, 0, 1)])
)
PROBLEMS = {"sq": LENGTHS, "skv": LENGTHS, "ratio": st.one_of(st.sampled_from(RATIOS), st.integers(1, 128))}


def problem(sq: int | None, skv: int | None, ratio: int, causal: bool) -> AttentionConfig:
    return AttentionConfig(1, sq, skv, ratio, 1, 128, causal)


def visible_keys(sq: int, skv: int, causal: bool) -> np.ndarray:
    """count[token, block]: keys of the block that exist and that the token sees, by the definition of the mask."""
    tokens, keys = np.arange(sq)[:, None], np.arange(-(-skv // 128) * 128)[None, :]
    visible = np.broadcast_to(keys < skv, (sq, keys.size))
    if causal:
        visible = visible & (keys <= tokens + skv - sq)
    return visible.reshape(sq, -1, 128).sum(axis=2)


def tokens_of_tiles(sq: int, ratio: int) -> list[np.ndarray]:
    """The token of each of a tile's 128 rows, -1 where the row holds none; tiles are filled token by token."""
    whole = 128 // ratio
    tiles = []
    for first in range(0, -(-sq // (2 * whole)) * 2 * whole, whole):
        tokens = first + np.arange(whole).repeat(ratio)
        tiles.append(np.concatenate([np.where(tokens < sq, tokens, -1), np.full(128 - tokens.size, -1)]))
    return tiles


def leading(flags: np.ndarray) -> int:
    """How many of `flags` are set before the first that is not."""
    return int(flags.size if flags.all() else flags.argmin())


def check_ranges(sq: int, skv: int, ratio: int, causal: bool) -> None:
    tiles = TaskTiles(problem(sq, skv, ratio, causal))
    count, placed = visible_keys(sq, skv, causal), tokens_of_tiles(sq, ratio)
    assert tiles.m_blocks * TILES_PER_TASK == len(placed)
    needs_mask = False
    for m_block in range(tiles.m_blocks):
        pair = placed[2 * m_block : 2 * m_block + 2]
        tokens = [np.unique(tile[tile >= 0]) for tile in pair]
        assert tokens[0].size, "a task without rows"
        key_blocks = tiles.key_blocks(m_block)
        seen = count[np.concatenate(tokens)].any(axis=0)
        assert key_blocks == (np.flatnonzero(seen)[-1] + 1 if seen.any() else 0)
        for stage in range(TILES_PER_TASK):
            unmasked = tiles.unmasked_blocks(m_block, stage)
            assert 0 <= unmasked <= key_blocks
            if tokens[stage].size:  # a tile without rows may do as it likes
                whole = (count[tokens[stage]] == 128).all(axis=0)
                assert unmasked == leading(whole)
                needs_mask |= unmasked < key_blocks
    assert tiles.may_mask or not needs_mask


@MASKS
@pytest.mark.parametrize("skv", MASK_LENGTHS)
def test_key_ranges_at_the_edges_of_tiles(skv, causal):
    for sq in MASK_LENGTHS:
        for ratio in RATIOS:
            check_ranges(sq, skv, ratio, causal)


@MASKS
@settings(max_examples=100, deadline=None, derandomize=True)
@given(**PROBLEMS)
def test_key_ranges_are_those_of_the_mask(causal, sq, skv, ratio):
    """The blocks up to the last that a row of the task sees; of them unmasked, those that each row sees whole."""
    check_ranges(sq, skv, ratio, causal)


@MASKS
@settings(max_examples=100, deadline=None, derandomize=True)
@given(**PROBLEMS)
@example(sq=1, skv=1, ratio=1)
@example(sq=300, skv=100, ratio=3)
def test_visible_columns_are_those_of_the_mask(causal, sq, skv, ratio):
    tiles = TaskTiles(problem(sq, skv, ratio, causal))
    count = visible_keys(sq, skv, causal)
    for i, tokens in enumerate(tokens_of_tiles(sq, ratio)):
        m_block, stage = divmod(i, TILES_PER_TASK)
        rows = np.flatnonzero(tokens >= 0)
        blocks = np.arange(tiles.key_blocks(m_block))
        limits = tiles.visible_columns(m_block, stage, rows[:, None], blocks[None, :])
        assert (np.clip(limits, 0, 128) == count[tokens[rows], : blocks.size]).all()
        assert not count[tokens[rows], blocks.size :].any()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(sq=LENGTHS, ratio=st.integers(1, 128))
@example(sq=1, ratio=128)
@example(sq=700, ratio=128)
def test_every_query_has_one_row(sq, ratio):
    """(token, head) to (m_block, stage, row) and back: token-major, rows at the end of a tile left out."""
    tiles = TaskTiles(problem(sq, 1, ratio, True))
    found = []
    for m_block in range(tiles.m_blocks):
        for stage in range(TILES_PER_TASK):
            first = tiles.first_token(m_block, stage)
            found += [(first + tiles.row_token(row), row % ratio) for row in range(tiles.used_rows)]
    queries = [(token, head) for token in range(sq) for head in range(ratio)]
    assert found[: len(queries)] == queries
    assert all(token >= sq for token, _ in found[len(queries) :])
    assert tiles.used_rows == 128 // ratio * ratio


def test_rows_of_a_tile_of_ratio_3():
    tiles = TaskTiles(problem(300, 300, 3, True))
    assert (tiles.tokens_per_tile, tiles.used_rows, tiles.m_blocks) == (42, 126, 4)  # 300 tokens in tasks of 84
    assert [tiles.row_token(row) for row in (0, 2, 3, 125)] == [0, 0, 1, 41]
    assert [tiles.first_token(3, stage) for stage in (0, 1)] == [252, 294]


@pytest.mark.parametrize(
    ("skv", "causal", "may_mask"),
    [(256, False, False), (255, False, True), (1, False, True), (None, False, True), (256, True, True)],
)
def test_only_whole_tiles_without_a_mask_need_none(skv, causal, may_mask):
    assert TaskTiles(problem(256, skv, 1, causal)).may_mask is may_mask


VARIABLES = ("m_block", "stage", "row", "block")


@cache
def expressions(ratio: int, causal: bool, sq: int | None = None, skv: int | None = None) -> tuple[dict[str, Any], ...]:
    """Each quantity of the tiles as a function of variables; as built, and as a pass may rewrite it."""
    from tvm import tirx

    m_block, stage, row, block, *lengths = (tirx.Var(name, "int32") for name in (*VARIABLES, "sq", "skv"))
    # The kernel hands lengths that are known as ints.
    given = [var if size is None else size for var, size in zip(lengths, (sq, skv), strict=True)]
    tiles = TaskTiles(problem(sq, skv, ratio, causal), *given)
    built = quantities(tiles, m_block, stage, row, block)
    return built, {name: simplify(value) for name, value in built.items()}


def quantities(tiles: TaskTiles, m_block: Any, stage: Any, row: Any, block: Any) -> dict[str, Any]:
    return {
        "m_blocks": tiles.m_blocks,
        "first_token": tiles.first_token(m_block, stage),
        "row_token": tiles.row_token(row),
        "key_blocks": tiles.key_blocks(m_block),
        "unmasked_blocks": tiles.unmasked_blocks(m_block, stage),
        "visible_columns": tiles.visible_columns(m_block, stage, row, block),
    }


def check_expressions(config: AttentionConfig, known: tuple[int | None, int | None], m_block, stage, row, block):
    """Expressions of the lengths that are not `known` against ints; no part of one wraps in 32 bits."""
    expected = quantities(TaskTiles(config), m_block, stage, row, block)
    values = {"m_block": m_block, "stage": stage, "row": row, "block": block, "sq": config.Sq, "skv": config.Skv}
    for form in expressions(config.ratio, config.is_causal, *known):
        assert {name: evaluate(value, **values) for name, value in form.items()} == expected


@MASKS
@settings(max_examples=150, deadline=None, derandomize=True)
@given(**PROBLEMS, data=st.data())
def test_expressions_have_the_values_of_the_ints(causal, sq, skv, ratio, data):
    """Whichever lengths are left to run time."""
    config = problem(sq, skv, ratio, causal)
    m_block = data.draw(st.integers(0, TaskTiles(config).m_blocks - 1))
    block = data.draw(st.integers(0, max(TaskTiles(config).key_blocks(m_block) - 1, 0)))
    stage, row = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 127))
    known = data.draw(st.sampled_from([(None, None), (sq, None), (None, skv), (sq, skv)]))
    check_expressions(config, known, m_block, stage, row, block)


@MASKS
@pytest.mark.parametrize("ratio", [1, 3, 65, 128])
@pytest.mark.parametrize("skv", [1, MAX_SIZE - 127, MAX_SIZE])
@pytest.mark.parametrize("sq", [1, MAX_SIZE - 127, MAX_SIZE])
def test_the_largest_sizes_fit_in_32_bits(sq, skv, ratio, causal):
    config = problem(sq, skv, ratio, causal)
    tiles = TaskTiles(config)
    for m_block in (0, tiles.m_blocks - 1):
        for block in (0, max(tiles.key_blocks(m_block) - 1, 0)):
            for stage, row in ((0, 0), (1, 127)):
                check_expressions(config, (None, None), m_block, stage, row, block)


def test_a_wrap_would_be_seen():
    """Passes add Sq and Skv before they subtract Sq: lengths of 2**30 both, and the sum is 2**31."""
    _, rewritten = expressions(1, True)
    values = dict.fromkeys(VARIABLES, 0) | {"m_block": 2**22 - 1, "sq": 2**30, "skv": 2**30}
    with pytest.raises(OverflowError, match="is 2147483648"):
        evaluate(rewritten["key_blocks"], **values)
