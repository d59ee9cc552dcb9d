"""Control fields of encoded instructions."""

from __future__ import annotations

import pytest

from tests.analysis.programs import encoding
from tirx_attn.analysis.control import Control, decode


def test_every_field_at_its_place():
    decoded = decode(encoding(stall=13, yield_bit=1, write=2, read=5, waits=0b100101))
    assert decoded == Control(stall=13, yield_bit=1, write_scoreboard=2, read_scoreboard=5, waits=(0, 2, 5))


@pytest.mark.parametrize(
    ("bit", "expected"),
    [
        (104, Control(0, 0, 0, 0, ())),
        (105, Control(1, 0, 0, 0, ())),
        (108, Control(8, 0, 0, 0, ())),
        (109, Control(0, 1, 0, 0, ())),
        (110, Control(0, 0, 1, 0, ())),
        (113, Control(0, 0, 0, 1, ())),
        (116, Control(0, 0, 0, 0, (0,))),
        (121, Control(0, 0, 0, 0, (5,))),
        (122, Control(0, 0, 0, 0, ())),
    ],
)
def test_no_bit_belongs_to_two_fields(bit, expected):
    assert decode((1 << bit).to_bytes(16, "little")) == expected


def test_scoreboard_7_is_none():
    decoded = decode(encoding(stall=1))
    assert (decoded.write_scoreboard, decoded.read_scoreboard) == (None, None)


@pytest.mark.parametrize("size", [0, 8, 15, 17])
def test_other_sizes_are_refused(size):
    with pytest.raises(ValueError, match=f"encoding has {size} bytes: allowed are 16"):
        decode(bytes(size))
