"""What the commands take: options, and the text of an option turned into a problem with a plan."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any

import typer

from tirx_attn.barriers.protocol import Protocol
from tirx_attn.config import DTYPES, RUN_TIME_NAMES, RUNTIME, SCALES, SIZE_NAMES, AttentionConfig
from tirx_attn.family import AnyPlan, AnySchedule, Family, family_of
from tirx_attn.schedule import Schedule
from tirx_attn.schedule.tuning import TuningRow
from tirx_attn.targets import TARGETS, target_for

ARCHS = ", ".join(sorted(TARGETS))

OPEN = "_"
"""How --shape writes a size that is read from the tensors at run time."""

# Help is Markdown: outside of backticks, two underscores would be emphasis.
SIZES_HELP = "Batch, query and key lengths, query and K/V heads, head size (64 or 128)."
_SHAPE = typer.Option(
    "--shape",
    metavar=",".join(SIZE_NAMES),
    help=f"{SIZES_HELP} `{OPEN}` leaves {', '.join(RUN_TIME_NAMES[:-1])} or {RUN_TIME_NAMES[-1]} to run time.",
)
ShapeOption = Annotated[str, _SHAPE]
OptionalShapeOption = Annotated[str | None, _SHAPE]
FixedShapeOption = Annotated[str, typer.Option("--shape", metavar=",".join(SIZE_NAMES), help=SIZES_HELP)]
DtypeOption = Annotated[
    str, typer.Option("--dtype", metavar="|".join(DTYPES.values()), help="Data type of Q, K, V and O.")
]
LseOption = Annotated[
    bool, typer.Option("--lse", help="Also write LSE, the log-sum-exp of each row's scaled logits, in fp32.")
]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar=f"NUMBER|{RUNTIME}",
        help=f"Factor on the logits; {RUNTIME} makes it a parameter of the kernel. Without it, 1/sqrt(D).",
    ),
]
CausalOption = Annotated[bool, typer.Option("--causal", help="Bottom-right aligned causal mask.")]
ArchOption = Annotated[str, typer.Option("--arch", metavar="ARCH", help=f"Target: {ARCHS}.")]
ScheduleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule",
        metavar="KEY=VALUE",
        help="Set a knob of Schedule, such as pv_split=64,64, stagger=true, statistics=collective; for sm_90a of "
        "HopperSchedule, such as ping_pong=false. Repeatable.",
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
        family: the kernel that serves it.
        row: tuning row that the schedule started from.
        changes: knobs that the command line set.
    """

    config: AttentionConfig
    schedule: AnySchedule
    plan: AnyPlan
    table: Protocol
    arch: str
    family: Family
    row: TuningRow
    changes: dict[str, Any]

    @property
    def stem(self) -> str:
        """File name that says the problem. What has its default adds nothing; a size left open is its bare name."""
        config = self.config
        words = [f"{name.lower()}{'' if size is None else size}" for name, size in self._sizes]
        words += ["causal"] * config.is_causal
        words += [DTYPES[config.dtype]] * (config.dtype != AttentionConfig.dtype)
        words += ["lse"] * config.return_lse
        words += [] if config.scale is None else [f"scale_{config.scale}".replace("+", "")]
        return "_".join([self.family.stem, *words])

    @property
    def title(self) -> str:
        """The problem in words, with the same defaults left out."""
        config = self.config
        words = [f"{name}={OPEN if size is None else size}" for name, size in self._sizes]
        words += [DTYPES[config.dtype]] * (config.dtype != AttentionConfig.dtype)
        words += ["LSE"] * config.return_lse
        words += [] if config.scale is None else [f"scale={config.scale}"]
        return " ".join(["causal" if config.is_causal else "full", *words])

    @property
    def parameters(self) -> list[dict[str, str]]:
        """Name, dtype and shape of the kernel's parameters, in their order. A size left open is its name."""
        size = {name: name if size is None else str(size) for name, size in self._sizes}
        dtype, queries, keys = self.config.dtype, "B Sq Hq D", "B Skv Hkv D"
        made = [("Q", dtype, queries), ("K", dtype, keys), ("V", dtype, keys), ("O", dtype, queries)]
        made += [("LSE", "float32", "B Hq Sq")] * self.config.return_lse
        made += [("scale", "float32", "")] * (self.config.scale == RUNTIME)
        return [
            {"name": name, "dtype": dtype, "shape": f"[{', '.join(size[dim] for dim in shape.split())}]"}
            for name, dtype, shape in made
        ]

    @property
    def _sizes(self) -> list[tuple[str, int | None]]:
        return [(name, getattr(self.config, name)) for name in SIZE_NAMES]

    def to_dict(self) -> dict[str, Any]:
        """The problem as JSON-able data."""
        return {
            "arch": self.arch,
            "config": asdict(self.config),
            "schedule": asdict(self.schedule),
            "tuning": {"row": self.row.id, "regime": self.row.regime, "changes": self.changes},
        }


