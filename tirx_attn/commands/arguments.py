"""What the commands take: options, and the text of an option turned into a problem with a plan."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any

import typer

from tirx_attn.barriers.protocol import Protocol, protocol
from tirx_attn.config import AttentionConfig
from tirx_attn.schedule import Plan, Schedule, make_plan
from tirx_attn.schedule.tuning import TuningRow, tuning_row
from tirx_attn.targets import TARGETS, target_for

SHAPE_NAMES = ("B", "Sq", "Skv", "Hq", "Hkv", "D")
ARCHS = ", ".join(sorted(TARGETS))

ShapeOption = Annotated[
    str,
    typer.Option(
        "--shape",
        metavar=",".join(SHAPE_NAMES),
        help="Batch, query and key lengths, query and K/V heads, head size (128).",
    ),
]
CausalOption = Annotated[bool, typer.Option("--causal", help="Bottom-right aligned causal mask.")]
ArchOption = Annotated[str, typer.Option("--arch", metavar="ARCH", help=f"Target: {ARCHS}.")]
ScheduleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule",
        metavar="KEY=VALUE",
        help="Set a knob of Schedule, such as pv_split=64,64, stagger=true, statistics=collective. Repeatable.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


class ArgumentError(ValueError):
    """An argument that cannot be used: the message names it, its value and what is allowed. Exit status 2."""


@dataclass(frozen=True)
class Problem:
    """What one command line asks for.

    Attributes:
        config, schedule, plan, table: the problem and what was derived for it.
        arch: architecture name of the target.
        row: tuning row that the schedule started from.
        changes: knobs that the command line set.
    """

    config: AttentionConfig
    schedule: Schedule
    plan: Plan
    table: Protocol
    arch: str
    row: TuningRow
    changes: dict[str, Any]

    @property
    def stem(self) -> str:
        """File name that says the problem."""
        sizes = "_".join(f"{name.lower()}{getattr(self.config, name)}" for name in SHAPE_NAMES)
        return f"flash_attention4_{sizes}{'_causal' if self.config.is_causal else ''}"

    @property
    def title(self) -> str:
        """The problem in words."""
        sizes = " ".join(f"{name}={getattr(self.config, name)}" for name in SHAPE_NAMES)
        return f"{'causal' if self.config.is_causal else 'full'} {sizes}"

    def to_dict(self) -> dict[str, Any]:
        """The problem as JSON-able data."""
        return {
            "arch": self.arch,
            "config": asdict(self.config),
            "schedule": asdict(self.schedule),
            "tuning": {"row": self.row.id, "regime": self.row.regime, "changes": self.changes},
        }


def parse_problem(shape: str, causal: bool, arch: str, changes: Sequence[str] | None = None) -> Problem:
    """Problem of the options that build, check and plan share.

    Raises:
        ArgumentError: for any of them.
    """
    try:
        target = target_for(arch)
    except ValueError as error:
        raise ArgumentError(f"--arch: {error}") from None
    try:
        config = AttentionConfig(*parse_shape(shape), is_causal=causal)
    except (TypeError, ValueError) as error:
        raise _prefixed(f"--shape {shape}", error) from None
    row = tuning_row(config, target)
    parsed = parse_changes(changes or ())
    try:
        schedule = replace(row.schedule, **parsed)
        plan = make_plan(config, schedule, target)
        table = protocol(plan)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"--schedule: {error}") from None
    return Problem(config, schedule, plan, table, arch, row, parsed)


def parse_shape(text: str) -> tuple[int, int, int, int, int, int]:
    """Six integers of B,Sq,Skv,Hq,Hkv,D; their ranges are AttentionConfig's business."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != len(SHAPE_NAMES):
        raise ArgumentError(
            f"--shape {text!r} has {len(parts)} values: allowed are six integers {','.join(SHAPE_NAMES)}, "
            "such as 1,256,256,2,1,128"
        )
    for name, part in zip(SHAPE_NAMES, parts, strict=True):
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", part):
            raise ArgumentError(f"--shape {text!r}: {name}={part!r}: allowed values are positive integers")
    b, sq, skv, hq, hkv, d = map(int, parts)
    return b, sq, skv, hq, hkv, d


def parse_changes(items: Sequence[str]) -> dict[str, Any]:
    """Schedule fields of KEY=VALUE texts."""
    kinds = typing.get_type_hints(Schedule)
    names = [field.name for field in fields(Schedule)]
    changes: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ArgumentError(f"--schedule {item!r}: allowed is KEY=VALUE, with KEY one of {', '.join(names)}")
        if name not in names:
            raise ArgumentError(f"--schedule {item!r}: KEY={name!r}: allowed values are {', '.join(names)}")
        if name in changes:
            raise ArgumentError(f"--schedule {item!r}: {name} is given twice, allowed is once")
        changes[name] = _value(item, text.strip(), kinds[name])
    return changes


def _value(item: str, text: str, kind: Any) -> Any:
    """Text as a value of a field's annotated type."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        if text.lower() == "none":
            return None
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
        return _number(item, text, kind, "None and ")
    if kind is str:
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ArgumentError(f"--schedule {item!r}: allowed values are true and false")
        return text.lower() == "true"
    if typing.get_origin(kind) is tuple:
        return tuple(_number(item, part.strip(), int, "comma-separated ") for part in text.split(","))
    return _number(item, text, kind, "")


def _number(item: str, text: str, kind: Any, also: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        allowed = "integers" if kind is int else "numbers"
        raise ArgumentError(f"--schedule {item!r}: {text!r}: allowed values are {also}{allowed}") from None


def parse_list(option: str, text: str, allowed: Sequence[str]) -> list[str]:
    """Comma-separated words, each of them allowed, in the order given."""
    words = list(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in allowed:
            raise ArgumentError(f"{option} {text!r}: {word!r}: allowed values are {', '.join(allowed)}")
    return words


def parse_seconds(option: str, text: str) -> float:
    """A time limit."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ArgumentError(f"{option} {text!r}: allowed values are positive seconds")
    return seconds


def _prefixed(option: str, error: Exception) -> ArgumentError:
    return error if isinstance(error, ArgumentError) else ArgumentError(f"{option}: {error}")
