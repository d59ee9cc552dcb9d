"""`tirx-attn build`: a kernel as machine code, CUDA source, TIR or disassembly, in files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirx_attn.commands import output
from tirx_attn.commands.arguments import (
    ARCHS,
    ArgumentError,
    CausalOption,
    DtypeOption,
    JsonOption,
    LseOption,
    Problem,
    ScaleOption,
    ScheduleOption,
    ShapeOption,
    parse_list,
    parse_problem,
)
from tirx_attn.commands.wrap import command
from tirx_attn.runtime.builder import EMITS
from tirx_attn.runtime.builder import build as build_kernel

if TYPE_CHECKING:
    from tirx_attn.runtime import Build

PHASE_TEXTS = {"trace": "TIRx function", "lower": "CUDA source", "nvrtc": "machine code"}

ArchsOption = Annotated[
    list[str] | None,
    typer.Option("--arch", metavar="ARCH", help=f"Target: {ARCHS}. Repeatable. Without it, sm_100a."),
]
EmitOption = Annotated[str, typer.Option("--emit", metavar="KIND,...", help=f"What to write: {', '.join(EMITS)}.")]
FolderOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the files; made if need be.")
]


@command
def build(
    shape: ShapeOption,
    folder: FolderOption,
    causal: CausalOption = False,
    dtype: DtypeOption = "fp16",
    lse: LseOption = False,
    scale: ScaleOption = None,
    arch: ArchsOption = None,
    emit: EmitOption = "cubin",
    schedule: ScheduleOption = None,
    as_json: JsonOption = False,
) -> bool:
    """Generate one kernel and write its machine code, CUDA source, TIR.

    Needs no GPU and no CUDA toolkit.

    Example: tirx-attn build --shape 1,8192,8192,32,8,128 --causal --arch sm_100a --arch sm_103a -o build

    For all lengths: `tirx-attn build --shape _,_,_,32,8,128 --causal --dtype bf16 --lse -o build`
    """
    kinds = parse_list("--emit", emit, EMITS)
    problems = [
        parse_problem(shape, causal, name, schedule, dtype=dtype, lse=lse, scale=scale)
        for name in dict.fromkeys(arch or ["sm_100a"])
    ]
    check_folder(folder)
    reporter = output.Reporter()
    records = []
    for problem in problems:
        built = compile_problem(problem, reporter)
        with reporter.step(f"{problem.arch}: files and resources"):
            record = {"parameters": problem.parameters, **machine_code_record(built)}
            record["files"] = [str(path) for path in save(built, folder, problem.stem, kinds)]
        records.append((problem, record))
    if as_json:
        builds = [{**problem.to_dict(), **record} for problem, record in records]
        output.print_json({"command": "build", "builds": builds})
        return True
    _print(problems[0], records)
    return True


def compile_problem(problem: Problem, reporter: output.Reporter) -> Build:
    """Machine code of a problem, with progress."""
    with reporter.step(f"{problem.arch}: {problem.title}, to machine code") as note:
        return build_kernel(
            problem.config,
            schedule=problem.schedule,
            arch=problem.arch,
            progress=lambda phase: note(PHASE_TEXTS[phase]),
        )


def machine_code_record(built: Build) -> dict[str, Any]:
    """Time per phase and what the machine code needs, JSON-able."""
    resources = built.cubin.resources().to_dict()
    return {
        "seconds": {phase: round(seconds, 3) for phase, seconds in built.seconds.items()},
        "nvrtc_version": built.cubin.nvrtc_version,
        "source_sha256": built.cubin.source_hash,
        "resources": resources,
    }


def save(built: Build, folder: Path, stem: str, kinds: list[str]) -> list[Path]:
    """The chosen files. The TIR is named after the architecture too: its schedule may depend on it."""
    files = []
    for kind in kinds:
        name = f"{stem}.{built.arch}" if kind == "tir" else stem
        files += built.save(folder, name, [kind])
    return files


def check_folder(folder: Path) -> None:
    """Refuse, before any work, a folder that cannot be made or written to."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise ArgumentError(f"-o {folder}: {existing} is not a folder, allowed are folders, existing or not")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ArgumentError(f"-o {folder}: {existing} may not be written to, allowed are folders that may")


def _print(problem: Problem, records: list[tuple[Problem, dict[str, Any]]]) -> None:
    made = output.table(problem.title, "machine code", *(each.arch for each, _ in records))
    rows = {
        "registers at launch": lambda r: str(r["resources"]["registers"]),
        "registers by setmaxnreg": lambda r: ", ".join(map(str, r["resources"]["register_requests"])),
        "spill instructions": lambda r: str(r["resources"]["spill_instructions"]),
        "shared memory, bytes": lambda r: (
            f"{r['resources']['dynamic_smem']:,} dynamic, {r['resources']['static_smem']:,} static"
        ),
        "hardware barriers": lambda r: str(r["resources"]["barriers"]),
        "instructions": lambda r: f"{r['resources']['instructions']:,}",
        "seconds": lambda r: ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in r["seconds"].items()),
        "NVRTC": lambda r: r["nvrtc_version"],
    }
    for name, cell in rows.items():
        made.add_row(name, *(cell(record) for _, record in records))
    console = output.stdout()
    console.print(made)
    for _, record in records:
        for path in record["files"]:
            console.print(path, markup=False, soft_wrap=True)