def parse_problem(
    shape: str,
    causal: bool,
    arch: str,
    changes: Sequence[str] | None = None,
    *,
    dtype: str = "fp16",
    lse: bool = False,
    scale: str | None = None,
) -> Problem:
    """Problem of the options that build, check and plan share.

    Raises:
        ArgumentError: for any of them.
    """
    family, target = parse_family(arch), target_for(arch)
    name = parse_dtype(dtype)
    try:
        config = AttentionConfig(*parse_shape(shape), is_causal=causal, dtype=name, return_lse=lse)
        row = family.tuning_row(config, target)
        # What it refuses lies in the sizes: a row's schedule fits every target.
        family.make_plan(config, row.schedule, target)
    except (TypeError, ValueError) as error:
        raise _of_shape(shape, error) from None
    config = with_scale(config, scale)
    parsed = parse_changes(changes or (), family.schedule)
    try:
        schedule = replace(row.schedule, **parsed)
        plan = family.make_plan(config, schedule, target)
        table = family.protocol(plan)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"--schedule: {error}") from None
    return Problem(config, schedule, plan, table, arch, family, row, parsed)


def parse_family(arch: str) -> Family:
    """The kernel that serves an architecture."""
    try:
        return family_of(target_for(arch))
    except ValueError as error:
        raise ArgumentError(f"--arch: {error}") from None


def parse_shape(text: str) -> tuple[int | None, int | None, int | None, int, int, int]:
    """Sizes of B,Sq,Skv,Hq,Hkv,D, the first three None where left open; their ranges are AttentionConfig's business."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != len(SIZE_NAMES):
        raise ArgumentError(
            f"--shape {text!r} has {len(parts)} values: allowed are six integers {','.join(SIZE_NAMES)}, "
            f"such as 1,256,256,2,1,128, with {OPEN} for those of {', '.join(RUN_TIME_NAMES)} known at run time only"
        )
    sizes: list[Any] = []
    for name, part in zip(SIZE_NAMES, parts, strict=True):
        if name in RUN_TIME_NAMES and part == OPEN:
            sizes.append(None)
        elif re.fullmatch(r"[+-]?[0-9]{1,20}", part):
            sizes.append(int(part))
        else:
            also = f" and {OPEN}" if name in RUN_TIME_NAMES else f" ({OPEN} is for {', '.join(RUN_TIME_NAMES)} only)"
            raise ArgumentError(f"--shape {text!r}: {name}={part!r}: allowed values are positive integers{also}")
    b, sq, skv, hq, hkv, d = sizes
    return b, sq, skv, hq, hkv, d


def parse_dtype(text: str) -> str:
    """Full name of a data type."""
    for name, short in DTYPES.items():
        if text in (name, short):
            return name
    allowed = ", ".join(f"{short} ({name})" for name, short in DTYPES.items())
    raise ArgumentError(f"--dtype {text!r}: allowed values are {allowed}")


def with_scale(config: AttentionConfig, text: str | None) -> AttentionConfig:
    """`config` with the factor on the logits that a text says; None leaves it at its default."""
    if text is None or text == RUNTIME:
        return replace(config, scale=RUNTIME if text else None)
    try:
        if not re.fullmatch(r"[0-9.eE+-]+", text):
            raise ValueError
        return replace(config, scale=float(text))
    except ValueError:
        low, high = SCALES
        allowed = f"numbers from {low:.3g} to {high:.3g} and {RUNTIME}"
        raise ArgumentError(f"--scale {text!r}: allowed values are {allowed}") from None


def parse_changes(items: Sequence[str], schedule: type[Any] = Schedule) -> dict[str, Any]:
    """Fields of a schedule's class of KEY=VALUE texts."""
    kinds = typing.get_type_hints(schedule)
    names = [field.name for field in fields(schedule)]
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


def _of_shape(text: str, error: Exception) -> ArgumentError:
    if isinstance(error, ArgumentError):
        return error
    message = str(error).replace("None", OPEN)  # a size left open, as --shape writes it
    return ArgumentError(f"--shape {text}: {message}")
