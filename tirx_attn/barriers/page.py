"""docs/barriers.md, made from the protocol: `python -m tirx_attn.barriers.page > docs/barriers.md` writes it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tirx_attn.barriers.protocol import Protocol, protocol
from tirx_attn.barriers.render import to_markdown, to_mermaid
from tirx_attn.config import AttentionConfig
from tirx_attn.hopper.plan import make_hopper_plan
from tirx_attn.hopper.protocol import hopper_protocol
from tirx_attn.schedule import Schedule, make_plan

_INTRODUCTION = """\
# Barriers

Generated from `tirx_attn/barriers/protocol.py` by `python -m tirx_attn.barriers.page > docs/barriers.md`; a test
holds the two together. Do not edit.

An edge runs from the roles that arrive to the roles that wait. Its *count* is the number of arrivals that complete a
phase, derived from the threads of the roles. On Blackwell it has a slot for each of the two query tiles of a task;
`kv_load` has the slots of the K/V ring, and `stats.full` one per pair of warps, or of warpgroups. *At start* says what
lets the first wait of a kernel pass: a role that arrives once before its first task, a slot that is free from the
beginning, or nothing (the producer comes first). [dataflow.md](dataflow.md) tells the story that the edges belong to.

- **TMA mbarrier**: completes when the load warp has arrived and the bytes it announced have come.
- **tcgen05 mbarrier**: completes when the MMAs issued before its commit have.
- **mbarrier**: every thread arrives.
- **hardware named barrier**: arriving and waiting threads both count.
"""

_HOPPER = """\
## The sm_90a kernel

From `tirx_attn/hopper/protocol.py`, for two consumer warpgroups. Three add a slot to `mma_turn`, half to the consumers'
arrivals on mbarriers, and half to the bytes of a query tile. [hopper.md](hopper.md) tells its story.
"""

_VARIANTS: dict[str, dict[str, Any]] = {
    'statistics="collective"': {"statistics": "collective"},
    "stagger=True": {"stagger": True},
    'statistics="tmem"': {"statistics": "tmem"},
    "pv_split=(32, 32, 32, 32)": {"pv_split": (32, 32, 32, 32)},
    "o_stages=1": {"o_stages": 1},
    "kv_stages=2": {"kv_stages": 2},
}
"""Knobs that change rows, by the text that sets them."""


def page() -> str:
    """docs/barriers.md: the tables of the tuned schedules, and the rows that knobs change. Lengths do not matter."""
    plans = {
        "Non-causal": make_plan(AttentionConfig(1, 256, 256, 1, 1, 128)),
        "Causal": make_plan(AttentionConfig(1, 256, 256, 1, 1, 128, is_causal=True)),
    }
    parts = [_INTRODUCTION]
    for title, plan in plans.items():
        table = protocol(plan)
        parts.append(
            f"## {title}\n\n`{_owner(plan.schedule)}`: {table.mbarriers} mbarriers, {table.named_barriers} hardware "
            f"named barriers.\n\n{to_markdown(table)}\n```mermaid\n{to_mermaid(table)}```\n"
        )
    parts.append("## Rows that knobs change\n\nOf the non-causal table.\n")
    base = plans["Non-causal"]
    for text, change in _VARIANTS.items():
        table = protocol(make_plan(base.config, replace(base.schedule, **change), base.target))
        changed = tuple(edge for edge in table.edges if edge not in protocol(base).edges)
        parts.append(f"### {text}\n\n{to_markdown(Protocol(changed))}")
    table = hopper_protocol(make_hopper_plan(AttentionConfig(1, 256, 256, 1, 1, 128)))
    parts.append(f"{_HOPPER}\n{to_markdown(table)}\n```mermaid\n{to_mermaid(table)}```\n")
    return "\n".join(parts)


def _owner(schedule: Schedule) -> str:
    return f'epilogue_owner="{schedule.epilogue_owner}", statistics="{schedule.statistics}"'


if __name__ == "__main__":
    print(page(), end="")
