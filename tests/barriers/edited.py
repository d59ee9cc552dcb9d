"""A copy of the package with edits in its source, as a user who changes a role has it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[2] / "tirx_attn"

Edits = Mapping[str, Sequence[tuple[str, str]]]
"""File of the package -> (text that it has once, text in its place); in place of nothing it is added at the end, where
a function takes the place of one of its name."""


@contextmanager
def edited(folder: Path, edits: Edits) -> Iterator[Path]:
    """Import `tirx_attn` from an edited copy in a folder while the context lasts; gives that copy's path."""
    copy = folder / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in edits.items():
        (copy / name).write_text(_changed(name, changes), encoding="utf-8")
    own = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == PACKAGE.name}
    sys.path.insert(0, str(folder))
    try:
        yield copy
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE.name]:
            del sys.modules[name]
        sys.modules.update(own)


def build(folder: Path, edits: Edits, shape: tuple[int, ...], arch: str = "sm_100a", is_causal: bool = False) -> Any:
    """PrimFunc of the edited package."""
    with edited(folder, edits):
        from tirx_attn.config import AttentionConfig
        from tirx_attn.family import get_kernel

        return get_kernel(AttentionConfig(*shape, is_causal), arch=arch)


def place(edits: Edits, name: str, text: str) -> str:
    """Where the last copy of a text begins in an edited file, as a finding has it."""
    source = _changed(name, edits.get(name, ()))
    return f"{name}:{source[: source.rindex(text)].count(chr(10)) + 1}"


def _changed(name: str, changes: Sequence[tuple[str, str]]) -> str:
    source = (PACKAGE / name).read_text(encoding="utf-8")
    for old, new in changes:
        assert not old or source.count(old) == 1, (name, old)
        source = source.replace(old, new) if old else source + new
    return source
