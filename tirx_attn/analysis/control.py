"""What the assembler wrote beside each instruction: how long to wait before the next, and for what."""

from __future__ import annotations

from dataclasses import dataclass

ENCODING_BYTES = 16
"""Size of one instruction, from Volta to Blackwell."""

NO_SCOREBOARD = 7

# The control bits start here, each field right above the one before.
_FIRST_BIT = 105
_STALL, _YIELD, _SCOREBOARD, _WAITS = 4, 1, 3, 6


@dataclass(frozen=True)
class Control:
    """Control field of one encoded instruction; the same on sm_90a and sm_100a.

    Attributes:
        stall: cycles before the warp may issue its next instruction.
        yield_bit: the scheduler's hint about other warps, as it is encoded.
        write_scoreboard: which of the six scoreboards is released when the result is there; None for none.
        read_scoreboard: the one that is released when the operands have been read; None for none.
        waits: scoreboards that have to be free before it issues.
    """

    stall: int
    yield_bit: int
    write_scoreboard: int | None
    read_scoreboard: int | None
    waits: tuple[int, ...]


def decode(encoding: bytes) -> Control:
    """Control field of the 16 bytes of an instruction, as they stand in the cubin.

    Raises:
        ValueError: there are not 16 bytes.
    """
    if len(encoding) != ENCODING_BYTES:
        raise ValueError(f"encoding has {len(encoding)} bytes: allowed are {ENCODING_BYTES}")
    rest = int.from_bytes(encoding, "little") >> _FIRST_BIT
    fields = []
    for width in (_STALL, _YIELD, _SCOREBOARD, _SCOREBOARD, _WAITS):
        fields.append(rest % 2**width)
        rest //= 2**width
    stall, hint, write, read, waits = fields
    return Control(
        stall=stall,
        yield_bit=hint,
        write_scoreboard=None if write == NO_SCOREBOARD else write,
        read_scoreboard=None if read == NO_SCOREBOARD else read,
        waits=tuple(number for number in range(_WAITS) if waits & 1 << number),
    )
