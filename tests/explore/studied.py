"""Studies whose plan and protocol are real and whose task is a small program: nothing is built."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from tests.analysis.timeline.toys import MACHINE, Program
from tests.commands.modelled import prediction
from tirx_attn.analysis.timeline import trace as t
from tirx_attn.analysis.timeline.figures import Work
from tirx_attn.analysis.timeline.model import stall_table, steady
from tirx_attn.analysis.timeline.moments import UNITS, Timeline
from tirx_attn.analysis.timeline.replay import replay
from tirx_attn.config import AttentionConfig
from tirx_attn.explore import Study, document
from tirx_attn.family import family_of, plan_for

BLOCKS = 8
LATE = replace(MACHINE, edge=60.0, fill=60.0, tma_latency=600.0, tmem_read=100.0)

Steps = list[tuple[Work, t.Step]]


def programs(exponentials: float) -> dict[str, Program]:
    """A ring of one tile, a product, two softmax warpgroups by turns, a product."""
    load: Steps = []
    mma: Steps = []
    softmax: list[Steps] = [[], []]
    for block in range(BLOCKS):
        load += [
            (Work(), t.Step(t.WAIT, "kv_load.empty", 0, block - 1)),
            (Work(30.0, 0.0, 10.0), t.Step(t.LOAD, "kv_load.full", 0, amount=32768)),
            (Work(), t.Step(t.EXPECT, "kv_load.full", 0, amount=1, bytes=32768)),
        ]
        stage, turn = block % 2, block // 2
        mma += [
            (Work(), t.Step(t.WAIT, "kv_load.full", 0, block)),
            (Work(), t.Step(t.PRODUCT, "ctx_s_tmem", amount=2 * 128**3)),
            (Work(), t.Step(t.COMMIT, "s_ready", stage, amount=1)),
            (Work(), t.Step(t.WAIT, "p_o_rescale", stage, turn)),
            (Work(), t.Step(t.PRODUCT, "ctx_o_tmem", amount=2 * 128**3)),
            (Work(), t.Step(t.COMMIT, "kv_load.empty", 0, amount=1)),
        ]
        softmax[stage] += [
            (Work(), t.Step(t.WAIT, "s_ready", stage, turn)),
            (Work(), t.Step(t.READ_WAIT)),
            (Work(exponentials, 64.0, exponentials / 2), t.Step(t.ARRIVE, "p_o_rescale", stage, amount=1)),
        ]
    load.append((Work(), t.Step(t.WAIT, "kv_load.empty", 0, BLOCKS - 1)))
    return {"load": load, "mma": mma, "softmax 0": softmax[0], "softmax 1": softmax[1]}


def timeline(exponentials: float = 800.0) -> Timeline:
    made = programs(exponentials)
    slots = {(step.edge, step.slot): 1 for program in made.values() for _, step in program if step.edge}
    return replay(made, slots, {}, LATE)


@cache
def study(is_causal: bool = False, arch: str = "sm_100a", exponentials: float = 800.0, **changes: Any) -> Study:
    """Study of the tuned schedule with changes."""
    config = AttentionConfig(1, 1024, 1024, 4, 4, 128, is_causal)
    plan = plan_for(config, arch=arch)
    plan = plan_for(config, replace(plan.schedule, **changes), arch)
    shown = timeline(exponentials)
    start, end, inside = steady(shown, BLOCKS)
    found = replace(
        prediction(500.0),
        block_cycles=(end - start) / inside,
        use={unit: shown.use(unit, start, end) for unit in UNITS},
        stalls=stall_table(shown, start, end, inside),
    )
    origin = ", ".join(["tuned", *(f"{name}={value}" for name, value in changes.items())])
    table = family_of(plan.target).protocol(plan)
    return Study(plan, table, found, shown, BLOCKS, 2 * BLOCKS, origin, changes)


def one() -> dict[str, Any]:
    return document("a test", "sm_100a", [study()])


def two() -> dict[str, Any]:
    return document("a test", "sm_100a", [study(), study(exponentials=900.0, kv_stages=2, stagger=True)])
