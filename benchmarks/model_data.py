"""What others published about FlashAttention-4 forwards, as the model takes it: times, figures of machine code.

The figures of machine code were counted in the public kernels' cubins: stall sums, instructions, positions of the
arrivals. Nobody ran anything for them.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from tirx_attn.analysis.timeline.figures import Body, CodeFigures, RoleCode, blackwell
from tirx_attn.config import AttentionConfig
from tirx_attn.schedule import Plan, Schedule, make_plan

DATA = Path(__file__).parent / "data" / "published_b200.json"
L2_BUDGET = 32 * 1024 * 1024
"""With it heads go in groups of a power of two, 16 at S = 4096: with 25 and 7 the published time is out of reach."""

FULL = Schedule(l2_budget=L2_BUDGET)
CAUSAL = Schedule(
    pv_split=(64, 64), epilogue_owner="softmax", emulated_pairs=(3, 3, 3, 3), rescale_columns=32, l2_budget=L2_BUDGET
)
"""The knobs of the public TIRx kernel without and with a causal mask."""

MASKED_STALLS = 390.0
"""Stall cycles more of a masked tile, of flash-attn-4's masked loop; the TIRx kernel has no such loop to count in."""
EPILOGUE_STALLS = 700.0


def _figures(source: str, scores: int, first: int, last: int, loop: int, mufu: int, span: int, instructions: int,
             correction: float, mma: float, load: float, masked_mufu: int = 129) -> CodeFigures:  # fmt: skip
    return blackwell(
        source, scores=scores, parts=(first, last), loop=loop, mufu=mufu, mufu_span=(scores, scores + span),
        instructions=instructions, masked_extra=MASKED_STALLS, masked_mufu=masked_mufu, correction=correction, mma=mma,
        load=load, epilogue=EPILOGUE_STALLS,
    )  # fmt: skip


TIRX = {
    "full": _figures("TIRx, full", 191, 882, 1109, 1256, 113, 908, 501, 50.5, 210.5, 99),
    "causal": _figures("TIRx, causal", 197, 651, 1084, 1232, 105, 877, 527, 54, 210.5, 112),
    "grouped causal": _figures("TIRx, grouped causal", 192, 726, 1113, 1261, 105, 911, 530, 49.5, 196.5, 97),
}
FA4 = {
    "full": _figures("FA4, full", 190, 887, 1129, 1278, 113, 928, 500, 52.5, 154.5, 98, 113),
    "causal": _figures("FA4, causal", 190, 868, 1112, 1261, 113, 911, 500, 50, 153, 94, 113),
    "grouped causal": _figures("FA4, grouped causal", 190, 868, 1112, 1261, 113, 911, 500, 50, 153, 97, 113),
}


@dataclass(frozen=True)
class Row:
    """One published time: batch 1, 32 query heads, head size 128.

    Attributes:
        s, kv_heads, causal: the shape.
        tirx_us, fa4_us: medians over the states of the table.
        spread: of the states, (largest - smallest) / median of the TIRx kernel.
    """

    s: int
    kv_heads: int
    causal: bool
    tirx_us: float
    fa4_us: float
    spread: float

    @property
    def regime(self) -> str:
        """Key of the machine-code figures."""
        return "full" if not self.causal else "causal" if self.kv_heads == 32 else "grouped causal"

    def plan(self, schedule: Schedule | None = None, **changes: object) -> Plan:
        """Plan with the published kernel's knobs, or others."""
        base = schedule or (CAUSAL if self.causal else FULL)
        return plan_of(self.s, self.kv_heads, self.causal, replace(base, **changes))  # type: ignore[arg-type]


def plan_of(s: int, kv_heads: int, causal: bool, schedule: Schedule) -> Plan:
    """Plan of a shape of the table."""
    return make_plan(AttentionConfig(1, s, s, 32, kv_heads, 128, causal), schedule)


def rows() -> list[Row]:
    """All published rows."""
    made = []
    for row in json.loads(DATA.read_text())["rows"]:
        times = row["tirx_us"]
        middle = statistics.median(times)
        made.append(Row(row["S"], row["kv_heads"], row["causal"], middle, statistics.median(row["fa4_us"]),
                        (max(times) - min(times)) / middle))  # fmt: skip
    return made


def moved(figures: CodeFigures, name: str, first: float, last: float) -> CodeFigures:
    """Figures whose two parts of P arrive so many cycles later. What follows the last part moves with it."""
    softmax = figures.roles["softmax"]
    assert softmax.steady is not None
    assert softmax.careful is not None
    code = replace(softmax, steady=_moved(softmax.steady, first, last), careful=_moved(softmax.careful, first, last))
    return CodeFigures(f"{figures.source}, {name}", {**figures.roles, "softmax": code})


def _moved(body: Body, first: float, last: float) -> Body:
    by = {"arrive p_o_rescale": first, "arrive p_ready_2": last}
    low, high = body.mufu_span
    return replace(
        body,
        marks=tuple((mark, at + by.get(mark, 0.0)) for mark, at in body.marks),
        stalls=body.stalls + last,
        mufu_span=(low, high + last),
    )


def with_mma(figures: CodeFigures, stalls: float) -> CodeFigures:
    """Figures with another stall sum of the MMA warp."""
    role = figures.roles["mma"]
    work = replace(role.per_product, stalls=stalls)
    return CodeFigures(f"{figures.source}, MMA {stalls}", {**figures.roles, "mma": RoleCode(per_product=work)})
