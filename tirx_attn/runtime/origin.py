"""What a kernel depends on besides its problem: the package's own files, and what generates and compiles with them."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tirx_attn.runtime.errors import CompileError

PACKAGE = Path(__file__).parents[1]
"""Folder of this package, from which the process imports it."""

PACKAGES = (
    "apache-tvm",
    "apache-tvm-ffi",
    "nvidia-cuda-cccl",
    "nvidia-cuda-crt",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-runtime",
)
"""What generates and compiles: TVM, NVRTC, and the headers that generated code includes."""


@dataclass(frozen=True)
class Origin:
    """What a kernel was made by.

    Attributes:
        versions: package -> version, of those of `PACKAGES` that are there.
        source: `source_hash` of this package.
    """

    versions: Mapping[str, str]
    source: str


@cache
def origin() -> Origin:
    """What this process works with, taken once: a running process stays with what it imported."""
    return Origin(installed(*PACKAGES), source_hash())


def installed(*names: str) -> dict[str, str]:
    """Package -> version of those that are installed: the package itself may run from its source."""
    found = {}
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def source_hash(package: Path = PACKAGE) -> str:
    """SHA-256 of the package's own files as they are now: they are edited without a new version."""
    digest = hashlib.sha256()
    for path in _files(package):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def copy_source(folder: Path) -> None:
    """Copy the package's files into `folder`, where no edit reaches them and no bytecode of earlier ones lies.

    Raises:
        CompileError: they are not those of `origin()` any more.
    """
    expected = origin().source
    changed = CompileError("the files of tirx_attn changed while this process ran: start it again")
    try:
        for path in _files(PACKAGE):
            copy = folder / path.relative_to(PACKAGE.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    except FileNotFoundError:
        raise changed from None
    if source_hash(folder / PACKAGE.name) != expected:
        raise changed


def _files(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))
