"""Layouts of a tensor [B, S, H, D] of 16-bit elements: which of them a kernel takes, and why not the others."""

from __future__ import annotations

from dataclasses import replace

from tests.runtime.launcher import Tensor, compact

Layout = tuple[Tensor, str | None]
"""A tensor, and the text after its name of the ValueError with which `check_layout` refuses it as an input."""


def layouts(heads: int, d: int, dtype: str = "float16") -> dict[str, Layout]:
    """Layouts of tensors with two or more heads of `d` elements."""
    row = heads * d
    plain = compact(2, 300, heads, d, dtype=dtype)

    def lies(batch: int, token: int, head: int, element: int = 1, **more: int) -> Tensor:
        return replace(plain, strides=(batch, token, head, element), **more)

    def sized(batches: int, tokens: int, *strides: int) -> Tensor:
        return replace(plain, shape=(batches, tokens, heads, d), strides=(*strides, d, 1))

    return {
        "compact": (plain, None),
        "side by side with two more": (lies(900 * row, 3 * row, d), None),
        "stored [B, H, S, D]": (lies(300 * row, d, 300 * d), None),
        "stored [S, B, H, D]": (lies(row, 2 * row, d), None),
        "every second token": (lies(600 * row, 2 * row, d), None),
        "rows 16 bytes longer": (lies(300 * heads * (d + 8), heads * (d + 8), d + 8), None),
        "rows 2 bytes longer": (
            lies(300 * heads * (d + 1), heads * (d + 1), d + 1),
            f".strides[2]={d + 1}, {2 * d + 2} bytes" + STRIDES,
        ),
        "rows 8 bytes longer": (
            lies(300 * heads * (d + 4), heads * (d + 4), d + 4),
            f".strides[2]={d + 4}, {2 * d + 8} bytes" + STRIDES,
        ),
        "batches 8 bytes further": (
            lies(300 * row + 4, row, d),
            f".strides[0]={300 * row + 4}, {600 * row + 8} bytes" + STRIDES,
        ),
        "elements in steps of 2": (lies(600 * row, 2 * row, 2 * d, 2), ".strides[3]=2" + CONTIGUOUS),
        "elements in steps of 0": (lies(300 * row, row, d, 0), ".strides[3]=0" + CONTIGUOUS),
        "stored [B, S, D, H]": (lies(300 * row, row, 1, heads), f".strides[3]={heads}" + CONTIGUOUS),
        "tokens in reverse": (lies(300 * row, -row, d), f".strides[1]={-row}, {-2 * row} bytes" + STRIDES),
        "batches just below 2^40 bytes apart": (lies(2**39 - 8, row, d), None),
        "batches 2^40 bytes apart": (lies(2**39, row, d), f".strides[0]={2**39}, {2**40} bytes" + STRIDES),
        "batches 2^63 bytes apart": (lies(2**62, row, d), f".strides[0]={2**62}, {2**63} bytes" + STRIDES),
        "one batch, stride 0": (sized(1, 300, 0, row), None),
        "one batch, stride 1": (sized(1, 300, 1, row), None),
        "one batch, stride -7": (sized(1, 300, -7, row), None),
        "one batch, stride 2^62": (sized(1, 300, 2**62, row), None),
        "one token, stride 0": (sized(2, 1, row, 0), None),
        "one token, stride 1": (sized(2, 1, row, 1), None),
        "one batch, one token": (sized(1, 1, 3, 5), None),
        "the same batch twice": (lies(0, row, d), None),
        "the same token each time": (lies(row, 0, d), None),
        "the same head each time": (lies(300 * d, d, 0), None),
        "at a multiple of 16 bytes": (lies(300 * row, row, d, address=2**40 + 16), None),
        "at a multiple of 8 bytes": (lies(300 * row, row, d, address=2**40 + 8), f" at address {2**40 + 8:#x}" + BASE),
        "16 bytes into its storage": (lies(300 * row, row, d, byte_offset=16), None),
        "2 bytes into its storage": (lies(300 * row, row, d, byte_offset=2), f" at address {2**40 + 2:#x}" + BASE),
        "16 bytes from two times 8": (lies(300 * row, row, d, address=2**40 + 8, byte_offset=8), None),
        "at no address": (lies(300 * row, row, d, address=0), " at address 0x0" + BASE),
    }


def one_head(d: int) -> dict[str, Layout]:
    """Layouts of tensors with a single head."""
    plain = compact(2, 300, 1, d)

    def head(stride: int) -> Tensor:
        return replace(plain, strides=(300 * d, d, stride, 1))

    return {f"one head, stride {stride}": (head(stride), None) for stride in (0, 1, -7, 2**62)}


STRIDES = f": allowed are multiples of 16 bytes, from 0 to below {2**40}"
CONTIGUOUS = ": allowed is 1, since the last dimension has to be contiguous"
BASE = ": allowed are positive multiples of 16 bytes"
