"""Figures of a kernel's own machine code, as the model takes them."""

from __future__ import annotations

from collections.abc import Sequence

from tirx_attn.analysis.code import CodeReport, code_report
from tirx_attn.analysis.listing import Line, listing
from tirx_attn.analysis.roles import CONSUMER, MMA, SOFTMAX, Body, role_bodies
from tirx_attn.analysis.timeline.figures import CodeFigures, blackwell, hopper
from tirx_attn.runtime import elf
from tirx_attn.runtime.cubin import Cubin

EPILOGUE_STALLS = {128: 700.0, 64: 400.0}
"""By head size: O from where it was summed to staging memory. An assumption; loops of it are too short to tell."""

FRAGMENT_EPILOGUE_STALLS = {128: 350.0, 64: 250.0}
"""The same where O lies in registers."""

MASKED_STALLS = 240.0
"""Stall cycles more of a WGMMA kernel's first block, where no loop of the machine code holds it."""


def figures_of(cubin: Cubin, head_size: int, *, takes_turns: bool = False) -> CodeFigures:
    """Figures of one kernel.

    Args:
        cubin: machine code of this package's kernel.
        head_size: D.
        takes_turns: the softmax groups of a tcgen05 kernel do (`Schedule.stagger`).

    Raises:
        CompileError: the cubin cannot be read.
        ValueError: its loops are not those of the roles.
    """
    report = code_report(cubin, head_size=head_size)
    kernel = report.kernel
    bodies = role_bodies(listing(cubin.sass(), kernel, elf.code(cubin.image, kernel)))
    return (
        _consumer(report, bodies, head_size)
        if report.role(CONSUMER)
        else _softmax(report, bodies, head_size, takes_turns)
    )


def mma_stalls(report: CodeReport) -> float:
    """Stall cycles of the MMA warp for a query tile and key block, which may be spread over several loops."""
    loops = [loop for loop in report.loops if loop.role == MMA]
    return sum(loop.always_stalls for loop in loops) / sum(loop.tiles for loop in loops)


def _softmax(report: CodeReport, bodies: Sequence[Body], head_size: int, takes_turns: bool) -> CodeFigures:
    loop, masked, correction, mma, load = (
        report.role(name) for name in ("softmax", "masked", "correction", "mma", "load")
    )
    if loop is None or correction is None or mma is None or load is None or len(loop.p_arrivals) <= takes_turns:
        raise ValueError(
            "machine code without the loops of softmax, correction, mma and load: allowed is this kernel's"
        )
    lines = next(body for body in bodies if body.role == SOFTMAX and body.start == loop.start).lines
    before, during, _ = loop.phases
    handed = _positions(lines, "BAR")
    parts = [float(at) for at in loop.p_arrivals]
    # With turns the last arrival but one passes the turn on; the turn is waited for behind the scale.
    passed = parts.pop(-2) if takes_turns else None
    return blackwell(
        f"machine code of {report.kernel} ({report.arch})",
        scores=handed[0] if handed else before,
        parts=tuple(parts),
        loop=loop.stalls,
        mufu=loop.mufu,
        mufu_span=(before, before + during),
        instructions=loop.instructions,
        masked_extra=max(0, masked.always_stalls - loop.stalls) if masked else 0,
        masked_mufu=masked.mufu if masked else loop.mufu,
        correction=correction.per_tile(correction.always_stalls),
        mma=mma_stalls(report),
        load=load.always_stalls,
        epilogue=EPILOGUE_STALLS[head_size],
        turn=(handed[0] if handed else before, passed) if passed is not None else None,
    )


def _consumer(report: CodeReport, bodies: Sequence[Body], head_size: int) -> CodeFigures:
    loop, masked, load = (report.role(name) for name in ("consumer", "masked", "load"))
    if loop is None or load is None:
        raise ValueError("machine code without the loops of consumer and load: allowed is this kernel's")
    always = next(body for body in bodies if body.role == CONSUMER and body.start == loop.start).always
    before, during, _ = loop.always_phases
    is_loop = masked is not None and masked.surrounds is None
    return hopper(
        f"machine code of {report.kernel} ({report.arch})",
        marks=_consumer_marks(always),
        loop=loop.always_stalls,
        instructions=loop.always_instructions,
        mufu=loop.mufu,
        mufu_span=(before, before + during),
        masked_extra=masked.always_stalls - loop.always_stalls if masked and is_loop else MASKED_STALLS,
        load=load.always_stalls,
        epilogue=FRAGMENT_EPILOGUE_STALLS[head_size],
    )


def _consumer_marks(lines: Sequence[Line]) -> tuple[tuple[str, float], ...]:
    """Waits, first products and signals of a block, in the order of the machine code."""
    names = {
        "SYNCS.PHASECHK": ["wait kv_load.full", "wait kv_load.full"],
        "BAR.SYNC": ["sync mma_turn"],
        "BAR.ARV": ["signal mma_turn"],
        "WARPGROUP.DEPBAR": ["group wait 1", "group wait 0"],
        "SYNCS.ARRIVE": ["arrive kv_load.empty", "arrive kv_load.empty"],
    }
    products = ["product rows_s", "product rows_o"]
    marks: list[tuple[str, float]] = []
    clock, waits = 0, 0
    for line in lines:
        for opcode, left in names.items():
            if left and line.opcode.startswith(opcode):
                waits += opcode == "SYNCS.PHASECHK"
                marks.append((left.pop(0), float(clock)))
        if line.name == "HGMMA" and products and waits == 3 - len(products):
            marks.append((products.pop(0), float(clock)))
        clock += line.control.stall
    return tuple(marks)


def _positions(lines: Sequence[Line], name: str) -> list[float]:
    clock, found = 0, []
    for line in lines:
        if line.name == name:
            found.append(float(clock))
        clock += line.control.stall
    return found
