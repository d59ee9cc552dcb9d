"""`tirx-attn variants`: the shipped variants of the protocol, what the checkers, the machine code and the model say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirx_attn.commands import output, proof
from tirx_attn.commands.arguments import ArgumentError, JsonOption, parse_seconds
from tirx_attn.commands.check import TimeLimitOption
from tirx_attn.commands.wrap import command
from tirx_attn.config import AttentionConfig
from tirx_attn.schedule import Schedule, make_plan
from tirx_attn.schedule.variants import VARIANTS, Variant, variant

if TYPE_CHECKING:
    from tirx_attn.verify.variants import Proof, Record

MASKS = {"none": False, "causal": True}
LONG = AttentionConfig(1, 8192, 8192, 32, 32, 128)
"""What the model is asked about."""

CLEAN, NOT_RUN = "clean", "not run"
CHECKS = ("structure", "synccheck", "racecheck", "numbers")
COLUMNS = (
    "variant", "mask", "checks", "error", "instructions", "stalls", "P arrivals", "MMA", "correction", "spills", "µs",
    "change",
)  # fmt: skip

MaskOption = Annotated[
    str | None, typer.Option("--mask", metavar="|".join(MASKS), help="This mask only. Without it, both.")
]
VariantOption = Annotated[
    list[str] | None, typer.Option("--variant", metavar="NAME", help="This variant only. Repeatable. Without it, all.")
]
SimulateOption = Annotated[
    bool, typer.Option("--simulate/--no-simulate", help="Prove on the simulator what no FILE says yet.")
]
RecordOption = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Keep what the simulator says, kernel by kernel; those in it do not run again.",
    ),
]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print the table of docs/variants.md.")]


@dataclass(frozen=True)
class Row:
    """One variant with one mask.

    Attributes:
        variant: its name.
        mask: key of MASKS.
        is_tuned: it is the tuned row of that mask.
        schedule: all knobs.
        structure, synccheck, racecheck, numbers: "clean", "not run", or what was found.
        error: largest error as a part of what the rule allows.
        findings: what was reported.
        instructions, stalls: steady loop of softmax, for a query tile and key block.
        p_arrivals: stall cycles to the hand-overs of P in it, and to passing the turn on.
        mma, correction: stall cycles of these warps for the same; of correction what it always runs.
        registers, spills: registers at launch; instructions that move spilled ones.
        time_us: the model's time of LONG.
        change: that against the tuned row's, in %.
    """

    variant: str
    mask: str
    is_tuned: bool
    schedule: dict[str, Any]
    structure: str
    synccheck: str
    racecheck: str
    numbers: str
    error: float | None
    findings: tuple[str, ...]
    instructions: int
    stalls: int
    p_arrivals: tuple[int, ...]
    mma: float
    correction: float
    registers: int
    spills: int
    time_us: float
    change: float

    @property
    def is_fine(self) -> bool:
        """Nothing was found by what was run."""
        return {getattr(self, name) for name in CHECKS} <= {CLEAN, NOT_RUN}

    @property
    def checks(self) -> str:
        """The verdicts in a word where they are all clean."""
        groups: dict[str, list[str]] = {}
        for name in CHECKS:
            groups.setdefault(getattr(self, name), []).append(name)
        if list(groups) == [CLEAN]:
            return CLEAN
        return "; ".join(f"{', '.join(names)} {verdict}" for verdict, names in groups.items())

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of COLUMNS."""
        arrivals = ", ".join(map(str, self.p_arrivals))
        error = "-" if self.error is None else f"{self.error:.2f}"
        change = "tuned" if self.is_tuned else f"{self.change:+.1f} %"
        return (
            self.variant, self.mask, self.checks, error, str(self.instructions), str(self.stalls), arrivals,
            f"{self.mma:.0f}", f"{self.correction:.0f}", str(self.spills), f"{self.time_us:,.0f}", change,
        )  # fmt: skip


@command
def variants(
    mask: MaskOption = None,
    variant_: VariantOption = None,
    simulate: SimulateOption = True,
    record: RecordOption = None,
    time_limit: TimeLimitOption = "600",
    markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> bool:
    """Prove and measure the shipped variants of the protocol.

    Each one, with either mask, is checked by structure; run on the simulator with ordinary data, with keys that force a
    rescale in every block and with keys that force none, numbers and both checkers; compiled to machine code for
    sm_100a; and timed by the model. Some two minutes each on the simulator. Ctrl-C shows what is done.

    Example: tirx-attn variants --variant statistics-tmem --mask causal --no-simulate
    """
    if markdown and as_json:
        raise ArgumentError("--markdown with --json: allowed is one of them")
    if mask is not None and mask not in MASKS:
        raise ArgumentError(f"--mask {mask!r}: allowed values are {', '.join(MASKS)}")
    try:
        chosen = [variant(name) for name in dict.fromkeys(variant_)] if variant_ else list(VARIANTS)
    except ValueError as error:
        raise ArgumentError(f"--variant {error}") from None
    limit = parse_seconds("--time-limit", time_limit)
    kept = _record(record, simulate)
    wanted = [(each, name) for each in chosen for name in ([mask] if mask else MASKS)]
    reporter = output.Reporter(total=len(wanted))
    bench = _Bench(kept, limit if simulate else None)
    rows: list[Row] = []
    try:
        for each, name in wanted:
            with reporter.step(f"{each.name}, mask {name}") as note:
                rows.append(bench.row(each, name, note))
    except KeyboardInterrupt:
        if rows:
            reporter.note(f"interrupted: {len(rows)} of {len(wanted)} rows are done")
            _show(rows, markdown, as_json, complete=False)
        raise
    _show(rows, markdown, as_json, complete=True)
    return all(row.is_fine for row in rows)


def _record(path: Path | None, simulate: bool) -> Record:
    from tirx_attn.verify import SimulatorUnavailable, require_simulator
    from tirx_attn.verify.variants import Record

    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ArgumentError(f"--output {path}: allowed are files in a folder that exists")
    if path is not None and not os.access(path.parent, os.W_OK | os.X_OK):
        raise ArgumentError(f"--output {path}: {path.parent} may not be written to, allowed are folders that may")
    try:
        made = Record(path)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"--output {error}") from None
    if simulate:
        try:
            require_simulator()
        except SimulatorUnavailable as error:
            raise ArgumentError(f"--simulate: {error}; allowed here is --no-simulate") from None
    return made


