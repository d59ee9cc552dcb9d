"""`tirx-attn cache`: the kernels that were compiled on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tirx_attn.commands import output
from tirx_attn.commands.arguments import ArgumentError, JsonOption
from tirx_attn.commands.wrap import command
from tirx_attn.config import DTYPES
from tirx_attn.runtime.cache import LIMIT_VARIABLE, Entry, KernelCache
from tirx_attn.runtime.places import FOLDER_VARIABLE


@command
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all kernels of the cache.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="FOLDER", help=f"The cache; ${FOLDER_VARIABLE} unless given.")
    ] = None,
    as_json: JsonOption = False,
) -> bool:
    """Show the kernels of the compile cache, or remove them.

    The environment variable TIRX_ATTN_CACHE names the folder, TIRX_ATTN_CACHE_BYTES the largest size of all entries.

    Example: `tirx-attn cache --json`
    """
    try:
        kernels = KernelCache(folder)
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    if kernels.folder.exists() and not kernels.folder.is_dir():
        raise ArgumentError(f"{kernels.named if folder is None else f'--folder {folder}'}: allowed are folders")
    entries = kernels.entries()
    removed = kernels.clear() if clear else 0
    document = {
        "command": "cache",
        "verdict": "passed",
        "folder": str(kernels.folder),
        "limit_bytes": kernels.limit,
        "removed": removed,
        "entries": [] if clear else [_record(each) for each in entries],
    }
    if as_json:
        output.print_json(document)
        return True
    console = output.stdout()
    if clear:
        console.print(f"{kernels.folder}: {removed} kernels removed", markup=False, soft_wrap=True)
        return True
    total = sum(each.size for each in entries)
    title = f"{kernels.folder}: {len(entries)} kernels, {total:,} of {kernels.limit:,} bytes ({LIMIT_VARIABLE})"
    made = output.table(title, "kernel", "arch", "bytes", "last used", "file")
    for each in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.used))
        arch = each.description.arch if each.description else "-"
        made.add_row(_title(each), arch, f"{each.size:,}", used, each.path.name)
    console.print(made)
    return True


def _title(entry: Entry) -> str:
    if entry.description is None:
        return "damaged or not readable: it is built again when it is asked for"
    c = entry.description.config
    words = ["causal" if c.is_causal else "full", f"Hq={c.Hq}", f"Hkv={c.Hkv}", f"D={c.D}", DTYPES[c.dtype]]
    words += [f"{name}={getattr(c, name)}" for name in ("B", "Sq", "Skv") if getattr(c, name) is not None]
    words += ["LSE"] * c.return_lse + ([] if c.scale is None else [f"scale={c.scale}"])
    return " ".join(words)


def _record(entry: Entry) -> dict[str, Any]:
    described = None if entry.description is None else entry.description.to_dict()
    return {"path": str(entry.path), "bytes": entry.size, "used": entry.used, "description": described}
