"""Kinds of instructions."""

from __future__ import annotations

import pytest

from tirx_attn.analysis import kinds
from tirx_attn.runtime.sass import Instruction


@pytest.mark.parametrize(
    ("opcode", "operands", "kind"),
    [
        ("MUFU.EX2", "R1, R2", "MUFU.EX2"),
        ("MUFU.RCP", "R1, R2", "MUFU.other"),
        ("FFMA2.FTZ.RZ", "R2, R4.F32x2.HI_LO, R6.F32, R8.F32x2.HI_LO", "FFMA2"),
        ("FFMA", "R2, R4, R6, R8", "FFMA"),
        ("FMNMX3", "R2, R4, R6, R8, !PT", "FMNMX3"),
        ("FMNMX.NAN", "R2, R4, R6, !PT", "FMNMX"),
        ("IMAD.MOV.U32", "R1, RZ, RZ, R2", "MOV"),
        ("IMAD", "R1, RZ, RZ, UR4", "MOV"),
        ("IMAD", "R1, R2, R3, R4", "IMAD"),
        ("IMAD.SHL.U32", "R1, R2, 0x800000, RZ", "IMAD"),
        ("IMAD.X", "R1, RZ, RZ, R3, P0", "IMAD"),
        ("HFMA2", "R1, -RZ, RZ, 1.875, 0", "MOV"),
        ("HFMA2", "R1, R2, R3, R4", "rest"),
        ("UTCHMMA", "gdesc[UR8], gdesc[UR10], tmem[UR4], tmem[UR6], idesc[UR7], !UPT", "UTC*MMA"),
        ("UTCQMMA.2CTA", "gdesc[UR8], gdesc[UR10], tmem[UR4], tmem[UR6], idesc[UR7], !UPT", "UTC*MMA"),
        ("UTCBAR", "[UR4], URZ", "UTCBAR"),
        ("UTMALDG.4D", "[UR8], [UR4]", "UTMALDG"),
        ("UTMASTG.4D", "[UR8], [UR4]", "uniform"),
        ("UIADD3", "UR4, UPT, UPT, UR4, 0x1, URZ", "uniform"),
        ("HGMMA.64x128x16.F32", "R24, gdesc[UR4], R24", "HGMMA"),
        ("STL.64", "[R1], R2", "LDL/STL"),
        ("EXIT", "", "BRA"),
        ("WARPSYNC.ALL", "", "rest"),
    ],
)
def test_kind(opcode, operands, kind):
    assert kinds.kind_of(Instruction(0, opcode, operands)) == kind


def test_counting_keeps_the_order_of_the_tables():
    code = [Instruction(0, name, "") for name in ("WARPSYNC", "BRA", "FADD2", "MUFU.EX2", "FADD2")]
    assert list(kinds.count(code).items()) == [("MUFU.EX2", 1), ("FADD2", 2), ("BRA", 1), ("rest", 1)]
    assert len(set(kinds.KINDS)) == len(kinds.KINDS)
