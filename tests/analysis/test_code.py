"""The report: a recorded cubin against another reader's figures; today's kernels against what is true of all."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.analysis import recorded
from tirx_attn import AttentionConfig
from tirx_attn.analysis import CodeReport, code_report
from tirx_attn.runtime import Build, CompileError, Cubin, build

ROLES = ("softmax", "correction", "mma", "load")


def test_the_kernel_as_another_reader_sees_it():
    report, expected = recorded.report(), recorded.figures()
    resources = report.resources
    assert report.kernel == expected["kernel"]
    assert report.arch == "sm_100a"
    assert report.instructions == expected["instructions"]
    assert report.kinds == expected["counts"]
    assert resources.registers == expected["registers"]
    assert list(resources.register_requests) == expected["setmaxnreg"]
    assert resources.spill_instructions == expected["stl"] + expected["ldl"]
    assert resources.barriers == expected["barriers"]
    assert resources.code_bytes == expected["code_bytes"]
    assert resources.assembler_version == expected["ptxas"]


def test_every_loop_as_another_reader_sees_it():
    loops = [loop for loop in recorded.report().loops if loop.surrounds is None]
    for loop, expected in zip(loops, recorded.figures()["loops"], strict=True):
        assert loop.role == expected["role"]
        assert (loop.start, loop.end) == (int(expected["start"], 16), int(expected["end"], 16))
        assert (loop.instructions, loop.stalls) == (expected["instructions"], expected["stall_sum"])
        assert loop.always_instructions == expected["always_instructions"]
        assert loop.always_stalls == expected["always_stall"]
        assert loop.kinds == expected["counts"]
        assert loop.tiles == expected["tiles"]
        assert (loop.ldtm_columns, loop.sttm_columns) == (expected["ldtm_columns"], expected["sttm_columns"])
        assert loop.out_of_line == expected["cold"]
        assert loop.emulated == expected.get("emulated", 0)
        assert loop.elements == expected.get("elements", 0)
        assert loop.rescales == expected.get("rescale_exp2", 0)
        assert list(loop.p_arrivals) == expected.get("p_arrivals", [])
        assert list(loop.phases) == expected.get("phases", [loop.stalls, 0, 0])
        if loop.always_instructions == loop.instructions:
            assert (loop.always_p_arrivals, loop.always_phases) == (loop.p_arrivals, loop.phases)


def test_the_same_loops_are_shown():
    shown = {loop["role"]: int(loop["start"], 16) for loop in recorded.figures()["loops"] if loop.get("shown")}
    assert tuple(sorted(shown)) == tuple(sorted(ROLES))
    assert {role: recorded.report().role(role).start for role in ROLES} == shown


def test_the_masked_block_is_around_the_steady_loop():
    report = recorded.report()
    masked, steady = report.role("masked"), report.role("softmax")
    assert masked.surrounds == (steady.start, steady.end)
    assert masked.start < steady.start
    assert steady.end < masked.end
    assert (masked.tiles, masked.emulated, masked.kinds["MUFU.EX2"]) == (1, 0, 129)
    assert masked.kinds["FSEL/SEL"] >= 128  # the mask selects every score
    assert masked.always_instructions < masked.instructions  # the recorded kernel's path of a large maximum


def test_json():
    report = recorded.report()
    document = json.loads(json.dumps(report.to_dict()))
    assert document["loops"][document["roles"]["softmax"]]["p_arrivals"] == list(report.role("softmax").p_arrivals)
    assert document["resources"]["registers"] == report.resources.registers
    assert report.role("consumer") is None


def test_how_long_the_mufu_is_busy():
    """A partition makes 4 of an SM's 16 results a cycle, so a warp's 32 take 8 cycles; half of it at twice the rate."""
    report, loop = recorded.report(), recorded.report().role("softmax")
    assert report.mufu_share(loop) == pytest.approx(8 * loop.mufu / loop.stalls)
    faster = Cubin("sm_103a", recorded.image(), "", "", "", 0.0)
    assert code_report(faster).mufu_share(loop) == pytest.approx(4 * loop.mufu / loop.stalls)
    assert code_report(Cubin("sm_80", recorded.image(), "", "", "", 0.0)).mufu_share(loop) is None


def test_refusals():
    cubin = Cubin.of_image(recorded.image())
    with pytest.raises(ValueError, match="head_size=96: allowed values are 64, 128"):
        code_report(cubin, head_size=96)
    with pytest.raises(ValueError, match="kernel='k': allowed values are flash_attention4_kernel"):
        code_report(cubin, "k")
    with pytest.raises(ValueError, match="name='epilogue': allowed values are softmax, consumer, masked"):
        recorded.report().role("epilogue")
    with pytest.raises(CompileError, match="not a 64-bit ELF file"):
        Cubin.of_image(b"no cubin")
    with pytest.raises(CompileError, match="not a readable ELF file"):
        Cubin.of_image(recorded.image()[: len(recorded.image()) // 2])
    host = bytearray(recorded.image())
    host[0x12:0x14] = (62).to_bytes(2, "little")  # x86-64
    with pytest.raises(CompileError, match="not for an NVIDIA GPU"):
        Cubin.of_image(bytes(host))


@cache
def built(arch: str, is_causal: bool, head_size: int = 128) -> tuple[Build, CodeReport]:
    made = build(AttentionConfig(1, 2048, 2048, 4, 2, head_size, is_causal), arch=arch)
    return made, code_report(made.cubin, head_size=head_size)


def check_sums(report: CodeReport) -> None:
    for loop in report.loops:
        assert sum(loop.kinds.values()) == loop.instructions
        assert (sum(loop.phases), sum(loop.always_phases)) == (loop.stalls, loop.always_stalls)
        assert 0 < loop.always_instructions <= loop.instructions
        assert 0 < loop.always_stalls <= loop.stalls
        assert "LDL/STL" not in loop.kinds
    assert sum(report.kinds.values()) == report.instructions <= report.resources.instructions


@pytest.mark.slow
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_size", [64, 128])
def test_facts_of_the_blackwell_kernel(is_causal, head_size):
    made, report = built("sm_100a", is_causal, head_size)
    check_sums(report)
    softmax, masked = report.role("softmax"), report.role("masked")
    # One row of 128 keys a tile. No reference moves in the steady loop; elsewhere acc_scale is one exponential more.
    # Of a block that the steady loop gave up, the careful code loads the first half of S again.
    assert (softmax.ldtm_columns, masked.ldtm_columns) == (128, 128 + 64)
    for loop, rescales in ((softmax, 0), (masked, 1)):
        assert loop.tiles == 1
        assert loop.kinds["MUFU.EX2"] + loop.emulated == 128 + rescales
        assert loop.rescales == rescales
        assert loop.sttm_columns == 64
        assert len(loop.p_arrivals) == len(made.plan.schedule.pv_split)
        assert list(loop.p_arrivals) == sorted(loop.p_arrivals)
        assert len(loop.always_p_arrivals) == len(loop.p_arrivals)  # both parts of P, whatever the path
    assert softmax.emulated == made.plan.schedule.emulated_exponentials
    assert masked.emulated == 0
    # QK of K = 16 over the head size, PV of K = 16 over the keys, for each of the query tiles of an iteration.
    mma = report.role("mma")
    assert mma.kinds["UTC*MMA"] == mma.tiles * (head_size + 128) / 16
    assert mma.tiles == int(mma.tiles)
    correction = report.role("correction")
    assert correction.ldtm_columns == correction.sttm_columns == correction.tiles * head_size
    assert correction.always_instructions < correction.instructions  # the rescale is left out where no row needs it
    assert report.role("load").kinds["UTMALDG"] % 2 == 0  # K and V
    assert report.role("consumer") is None


@pytest.mark.slow
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_facts_of_the_hopper_kernel(is_causal):
    _, report = built("sm_90a", is_causal)
    check_sums(report)
    for loop in (report.role("consumer"), report.role("masked")):
        # 64 rows and 128 keys for 128 threads, each with two rows' factors; QK and PV are 8 WGMMAs each.
        assert loop.tiles == 1
        assert (loop.elements, loop.kinds["MUFU.EX2"], loop.rescales, loop.emulated) == (64, 66, 2, 0)
        assert loop.kinds["HGMMA"] == 16
        assert (loop.p_arrivals, loop.ldtm_columns) == ((), 0)  # P stays in registers
    assert report.role("load").kinds["UTMALDG"] >= 2
    assert all(report.role(name) is None for name in ("softmax", "correction", "mma"))
