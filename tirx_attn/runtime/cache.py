"""Exported kernels on disk, so that each is compiled once per machine: many processes may ask for the same at once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.family import DEFAULT_ARCH, AnySchedule, plan_for
from tirx_attn.runtime.artifact import FORMAT, Description, installed, unseal
from tirx_attn.runtime.errors import ArtifactError, CompileError
from tirx_attn.runtime.export import library
from tirx_attn.runtime.files import write_atomic
from tirx_attn.runtime.nvrtc import DEFAULT_SECONDS

FOLDER_VARIABLE, LIMIT_VARIABLE = "TIRX_ATTN_CACHE", "TIRX_ATTN_CACHE_BYTES"

DEFAULT_LIMIT = 1 << 30
"""Bytes of all entries. docs/runtime.md has the size of one."""

NOTE_SECONDS = 5.0
"""How long to wait for another process before saying so."""

LEFTOVER_SECONDS = 3600.0

PACKAGES = ("apache-tvm", "apache-tvm-ffi", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime")

logger = logging.getLogger("tirx_attn")

Builder = Callable[[AttentionConfig, str, AnySchedule, float], bytes]


@dataclass(frozen=True)
class Entry:
    """One kernel of the cache.

    Attributes:
        path: its file.
        size: in bytes.
        used: when it was last asked for, in seconds since the epoch.
        description: what it is; None where the file cannot be used.
    """

    path: Path
    size: int
    used: float
    description: Description | None


class KernelCache:
    """A folder of exported kernels, named after everything that they depend on.

    An entry is whole or absent at every moment, and checked by its hash each time it is asked for; one that is damaged
    is built again. Of several processes or threads that want the same kernel one builds, the others wait. A process
    that dies leaves nothing that others would wait for. When all entries take more than `limit` bytes, those that were
    not used for longest go.

    Args:
        folder: made when it is needed. None takes $TIRX_ATTN_CACHE, else tirx_attn/kernels in the user's cache folder.
        limit: None takes $TIRX_ATTN_CACHE_BYTES, else 1 GiB.
        build: (config, arch, schedule, timeout) -> content of the file.

    Raises:
        ValueError: the limit is no positive number of bytes.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, limit: int | None = None, build: Builder = library
    ) -> None:
        self.folder = Path(folder if folder is not None else _default_folder())
        self.limit = _default_limit() if limit is None else limit
        if self.limit <= 0:
            raise ValueError(f"limit={self.limit}: allowed are positive numbers of bytes")
        self._build = build

    def get(
        self,
        config: AttentionConfig,
        arch: str = DEFAULT_ARCH,
        schedule: AnySchedule | None = None,
        *,
        timeout: float = DEFAULT_SECONDS,
    ) -> Path:
        """The file of a kernel, built first where it is not there.

        Args:
            config, arch, schedule: as for `export`.
            timeout: seconds that waiting for others may take, and then building.

        Raises:
            TypeError, ValueError, CompileError, ToolchainError: as `export`; CompileError also where another process
                takes longer than `timeout` to build the same kernel.
            OSError: the folder cannot be written to.
        """
        if not timeout > 0:
            raise ValueError(f"timeout={timeout!r}: allowed values are positive seconds")
        chosen = plan_for(config, schedule, arch).schedule
        path = self.path(config, arch, chosen)
        if self._usable(path):
            return path
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(path, timeout):
            if not self._usable(path):
                write_atomic(path, self._build(config, arch, chosen, timeout))
                self._shrink(path)
        return path

    def path(self, config: AttentionConfig, arch: str, schedule: AnySchedule) -> Path:
        """Where a kernel is, or would be."""
        return self.folder / f"{key(config, arch, schedule)}.so"

    def entries(self) -> list[Entry]:
        """What is there, the latest used first."""
        found = [_entry(path) for path in self.folder.glob("*.so")]
        return sorted((one for one in found if one is not None), key=lambda one: one.used, reverse=True)

    def clear(self) -> int:
        """Remove all entries. Returns their number. Kernels that are loaded stay usable."""
        entries = self.entries()
        for path in (*(one.path for one in entries), *self._leftovers()):
            path.unlink(missing_ok=True)
        return len(entries)

    def _leftovers(self) -> list[Path]:
        """Files of writers that died: nobody takes an hour to write."""
        found = []
        for path in self.folder.glob(".*.part"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                    found.append(path)
        return found

    def _usable(self, path: Path) -> bool:
        try:
            unseal(path.read_bytes(), path.name)
            os.utime(path)
        except FileNotFoundError:
            return False
        except ArtifactError as error:
            logger.warning("%s; it is built again", error)
            return False
        return True

    @contextmanager
    def _lock(self, path: Path, timeout: float) -> Iterator[None]:
        from filelock import FileLock, Timeout

        # Locks are never removed, so that nobody can hold one that has no name any more; there are 256 at most.
        lock = FileLock(self.folder / f"{path.name[:2]}.lock")
        start = time.monotonic()
        try:
            lock.acquire(min(NOTE_SECONDS, timeout))
        except Timeout:
            logger.warning("waiting up to %g s for another process that builds a kernel into %s", timeout, self.folder)
            try:
                lock.acquire(max(0.0, timeout - (time.monotonic() - start)))
            except Timeout:
                raise CompileError(f"another process took longer than {timeout:g} s to build {path.name}") from None
        try:
            yield
        finally:
            lock.release()

    def _shrink(self, kept: Path) -> None:
        for path in self._leftovers():
            path.unlink(missing_ok=True)
        entries = self.entries()
        total = sum(one.size for one in entries)
        for one in reversed(entries):
            if total <= self.limit:
                return
            if one.path != kept:
                one.path.unlink(missing_ok=True)
                total -= one.size


def key(config: AttentionConfig, arch: str, schedule: AnySchedule) -> str:
    """Name of a kernel: a hash of its problem, schedule, architecture, and of what generates and compiles it."""
    parts = [FORMAT, asdict(config), asdict(schedule), arch, _versions(), _source()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]


@cache
def _versions() -> dict[str, str]:
    return installed(*PACKAGES)


@cache
def _source() -> str:
    """Hash of the package's own files: they are edited without a new version."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _entry(path: Path) -> Entry | None:
    try:
        facts, content = path.stat(), path.read_bytes()
    except FileNotFoundError:  # removed by another process
        return None
    description: Any = None
    with suppress(ArtifactError):
        description = unseal(content, path.name)
    return Entry(path, facts.st_size, facts.st_mtime, description)


def _default_folder() -> Path:
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tirx_attn" / "kernels"


def _default_limit() -> int:
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return DEFAULT_LIMIT
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{LIMIT_VARIABLE}={text!r}: allowed are positive numbers of bytes")
    return int(text)
