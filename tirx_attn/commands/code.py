"""`tirx-attn code`: what a kernel's machine code says about its speed. Each role's loop in figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tirx_attn.analysis import CodeReport, RoleLoop, code_report
from tirx_attn.analysis.kinds import KINDS
from tirx_attn.commands import output
from tirx_attn.commands.arguments import (
    ArchOption,
    ArgumentError,
    CausalOption,
    DtypeOption,
    JsonOption,
    LseOption,
    OptionalShapeOption,
    Problem,
    ScaleOption,
    ScheduleOption,
    parse_problem,
)
from tirx_attn.commands.build import compile_problem
from tirx_attn.commands.wrap import command
from tirx_attn.config import HEAD_DIMS
from tirx_attn.family import DEFAULT_ARCH
from tirx_attn.runtime.cubin import Cubin
from tirx_attn.runtime.errors import CompileError, ToolchainError

CubinOption = Annotated[
    Path | None, typer.Option("--cubin", metavar="FILE", help="Machine code to read, instead of --shape.")
]
HeadSizeOption = Annotated[
    int | None,
    typer.Option(
        "--head-size",
        metavar="|".join(map(str, HEAD_DIMS)),
        help="D of the kernel in --cubin, 128 unless given: it counts the tiles of the mma and correction loops.",
    ),
]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print tables in Markdown.")]

TILE_UNIT = "per thread, query tile and key tile"
UNITS = {"mma": "per warp, query tile and key tile", "load": "per warp and iteration"}


@command
def code(
    shape: OptionalShapeOption = None,
    causal: CausalOption = False,
    dtype: DtypeOption = "fp16",
    lse: LseOption = False,
    scale: ScaleOption = None,
    arch: ArchOption = DEFAULT_ARCH,
    schedule: ScheduleOption = None,
    cubin: CubinOption = None,
    head_size: HeadSizeOption = None,
    markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> bool:
    """Show instructions and stalls of each role's loop.

    Read from the machine code, which does not run: stalls are what the assembler wrote down. docs/machine_code.md says
    what each figure means.

    Example: tirx-attn code --shape 1,8192,8192,32,32,128 --causal

    For a file: `tirx-attn code --cubin attention.sm_100a.cubin`
    """
    if markdown and as_json:
        raise ArgumentError("--markdown with --json: allowed is one of them")
    document: dict[str, Any] = {"command": "code"}
    if cubin is None:
        if shape is None:
            raise ArgumentError("--shape is missing: allowed is either --shape or --cubin")
        if head_size is not None:
            raise ArgumentError(f"--head-size {head_size}: allowed with --cubin only, --shape has it")
        problem = parse_problem(shape, causal, arch, schedule, dtype=dtype, lse=lse, scale=scale)
        title = f"{problem.title} on {problem.plan.target.name} ({problem.arch})"
        report = _build(problem)
        document |= problem.to_dict()
    else:
        of_a_problem = {
            "--shape": shape, "--causal": causal, "--lse": lse, "--scale": scale, "--schedule": schedule,
            "--dtype": dtype != "fp16", "--arch": arch != DEFAULT_ARCH,
        }  # fmt: skip
        for option, given in of_a_problem.items():
            if given:
                raise ArgumentError(f"--cubin {cubin} with {option}: allowed are --head-size, --markdown and --json")
        report = _read(cubin, head_size)
        title = f"{report.kernel} of {cubin} ({report.arch or 'architecture unknown'})"
        document["file"] = str(cubin)
    if as_json:
        output.print_json({**document, "report": report.to_dict()})
    elif markdown:
        output.stdout().print("\n".join(_markdown(report)), markup=False, soft_wrap=True)
    else:
        _print(title, report)
    return True


def _build(problem: Problem) -> CodeReport:
    reporter = output.Reporter()
    built = compile_problem(problem, reporter)
    with reporter.step(f"{problem.arch}: report"):
        return code_report(built.cubin, head_size=problem.config.D)


def _read(file: Path, head_size: int | None) -> CodeReport:
    size = HEAD_DIMS[-1] if head_size is None else head_size
    if size not in HEAD_DIMS:
        raise ArgumentError(f"--head-size {size}: allowed values are {', '.join(map(str, HEAD_DIMS))}")
    try:
        return code_report(Cubin.of_image(file.read_bytes()), head_size=size)
    except ToolchainError:
        raise
    except (OSError, CompileError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ArgumentError(f"--cubin {file}: {reason}; allowed are cubins of one kernel") from None


def kernel_rows(report: CodeReport) -> dict[str, str]:
    """Name -> value of the figures of the whole kernel."""
    resources = report.resources
    return {
        "registers at launch": str(resources.registers),
        "registers by setmaxnreg": ", ".join(map(str, resources.register_requests)) or "-",
        "spill instructions": str(resources.spill_instructions),
        "hardware barriers": str(resources.barriers),
        "code, bytes": f"{resources.code_bytes:,}",
        "instructions": f"{report.instructions:,}",
        "assembler": resources.assembler_version or "-",
    }


def loop_rows(report: CodeReport, loop: RoleLoop) -> dict[str, str]:
    """Name -> value of the figures of one loop, all counts and sums for a tile."""

    def per_tile(figure: float) -> str:
        return f"{loop.per_tile(figure):,.2f}".rstrip("0").rstrip(".")

    rows = {
        "from": f"{loop.start:#x}",
        "to": f"{loop.end:#x}",
        "tiles an iteration": f"{loop.tiles:g}",
        "instructions": per_tile(loop.instructions),
        "instructions, always": per_tile(loop.always_instructions),
        "stall cycles": per_tile(loop.stalls),
        "stall cycles, always": per_tile(loop.always_stalls),
    }
    if loop.elements:
        share = report.mufu_share(loop)
        rows |= {
            "MUFU busy": "-" if share is None else f"{share:.0%}",
            "exponentials emulated": f"{per_tile(loop.emulated)} ({100 * loop.emulated_share:.4g}%)",
            "exponentials of the rescale": per_tile(loop.rescales),
            "cycles to the P arrivals": ", ".join(map(str, loop.p_arrivals)) or "-",
            "cycles before, over, after MUFU": ", ".join(map(str, loop.phases)),
        }
        if loop.always_stalls != loop.stalls:
            rows |= {
                "cycles to the P arrivals, always": ", ".join(map(str, loop.always_p_arrivals)) or "-",
                "cycles before, over, after MUFU, always": ", ".join(map(str, loop.always_phases)),
            }
    if loop.surrounds:
        rows["around"] = f"{loop.surrounds[0]:#x} to {loop.surrounds[1]:#x}"
    return rows | {kind: per_tile(count) for kind, count in loop.kinds.items()}


def _print(title: str, report: CodeReport) -> None:
    console = output.stdout()
    console.print(title, style="bold", markup=False, soft_wrap=True)
    console.print()
    tables = [("Kernel", "value", kernel_rows(report))]
    tables += [(f"{loop.role} loop", UNITS.get(loop.role, TILE_UNIT), loop_rows(report, loop)) for loop in report.shown]
    for name, unit, rows in tables:
        made = output.table(name, "figure", unit)
        made.columns[1].justify = "right"
        for figure, value in rows.items():
            made.add_row(figure, value)
        console.print(made)
        console.print()


def _markdown(report: CodeReport) -> list[str]:
    """A table of the kernel, and one with a column for each role."""
    columns = {loop.role: loop_rows(report, loop) for loop in report.shown}
    figures = dict.fromkeys(name for rows in columns.values() for name in rows if name not in KINDS)
    names = [*figures, *(kind for kind in KINDS if any(kind in rows for rows in columns.values()))]
    lines = ["| kernel | |", "|---|---:|"]
    lines += [f"| {name} | {value} |" for name, value in kernel_rows(report).items()]
    lines += ["", f"| loop | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    return lines + [f"| {name} | {' | '.join(rows.get(name, '') for rows in columns.values())} |" for name in names]
