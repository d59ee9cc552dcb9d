"""The command line: `tirx-attn`. Each command is a file of commands/."""

from __future__ import annotations

import importlib.metadata
import io
import sys
from typing import Annotated

import typer

from tirx_attn.commands.build import build
from tirx_attn.commands.cache import cache
from tirx_attn.commands.check import check
from tirx_attn.commands.code import code
from tirx_attn.commands.demo import demo
from tirx_attn.commands.explore import explore
from tirx_attn.commands.export import export
from tirx_attn.commands.lean import hide_torch_from_tvm
from tirx_attn.commands.model import model
from tirx_attn.commands.mutants import mutants
from tirx_attn.commands.plan import plan
from tirx_attn.commands.records import records
from tirx_attn.commands.streams import guarded
from tirx_attn.commands.tune import tune
from tirx_attn.commands.variants import variants

HELP = """Attention forward kernels for NVIDIA Blackwell and Hopper, generated with TIRx.

Everything runs without a GPU and without a CUDA toolkit. Results go to stdout, progress to stderr; with --json every
command prints one JSON document.

Exit status: 0 fine, 1 a check failed or was skipped, 2 bad arguments, 130 interrupted, 143 terminated.
"""

EXAMPLES = """Examples:

`tirx-attn demo`

`tirx-attn plan --shape 1,4096,4096,32,8,128 --causal`

`tirx-attn build --shape 1,8192,8192,32,32,128 --emit cubin,cuda -o build`

`tirx-attn export --shape _,_,_,32,8,128 --causal --arch sm_100a --arch sm_90a -o attention.so`

`tirx-attn check --shape 1,256,256,2,1,128 --causal --schedule stagger=true`

`tirx-attn code --shape 1,8192,8192,32,32,128 --causal`

`tirx-attn model --shape 1,8192,8192,32,32,128 --causal`

`tirx-attn explore --shape 1,8192,8192,32,32,128 -o page`

`tirx-attn tune --shape 1,4096,4096,32,8,128 --knob kv_stages`

`tirx-attn variants --variant statistics-tmem --no-simulate`

`tirx-attn mutants --simulate none`

`tirx-attn records --stale`

`tirx-attn cache`
"""

app = typer.Typer(
    name="tirx-attn",
    help=HELP,
    epilog=EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for function in (demo, build, export, check, plan, code, model, explore, tune, variants, mutants, records, cache):
    app.command()(function)


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            version = importlib.metadata.version("tirx-attn")
        except importlib.metadata.PackageNotFoundError:
            version = "(not installed: run from its source)"
        typer.echo(f"tirx-attn {version}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Entry point of `tirx-attn`."""
    hide_torch_from_tvm()
    with guarded("tirx-attn"):
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal without the field's symbols shows "?" for them
        app(prog_name="tirx-attn")
