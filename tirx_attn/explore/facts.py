"""What the page and the trace show, as JSON-able data: the one place that both, and their tests, read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tirx_attn.analysis.timeline import CodeFigures, Constants, Prediction, predict
from tirx_attn.analysis.timeline.durations import Played, durations
from tirx_attn.analysis.timeline.moments import Timeline
from tirx_attn.barriers.protocol import Protocol
from tirx_attn.explore import compare, layout, passing
from tirx_attn.family import AnyPlan


@dataclass(frozen=True)
class Study:
    """One kernel and what the model says of it.

    Attributes:
        plan, table: its plan and its protocol.
        prediction: of the launch.
        timeline: of the task from which the prediction's steady state is taken.
        blocks: key blocks of that task.
        longest_blocks: key blocks of the launch's longest task.
        origin: where its schedule comes from, in words.
        changes: knobs that were set, by name.
    """

    plan: AnyPlan
    table: Protocol
    prediction: Prediction
    timeline: Timeline
    blocks: int
    longest_blocks: int
    origin: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        plan: AnyPlan,
        table: Protocol,
        played: Sequence[Played],
        figures: CodeFigures,
        constants: Constants,
        **words: Any,
    ) -> Study:
        """Study of a plan whose kernel was built and played (`predict` says how)."""
        prediction = predict(plan, figures, played=played, constants=constants)
        timeline = durations(played, figures, constants.machine(plan.target)).longest
        longest = max(int(plan.tiles.key_blocks(m)) for m in range(int(plan.tiles.m_blocks)))
        return cls(plan, table, prediction, timeline, played[-1].task.blocks, longest, **words)


def facts(study: Study) -> dict[str, Any]:
    """Everything that is shown of one kernel."""
    plan = study.plan
    protocol = layout.protocol(plan, study.table)
    return {
        "origin": study.origin,
        "changes": {name: str(value) for name, value in study.changes.items()},
        "target": plan.target.name,
        "knobs": {name: str(value) for name, value in asdict(plan.schedule).items()},
        "protocol": protocol,
        "memory": layout.memories(plan, study.table),
        "figures": figures(study),
        "prediction": study.prediction.to_dict(),
        "time": passing.passing(study.timeline, study.prediction, study.blocks, protocol),
        "longest_blocks": study.longest_blocks,
    }


def document(title: str, arch: str, studies: Sequence[Study]) -> dict[str, Any]:
    """Facts of one kernel, or of two and what differs between them."""
    sides = [{"name": name, **facts(study)} for name, study in zip("AB", studies, strict=False)]
    names = dict.fromkeys(edge["name"] for side in sides for edge in side["protocol"]["edges"])
    numbers = {name: number for number, name in enumerate(names, start=1)}
    for side in sides:
        for edge in side["protocol"]["edges"]:
            edge["number"] = numbers[edge["name"]]
    made: dict[str, Any] = {"title": title, "arch": arch, "edges": numbers, "sides": sides}
    if len(sides) == 2:
        made["differences"] = compare.differences(*sides)
    return made


def figures(study: Study) -> list[dict[str, Any]]:
    """Figures of a kernel by key: value and what is printed of it."""
    plan, found = study.plan, study.prediction
    registers = sum(group["size"] for group in layout.registers(plan)["regions"])
    rows: list[tuple[str, str, Any, str]] = [
        ("time_us", "Time of the launch", found.time_us, f"{found.time_us:,.1f} µs at {found.clock_ghz:.2f} GHz"),
        ("tflops", "Speed over the visible pairs", found.tflops, f"{found.tflops:,.0f} TFLOP/s"),
        ("block_cycles", "Cycles per key block", found.block_cycles, f"{found.block_cycles:,.0f}"),
        ("task_cycles", "Cycles of the longest task", found.task_cycles, f"{found.task_cycles:,.0f}"),
        ("critical", "Critical resource", found.critical, found.critical),
        ("first_stall", "First stall", found.first_stall, found.first_stall),
        ("smem", "Shared memory", plan.smem.size, f"{plan.smem.size:,} of {plan.target.smem_bytes:,} bytes"),
        ("registers", "Registers", registers, f"{registers:,} of {plan.target.registers:,}"),
        ("mbarriers", "mbarriers", study.table.mbarriers, f"{study.table.mbarriers}"),
        ("named_barriers", "Hardware named barriers", study.table.named_barriers, f"{study.table.named_barriers}"),
    ]
    return [{"key": key, "label": label, "value": value, "text": text} for key, label, value, text in rows]
