"""Where instructions lead."""

from __future__ import annotations

import pytest

from tests.analysis.programs import assemble, disassembly, encoding
from tirx_attn.analysis.listing import listing
from tirx_attn.runtime import CompileError, sass

JUMPS = """
.L_x_0:
    @P0 BRA `(.L_x_1)
    BRA.U !UP0, `(.L_x_1)
    BRA.DIV UR4, `(.L_x_2)
    BRA `(.L_x_2)
.L_x_1:
.L_x_2:
    BRX R2 -0x60 (*"BRANCH_TARGETS .L_x_0,.L_x_1"*)
    CALL.REL.NOINC `($trap)
    @!P1 EXIT
    EXIT
    RET.REL.NODEC R2 `(k)
"""


def test_targets_and_what_follows():
    facts = [(line.targets, line.falls_through) for line in assemble(JUMPS)]
    assert facts == [
        ((64,), True),
        ((64,), True),
        ((64,), True),
        ((64,), False),
        ((0, 64), False),
        ((), True),
        ((), True),
        ((), False),
        ((), False),
    ]


def test_guards_and_labels():
    text, _ = disassembly(JUMPS)
    assert [each.guard for each in sass.instructions(text, "k")] == ["P0", "", "", "", "", "", "!P1", "", ""]
    assert sass.labels(text, "k") == {".L_x_0": 0, ".L_x_1": 64, ".L_x_2": 64}
    assert sass.labels(text, "another") == {}


def test_padding_is_left_out():
    code = "NOP\n EXIT\n .L_x_1:\n BRA `(.L_x_1)\n NOP\n NOP"
    assert [line.name for line in assemble(code)] == ["NOP", "EXIT"]


@pytest.mark.parametrize("size", [0, 1, 3])
def test_text_and_code_have_to_agree(size):
    text, _ = disassembly("NOP\n EXIT")
    with pytest.raises(CompileError, match=f"k: 2 instructions in the disassembly, {16 * size} bytes of code"):
        listing(text, "k", encoding() * size)
