"""Machine-code figures that the model takes: where in a role's loop its waits and signals stand, and what lies between.

Positions are stall sums from the loop's start: the cycles that the assembler makes one warp wait between instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tirx_attn.analysis.timeline.trace import GROUP_WAIT, Actor, Step
from tirx_attn.barriers.protocol import part_edge

MARK_KINDS = ("wait", "arrive", "sync", "signal", "product", "group wait")


@dataclass(frozen=True)
class Work:
    """Instructions that one warp runs between two steps.

    Attributes:
        stalls: their stall sum, in cycles.
        mufu: those of the MUFU pipe.
        instructions: all of them.
    """

    stalls: float = 0.0
    mufu: float = 0.0
    instructions: float = 0.0


@dataclass(frozen=True)
class Body:
    """One iteration of a role's loop, or a piece of code that runs once a task.

    Attributes:
        marks: (mark of a step, position), in the order in which the machine code has them. The first one begins it.
        stalls: stall sum of the whole.
        instructions: of the whole.
        mufu: instructions of the MUFU pipe.
        mufu_span: positions of the first and behind the last of them.
    """

    marks: tuple[tuple[str, float], ...]
    stalls: float
    instructions: float
    mufu: float = 0.0
    mufu_span: tuple[float, float] = (0.0, 0.0)

    def between(self, start: float, end: float) -> Work:
        """What lies between two positions."""
        if end <= start:
            return Work()
        low, high = self.mufu_span
        inside = max(0.0, min(end, high) - max(start, low)) / (high - low) if high > low else 0.0
        return Work(end - start, self.mufu * inside, self.instructions * (end - start) / self.stalls)

    def later(self, cycles: float) -> Body:
        """The same with so many more stall cycles behind the first mark, at the same instructions a cycle."""
        first, *rest = self.marks
        low, high = self.mufu_span
        return replace(
            self,
            marks=(first, *((mark, at + cycles) for mark, at in rest)),
            stalls=self.stalls + cycles,
            instructions=self.instructions * (self.stalls + cycles) / self.stalls,
            mufu_span=(low + cycles, high + cycles),
        )


@dataclass(frozen=True)
class RoleCode:
    """Machine code of one role.

    Attributes:
        steady: iteration for a key block; None for roles without one.
        careful: iteration for a first or masked key block; no play moves a reference elsewhere.
        once: code of a task outside of the loop.
        per_product: stall cycles of issuing the products of one query tile and key block (the mma role).
        per_load: stall cycles before each tile that is loaded.
    """

    steady: Body | None = None
    careful: Body | None = None
    once: tuple[Body, ...] = ()
    per_product: Work = field(default_factory=Work)
    per_load: Work = field(default_factory=Work)


@dataclass(frozen=True)
class CodeFigures:
    """Machine code of one kernel.

    Attributes:
        source: where the figures come from.
        roles: role -> its code; roles that are not here take no time of their own.
    """

    source: str
    roles: Mapping[str, RoleCode]

    def program(self, actor: Actor, blocks: Sequence[tuple[int, int]], tile_flops: float) -> list[tuple[Work, Step]]:
        """An actor's steps, each with the work before it.

        Args:
            actor: who.
            blocks: (key blocks, careful ones among them) of each of its tasks.
            tile_flops: flops of one query tile and key block.
        """
        code = self.roles.get(actor.role.partition(" ")[0], RoleCode())
        return list(_walk(code, actor.steps, blocks, tile_flops))


def _walk(
    code: RoleCode, steps: Sequence[Step], blocks: Sequence[tuple[int, int]], tile_flops: float
) -> Iterator[tuple[Work, Step]]:
    is_careful = [j < careful for count, careful in blocks for j in range(count)]
    block, body, at, behind = 0, None, 0.0, 0
    for step in steps:
        if step.kind == "product" and code.per_product.stalls:
            share = step.amount / tile_flops
            yield Work(code.per_product.stalls * share, 0.0, code.per_product.instructions * share), step
            continue
        if step.kind == "load":
            yield code.per_load, step
            continue
        if step.kind not in MARK_KINDS:
            yield Work(), step
            continue
        place = _find(body, step.mark, behind)
        if body is not None and place is not None:
            work, at, behind = body.between(at, body.marks[place][1]), max(at, body.marks[place][1]), place + 1
            yield work, step
            continue
        following = None
        if code.steady is not None and code.careful is not None and step.mark == code.steady.marks[0][0]:
            if block < len(is_careful):
                following = code.careful if is_careful[block] else code.steady
        for once in code.once:
            if following is None and step.mark == once.marks[0][0]:
                following = once
        # What matches nothing ends an iteration that is through with its marks.
        ends = body is not None and (following is not None or behind == len(body.marks))
        work = body.between(at, body.stalls) if ends and body is not None else Work()
        if ends:
            body = None
        if following is not None:
            block += following is code.steady or following is code.careful
            body, behind, at = following, 1, following.marks[0][1]
            lead = following.between(0.0, at)
            work = Work(work.stalls + lead.stalls, work.mufu + lead.mufu, work.instructions + lead.instructions)
        yield work, step


def _find(body: Body | None, mark: str, behind: int) -> int | None:
    if body is None:
        return None
    return next((i for i in range(behind, len(body.marks)) if body.marks[i][0] == mark), None)


def blackwell(
    source: str,
    *,
    scores: float,
    parts: tuple[float, ...],
    loop: float,
    mufu: int,
    mufu_span: tuple[float, float],
    instructions: int,
    masked_extra: float,
    masked_mufu: int,
    correction: float,
    mma: float,
    load: float,
    epilogue: float,
    turn: tuple[float, float] | None = None,
) -> CodeFigures:
    """Figures of a tcgen05 kernel with this package's protocol.

    Args:
        source: where they come from.
        scores: position at which the row's scale is handed to the correction role.
        parts: positions of the arrivals of the parts of P.
        loop, instructions: the softmax loop, for a tile.
        mufu, mufu_span: its MUFU instructions and where they lie.
        masked_extra, masked_mufu: stall cycles more, and MUFU instructions, of a first or masked tile.
        correction: stall cycles for a query tile that needs no rescale.
        mma: stall cycles of the MMA warp for a query tile and key block.
        load: stall cycles of the load warp for a K and a V tile.
        epilogue: stall cycles from O complete to O staged.
        turn: where the softmax groups take turns, the positions of the wait for the turn and of passing it on.
    """
    marks = [("wait s_ready", 0.0), ("signal stats.full", scores)]
    marks += [(f"arrive {part_edge(part)}", at) for part, at in enumerate(parts)]
    if turn is not None:
        marks.insert(2, ("wait exp_turn", turn[0]))
        marks.insert(-1, ("arrive exp_turn", turn[1]))
    steady = Body(tuple(marks), loop, instructions, mufu, mufu_span)
    careful = replace(steady.later(masked_extra), mufu=masked_mufu)
    written = ("arrive p_o_rescale", epilogue), ("arrive o_staged.full", epilogue)
    staged = Body((("wait o_ready", 0.0), *written), epilogue, epilogue / 2)
    idle = Body((("sync stats.full", 0.0), ("arrive p_o_rescale", correction)), correction, correction / 5)
    return CodeFigures(
        source,
        {
            "softmax": RoleCode(steady, careful, (staged,)),
            "correction": RoleCode(once=(idle, staged)),
            "mma": RoleCode(per_product=Work(mma, 0.0, mma / 2)),
            "load": RoleCode(per_load=Work(load / 2, 0.0, load / 4)),
        },
    )


def hopper(
    source: str,
    *,
    marks: tuple[tuple[str, float], ...],
    loop: float,
    instructions: int,
    mufu: int,
    mufu_span: tuple[float, float],
    masked_extra: float,
    load: float,
    epilogue: float,
) -> CodeFigures:
    """Figures of a WGMMA kernel.

    Args:
        source: where they come from.
        marks: waits, products and signals of the consumer's loop with their positions. Where the assembler moved a wait
            for products, this says so.
        loop, instructions, mufu, mufu_span: the consumer's loop, for a tile of 64 rows.
        masked_extra: stall cycles more of a first or masked tile.
        load: stall cycles of the load warp for a K and a V tile.
        epilogue: stall cycles from the last product to O staged.
    """
    steady = Body(marks, loop, instructions, mufu, mufu_span)
    end = Body(
        (
            ("arrive q_load.empty", 0.0),
            ("wait kv_load.full", 10.0),
            ("product rows_o", 40.0),
            (f"{GROUP_WAIT} 0", 100.0),
            ("arrive kv_load.empty", 105.0),
            ("wait o_staged.empty", 105.0 + epilogue / 2),
            ("arrive o_staged.full", 105.0 + epilogue),
        ),
        105.0 + epilogue, (105.0 + epilogue) / 2,
    )  # fmt: skip
    return CodeFigures(
        source,
        {
            "consumer": RoleCode(steady, steady.later(masked_extra), (end,)),
            "load": RoleCode(per_load=Work(load / 2, 0.0, load / 4)),
        },
    )