class _Bench:
    """Makes rows. What two of them share is made once. Without a time limit no kernel is simulated that is not yet."""

    def __init__(self, record: Record, time_limit: float | None):
        self._record, self._limit = record, time_limit
        self._measured: dict[tuple[Schedule, bool], dict[str, Any]] = {}
        self._proved: dict[tuple[Schedule, bool], dict[str, Any]] = {}

    def row(self, each: Variant, mask: str, note: Callable[[str], None]) -> Row:
        """One variant with one mask."""
        config = replace(LONG, is_causal=MASKS[mask])
        schedule = each.schedule(config)
        measured = self._measure(schedule, config)
        base = self._measure(make_plan(config).schedule, config)["time_us"]
        return Row(
            variant=each.name, mask=mask, is_tuned=each.is_tuned(config), schedule=asdict(schedule),
            **self._prove(schedule, config.is_causal, note), **measured,
            change=100 * (measured["time_us"] / base - 1),
        )  # fmt: skip

    def _measure(self, schedule: Schedule, config: AttentionConfig) -> dict[str, Any]:
        key = schedule, config.is_causal
        if key not in self._measured:
            self._measured[key] = measure(schedule, config)
        return self._measured[key]

    def _prove(self, schedule: Schedule, is_causal: bool, note: Callable[[str], None]) -> dict[str, Any]:
        key = schedule, is_causal
        if key not in self._proved:
            self._proved[key] = self._judge(schedule, is_causal, note)
        return self._proved[key]

    def _judge(self, schedule: Schedule, is_causal: bool, note: Callable[[str], None]) -> dict[str, Any]:
        from tirx_attn.kernel import build_kernel
        from tirx_attn.verify.variants import kernel_key, proof_plan, prove

        func = build_kernel(proof_plan(schedule, is_causal))
        structure = proof.check_structure(func)
        faults = tuple(f"structure: {each['message'].splitlines()[0]}" for each in structure.findings)
        verdict = CLEAN if structure.status == proof.PASSED else structure.figures.get("verdict", proof.FAILED)
        key = kernel_key(func, is_causal)
        found: Proof | None = self._record.find(key) if verdict == CLEAN else None
        if found is None and verdict == CLEAN and self._limit is not None:
            found = prove(func, is_causal, time_limit=self._limit, notes=note, key=key)
            self._record.add(found)
        if found is None:
            skipped = dict.fromkeys(CHECKS[1:], NOT_RUN)
            return {"structure": verdict, **skipped, "error": None, "findings": faults}
        names = (*CHECKS[1:], "error", "findings")
        return {"structure": verdict, **{name: getattr(found, name) for name in names}}


def measure(schedule: Schedule, config: AttentionConfig) -> dict[str, Any]:
    """Figures of the machine code for all lengths, and the model's time of one problem."""
    from tirx_attn.analysis import code_report
    from tirx_attn.analysis.timeline import Tasks
    from tirx_attn.analysis.timeline.measured import figures_of, mma_stalls
    from tirx_attn.commands.model import predict_plan
    from tirx_attn.runtime.builder import build

    plan = make_plan(config, schedule)
    built = build(Tasks(plan).open_plan().config, schedule=schedule)
    report = code_report(built.cubin, head_size=config.D)
    figures = figures_of(built.cubin, config.D, takes_turns=schedule.stagger)
    softmax, correction = report.role("softmax"), report.role("correction")
    assert softmax is not None  # figures_of refuses machine code without them
    assert correction is not None
    return {
        "instructions": softmax.instructions,
        "stalls": softmax.stalls,
        "p_arrivals": softmax.p_arrivals,
        "mma": mma_stalls(report),
        "correction": correction.per_tile(correction.always_stalls),
        "registers": report.resources.registers,
        "spills": report.resources.spill_instructions,
        "time_us": predict_plan(plan, figures, built.func)[0].time_us,
    }


def to_markdown(rows: Iterable[Row]) -> str:
    """The table of docs/variants.md."""
    aligned = ["---" if name in COLUMNS[:3] else "---:" for name in COLUMNS]
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'|'.join(aligned)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row.cells)} |" for row in rows)]) + "\n"


def _show(rows: Sequence[Row], markdown: bool, as_json: bool, complete: bool) -> None:
    if as_json:
        verdict = "passed" if all(row.is_fine for row in rows) else "failed"
        document = {"command": "variants", "complete": complete, "verdict": verdict}
        output.print_json({**document, "shape": asdict(LONG), "rows": [asdict(row) for row in rows]})
        return
    if markdown:
        print(to_markdown(rows), end="")
        return
    console = output.stdout()
    made = output.table("Variants", *COLUMNS)
    for column in made.columns[3:]:
        column.justify = "right"
    for row in rows:
        made.add_row(*row.cells)
    console.print(made)
    for row in rows:
        for finding in row.findings:
            console.print(f"{row.variant}, mask {row.mask}: {finding}", markup=False, soft_wrap=True)
