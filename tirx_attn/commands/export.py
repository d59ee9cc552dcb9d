"""`tirx-attn export`: a kernel as shared libraries that need no compiler where they are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tirx_attn.commands import output
from tirx_attn.commands.arguments import (
    ARCHS,
    ArgumentError,
    CausalOption,
    DtypeOption,
    JsonOption,
    LseOption,
    ScaleOption,
    ScheduleOption,
    ShapeOption,
    parse_problem,
    parse_seconds,
)
from tirx_attn.commands.wrap import command
from tirx_attn.family import DEFAULT_ARCH
from tirx_attn.runtime.artifact import unseal
from tirx_attn.runtime.export import export as export_kernel
from tirx_attn.runtime.export import path_for
from tirx_attn.runtime.nvrtc import DEFAULT_SECONDS


@command
def export(
    shape: ShapeOption,
    path: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The library, such as kernel.so.")],
    causal: CausalOption = False,
    dtype: DtypeOption = "fp16",
    lse: LseOption = False,
    scale: ScaleOption = None,
    arch: Annotated[
        list[str] | None,
        typer.Option("--arch", metavar="ARCH", help=f"Target: {ARCHS}; {DEFAULT_ARCH} unless given. Repeatable."),
    ] = None,
    schedule: ScheduleOption = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="SECONDS", help="Time limit for each architecture.")
    ] = f"{DEFAULT_SECONDS:g}",
    as_json: JsonOption = False,
) -> bool:
    """Write a kernel as a shared library that needs no compiler.

    It holds the machine code, the host launcher, and a description under a hash of the whole file. With several --arch
    each has a file of its own, named FILE with the architecture before the suffix. Loading one needs apache-tvm-ffi and
    TVM's runtime libraries only: `tirx_attn.load(FILE)`, or the C++ API of tvm-ffi.

    Example: `tirx-attn export --shape _,_,_,32,8,128 --causal --arch sm_100a --arch sm_90a -o attention.so`
    """
    archs = arch or [DEFAULT_ARCH]
    seconds = parse_seconds("--timeout", timeout)
    problems = [
        parse_problem(shape, causal, each, schedule, dtype=dtype, lse=lse, scale=scale) for each in dict.fromkeys(archs)
    ]
    if not path.parent.is_dir() or path.is_dir():
        raise ArgumentError(f"-o {path}: allowed are files in a folder that exists")
    reporter = output.Reporter(len(problems) if len(problems) > 1 else None)
    records = []
    for each in problems:  # one by one, since what is tuned differs between architectures
        file = path if len(problems) == 1 else path_for(path, each.arch)
        with reporter.step(f"{each.arch}: {each.title}, to a shared library"):
            export_kernel(each.config, file, (each.arch,), schedule=each.schedule, timeout=seconds)
        records.append(_record(file))
    if as_json:
        output.print_json({"command": "export", "verdict": "passed", "files": records})
        return True
    made = output.table(problems[0].title, "file", "arch", "bytes", "made with")
    for record in records:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(record["versions"].items()))
        made.add_row(record["path"], record["arch"], f"{record['bytes']:,}", versions)
    output.stdout().print(made)
    return True


def _record(file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    return {"path": str(file), "bytes": len(content), **unseal(content, file.name).to_dict()}
