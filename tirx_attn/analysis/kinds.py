"""Kinds of machine instructions, as the tables of the report count them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tirx_attn.runtime.sass import Instruction

_BY_NAME = {
    name: kind
    for kind, names in {
        "FFMA2": "FFMA2",
        "FFMA": "FFMA",
        "FMUL2": "FMUL2",
        "FMUL": "FMUL",
        "FADD2": "FADD2",
        "FADD": "FADD",
        "FMNMX3": "FMNMX3",
        "FMNMX": "FMNMX",
        "F2FP": "F2FP",
        "LDTM": "LDTM",
        "STTM": "STTM",
        "HGMMA": "HGMMA",
        "SHFL": "SHFL",
        "BAR": "BAR",
        "SYNCS": "SYNCS",
        "BRA": "BRA BRX BRXU JMP BSSY BSYNC CALL RET EXIT",
        "R2UR/S2R": "R2UR S2R S2UR CS2R",
        "MOV": "MOV",
        "UMOV": "UMOV",
        "IMAD": "IMAD",
        "FSEL/SEL": "FSEL SEL",
        "FSETP": "FSETP",
        "integer": "IADD IADD3 ISETP LEA LOP3 PLOP3 PRMT R2P SHF VIADD VIADDMNMX VIMNMX VIMNMX3",
        "LDS/STS": "LDS STS",
        "LDL/STL": "LDL STL",
        "UTCBAR": "UTCBAR",
        "UTMALDG": "UTMALDG",
        "uniform": "ELECT LDCU VOTEU",
        "FENCE": "FENCE MEMBAR DEPBAR",
        "VOTE": "VOTE",
        "NOP": "NOP",
    }.items()
    for name in names.split()
}

EXP2, OTHER_MUFU, MMA, REST = "MUFU.EX2", "MUFU.other", "UTC*MMA", "rest"

KINDS = (EXP2, OTHER_MUFU, *dict.fromkeys(_BY_NAME.values()), MMA, REST)
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
