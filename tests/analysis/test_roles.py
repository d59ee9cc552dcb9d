"""Roles of loops, told by what they hold."""

from __future__ import annotations

from tests.analysis.programs import assemble
from tirx_attn.analysis.loop import measure
from tirx_attn.analysis.roles import role_bodies

BLOCK = "MUFU.EX2 R0, R0\n" * 129 + "F2FP.F16.F32.PACK_AB R0, R0, R1\n" * 64


def loop(name: str, body: str) -> str:
    return f"{name}:\n{body}\n@P0 BRA `({name})\n"


def roles(program: str):
    return [(body.role, len(body.lines)) for body in role_bodies(assemble(program))]


def test_each_role_by_its_instructions():
    program = (
        loop("a", BLOCK)
        + loop("b", "UTCHMMA gdesc[UR4], tmem[UR4]")
        + loop("c", "UTMALDG.4D [UR8], [UR4]")
        + loop("d", "LDTM.x16 R0, tmem[UR4]\n STTM.x16 tmem[UR4], R0")
        + loop("e", "LDTM.x16 R0, tmem[UR4]")
        + "EXIT"
    )
    assert roles(program) == [("softmax", 194), ("mma", 2), ("load", 2), ("correction", 3), ("other", 2)]


def test_with_wgmma_it_is_the_consumer():
    assert roles(loop("a", BLOCK + "HGMMA.64x128x16.F32 R24, gdesc[UR4], R24") + "EXIT") == [("consumer", 195)]


def test_retries_of_waits_are_no_loops_and_do_not_count():
    wait = """
        SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4], R1
        @!P1 BRA `(retry)
    back:
        @P0 BRA `(a)
        EXIT
    retry:
        SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4], R1
        @!P1 BRA `(retry)
        BRA `(back)
    """
    (body,) = role_bodies(assemble("a:\n" + "UTMALDG.4D [UR8], [UR4]\n" * 14 + wait))
    assert (body.role, len(body.lines), body.out_of_line) == ("load", 17, 3)
    assert (body.start, body.end) == (0, 16 * 16)


def test_the_dearer_of_two_is_masked():
    assert roles(loop("a", BLOCK + "FSEL R0, R0, R1, P0\n" * 128) + loop("b", BLOCK) + "EXIT") == [
        ("masked", 322),
        ("softmax", 194),
    ]


def test_the_masked_block_around_the_steady_loop():
    program = loop("task", "@P2 BRA `(idle)\n" + BLOCK + loop("steady", BLOCK) + "idle:\n NOP") + "EXIT"
    masked, steady = role_bodies(assemble(program))
    assert (masked.role, steady.role) == ("masked", "softmax")
    # 193 of the block, the branch before it, two instructions behind the loop
    assert (len(masked.lines), len(masked.always)) == (196, 3)
    assert masked.surrounds == (steady.start, steady.end)
    assert (masked.start, masked.end) == (0, 16 * (196 + 194 - 1))
    figures = measure(masked, head_size=128, elements_per_tile=128)
    assert (figures.tiles, figures.elements, figures.rescales) == (1, 128, 1)


def test_a_block_outside_of_all_loops_has_no_entry():
    assert roles(BLOCK + loop("steady", BLOCK) + "EXIT") == [("softmax", 194)]


def test_the_smallest_nest_counts():
    nest = loop("block", BLOCK + loop("steady", BLOCK))
    program = loop("task", "NOP\n" * 10 + nest) + "EXIT"
    assert roles(program) == [("masked", 194), ("softmax", 194)]


def test_phases_and_arrivals():
    program = loop(
        "a",
        "SYNCS.ARRIVE.TRANS64 RZ, [R1]\n NOP\n"
        + BLOCK
        + "STTM.x32 tmem[UR4], R0\n SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R1]\n FADD2.RM R0, R0, R2\n FADD.RM R0, R0, R2",
    )
    (body,) = role_bodies(assemble(program + "EXIT", stall=2))
    figures = measure(body, head_size=128, elements_per_tile=128)
    # Arrivals before the first store of P hand over something else.
    assert figures.p_arrivals == (2 * (2 + 193 + 1),)
    assert figures.phases == (2 * 2, 2 * 128, 2 * (1 + 64 + 4 + 1))
    assert sum(figures.phases) == figures.stalls == 2 * figures.instructions
    assert (figures.emulated, figures.rescales, figures.sttm_columns) == (3, 4, 32)
