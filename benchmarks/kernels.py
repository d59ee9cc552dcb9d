"""Our kernels as shared libraries: their names, how they are made, and the one place that loads them.

TIRX_ATTN_LIBRARIES names the folder of TVM's runtime libraries where TVM is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.shapes import Shape, mask_name
from tirx_attn.config import DTYPES, AttentionConfig
from tirx_attn.hopper.schedule import HopperSchedule

ARCH = "sm_90a"


def open_config(config: AttentionConfig) -> AttentionConfig:
    """The configuration that the library of `config` is built from: B, Sq and Skv are read at run time."""
    return AttentionConfig(None, None, None, config.Hq, config.Hkv, config.D, config.is_causal, dtype=config.dtype)


def library_name(config: AttentionConfig) -> str:
    """File name of the library that serves `config`."""
    return f"attention_{DTYPES[config.dtype]}_{mask_name(config)}_h{config.Hq}x{config.Hkv}_d{config.D}.so"


def needed(shapes: Iterable[Shape]) -> dict[str, AttentionConfig]:
    """File name -> configuration of every library that `shapes` need."""
    return {library_name(shape.config): open_config(shape.config) for shape in shapes}


def export_all(shapes: Iterable[Shape], folder: Path, changes: Sequence[str] = ()) -> Iterator[Path]:
    """Write the libraries that `shapes` need, one after the other; this wants TVM and no GPU.

    Args:
        changes: knobs of the schedule, each KEY=VALUE, laid over the tuned ones.
    """
    from tirx_attn.commands.arguments import parse_changes
    from tirx_attn.family import plan_for
    from tirx_attn.runtime.export import export

    knobs = parse_changes(changes, HopperSchedule)
    folder.mkdir(parents=True, exist_ok=True)
    for name, config in needed(shapes).items():
        schedule = replace(plan_for(config, arch=ARCH).schedule, **knobs)
        yield from export(config, folder / name, (ARCH,), schedule=schedule)


def load(path: Path) -> Callable[..., Any]:
    """The kernel in the library `path`; it is called as `kernel(q, k, v, o)` on the current stream.

    Raises:
        FileNotFoundError: there is no such library.
    """
    from tirx_attn.runtime.load import load as load_kernel

    return load_kernel(path, libraries=os.environ.get("TIRX_ATTN_LIBRARIES") or None)
