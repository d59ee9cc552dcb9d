"""Kinds of machine instructions, as the tables of the report count them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tirx_attn.runtime.sass import Instruction

EXP2, OTHER_MUFU, MMA, REST = "MUFU.EX2", "MUFU.other", "UTC*MMA", "rest"

_ARITHMETIC = ("FFMA2", "FFMA", "FMUL2", "FMUL", "FADD2", "FADD", "FMNMX3", "FMNMX", "F2FP", "IMAD", "FSETP")
_DATA_AND_BARRIERS = ("MOV", "UMOV", "LDTM", "STTM", "SHFL", "VOTE", "SYNCS", "BAR", "NOP")
_UNITS = ("HGMMA", "UTCBAR", "UTMALDG")
_GROUPS = {
    "FSEL/SEL": "FSEL SEL",
    "integer": "IADD IADD3 ISETP LEA LOP3 PLOP3 PRMT R2P SHF VIADD VIADDMNMX VIMNMX VIMNMX3",
    "R2UR/S2R": "R2UR S2R S2UR CS2R",
    "uniform": "ELECT LDCU VOTEU",
    "LDS/STS": "LDS STS",
    "LDL/STL": "LDL STL",
    "FENCE": "FENCE MEMBAR DEPBAR",
    "BRA": "BRA BRX BRXU JMP BSSY BSYNC CALL RET EXIT",
}
_BY_NAME = {
    **{name: name for name in _ARITHMETIC + _DATA_AND_BARRIERS + _UNITS},
    **{name: kind for kind, names in _GROUPS.items() for name in names.split()},
}

KINDS = (EXP2, OTHER_MUFU, *_ARITHMETIC, MMA, *_UNITS, *_DATA_AND_BARRIERS, *_GROUPS, REST)
"""All kinds, in the order of the tables."""

# ptxas spreads moves over the pipes: a multiply-add of zeros gives its last operand.
_ZERO_PRODUCT = re.compile(r"R\d+, -?RZ, RZ,")


def kind_of(instruction: Instruction) -> str:
    """Kind of one instruction.

    By name, but: MUFU is split by function; a multiply-add that only moves is a MOV; tcgen05 products are one kind
    whatever their type; what else starts with U is "uniform", and what is left "rest".
    """
    name = instruction.name
    if name == "MUFU":
        return EXP2 if "EX2" in instruction.opcode.split(".") else OTHER_MUFU
    if _is_move(instruction):
        return "MOV"
    if name.startswith("UTC") and name.endswith("MMA"):
        return MMA
    return _BY_NAME.get(name, "uniform" if name.startswith("U") else REST)


def count(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Kind -> number of instructions, in the order of `KINDS`; without the kinds that do not occur."""
    found = Counter(map(kind_of, instructions))
    return {kind: found[kind] for kind in KINDS if found[kind]}


def _is_move(instruction: Instruction) -> bool:
    if instruction.opcode.startswith("IMAD.MOV"):
        return True
    # IMAD.X, IMAD.WIDE and the like do more than to move.
    plain = instruction.opcode in ("IMAD", "IMAD.U32") or instruction.name == "HFMA2"
    return plain and _ZERO_PRODUCT.match(instruction.operands) is not None
