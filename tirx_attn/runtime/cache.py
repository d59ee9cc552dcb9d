"""Exported kernels on disk, so that each is compiled once per machine: many processes may ask for the same at once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.family import DEFAULT_ARCH, AnySchedule, plan_for
from tirx_attn.runtime.artifact import FORMAT, Description, unseal
from tirx_attn.runtime.errors import ArtifactError, CompileError
from tirx_attn.runtime.export import library
from tirx_attn.runtime.files import write_atomic
from tirx_attn.runtime.nvrtc import DEFAULT_SECONDS
from tirx_attn.runtime.origin import Origin, origin
from tirx_attn.runtime.places import FOLDER_VARIABLE, cache_folder

LIMIT_VARIABLE = "TIRX_ATTN_CACHE_BYTES"

DEFAULT_LIMIT = 1 << 30
"""Bytes of all entries. docs/runtime.md has the size of one."""

NOTE_SECONDS = 5.0
"""How long to wait for another process before saying so."""

LEFTOVER_SECONDS = 3600.0

logger = logging.getLogger("tirx_attn")

Builder = Callable[[AttentionConfig, str, AnySchedule, float], bytes]


@dataclass(frozen=True)
class Entry:
    """One kernel of the cache.

    Attributes:
        path: its file.
        size: in bytes.
        used: when it was last asked for, in seconds since the epoch.
        description: what it is; None where the file is damaged or may not be read.
    """

    path: Path
    size: int
    used: float
    description: Description | None


class KernelCache:
    """A folder of exported kernels, named after everything that they depend on.

    An entry is whole or absent at every moment, and checked each time it is asked for: by its hash, and that it has the
    name of what it says it is. One that fails is built again. Of several processes or threads that want the same kernel
    one builds, the others wait. A process that dies leaves nothing that others would wait for. When all entries take
    more than `limit` bytes, those that were not used for longest go. A folder that can only be read gives what it has.

    Args:
        folder: made when it is needed. None takes $TIRX_ATTN_CACHE, else tirx_attn/kernels in the user's cache folder.
        limit: None takes $TIRX_ATTN_CACHE_BYTES, else 1 GiB.
        build: (config, arch, schedule, timeout) -> content of the file.

    Attributes:
        named: what names the folder, such as "TIRX_ATTN_CACHE=/var/kernels", for messages.

    Raises:
        ValueError: the limit is no positive number of bytes, or $TIRX_ATTN_CACHE is relative.
        FileNotFoundError: there is neither a folder nor a home.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, limit: int | None = None, build: Builder = library
    ) -> None:
        self._explicit = folder is not None
        self.folder, self.named = cache_folder() if folder is None else (Path(folder).absolute(), f"folder={folder}")
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
                takes longer than `timeout` to build the same kernel, and where the kernel was made by another TVM or
                NVRTC than those that this process found.
            OSError: the kernel is not there and cannot be written. The message says what to set.
        """
        if not timeout > 0:
            raise ValueError(f"timeout={timeout!r}: allowed values are positive seconds")
        chosen = plan_for(config, schedule, arch).schedule
        path = self.path(config, arch, chosen)
        if self._usable(path):
            return path
        with self._writable():
            self._try_to_write()
        with self._lock(path, timeout):
            if not self._usable(path):
                content = self._build(config, arch, chosen, timeout)
                _refuse_another(unseal(content, path.name), path)
                with self._writable():
                    write_atomic(path, content)
                self._shrink(path)
        return path

    def path(self, config: AttentionConfig, arch: str, schedule: AnySchedule) -> Path:
        """Where a kernel is, or would be."""
        return self.folder / f"{key(config, arch, schedule, origin())}.so"

    def entries(self) -> list[Entry]:
        """What is there, the latest used first."""
        found = [_entry(path) for path in self.folder.glob("*.so")]
        return sorted((one for one in found if one is not None), key=lambda one: one.used, reverse=True)

    def clear(self) -> int:
        """Remove all entries. Returns their number. Kernels that are loaded stay usable.

        Raises:
            OSError: some cannot be removed; all others are.
        """
        paths, failed = [*self.folder.glob("*.so"), *self._leftovers()], []
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                failed.append(error)
        if failed:
            text = f"{self.named}: {len(failed)} of {len(paths)} files cannot be removed ({failed[0].strerror})"
            raise OSError(failed[0].errno, text)
        return sum(path.suffix == ".so" for path in paths)

    @contextmanager
    def _writable(self) -> Iterator[None]:
        """An error says which variable to set."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # also after a build, in which somebody may have removed it
            yield
        except OSError as error:
            reason = "it is no folder" if isinstance(error, FileExistsError) else error.strerror
            advice = "" if self._explicit else f"; set {FOLDER_VARIABLE} to a folder that can be written to"
            text = f"{self.named}: the kernel is not in this cache and cannot be put there ({reason}){advice}"
            raise OSError(error.errno, text) from error

    def _try_to_write(self) -> None:
        """Before a build. Permissions would not tell of a file system that can only be read."""
        with tempfile.TemporaryFile(dir=self.folder):
            pass

    def _leftovers(self) -> list[Path]:
        """Files of writers that died: nobody takes an hour to write."""
        found = []
        for path in self.folder.glob(".*.part"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                    found.append(path)
        return found

    def _usable(self, path: Path) -> bool:
        try:
            found = unseal(path.read_bytes(), path.name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (ArtifactError, OSError) as error:
            logger.warning("%s; it is built again", error)
            return False
        if _name(found) != path.stem:
            logger.warning("%s: the file is another kernel than its name says; it is built again", path.name)
            return False
        with suppress(OSError):  # of a file that may only be read
            os.utime(path)
        return True

    @contextmanager
    def _lock(self, path: Path, timeout: float) -> Iterator[None]:
        """Hold others off that want the same kernel; without a lock two build it, which costs time alone."""
        from filelock import FileLock, Timeout

        start, held = time.monotonic(), ExitStack()
        try:
            # Locks are never removed, so that nobody can hold one that has no name any more; there are 256 at most.
            # Whoever may write into the folder may lock.
            mode = self.folder.stat().st_mode & 0o666 | 0o600
            lock = FileLock(self.folder / f"{path.name[:2]}.lock", mode=mode)
            try:
                lock.acquire(min(NOTE_SECONDS, timeout))
            except Timeout:
                text = "waiting up to %g s for another process that builds a kernel into %s"
                logger.warning(text, timeout, self.folder)
                lock.acquire(max(0.0, timeout - (time.monotonic() - start)))
            held.callback(lock.release)
        except Timeout:
            raise CompileError(f"another process took longer than {timeout:g} s to build {path.name}") from None
        except (OSError, NotImplementedError) as error:
            logger.warning("no lock in %s (%s): another process may build the same kernel", self.folder, error)
        try:
            yield
        finally:
            with suppress(OSError):
                held.close()

    def _shrink(self, kept: Path) -> None:
        """Remove what is over the limit, as far as it can be: others may own it, or have removed it."""
        for path in self._leftovers():
            with suppress(OSError):
                path.unlink()
        sizes: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*.so"):
            with suppress(OSError):
                facts = path.stat()
                sizes.append((facts.st_mtime, facts.st_size, path))
        total = sum(size for _, size, _ in sizes)
        for _, size, path in sorted(sizes):
            if total > self.limit and path != kept:
                with suppress(OSError):
                    path.unlink()
                    total -= size


def key(config: AttentionConfig, arch: str, schedule: AnySchedule, made_by: Origin) -> str:
    """Name of a kernel: a hash of its problem, schedule, architecture, and of what generates and compiles it."""
    parts = [FORMAT, asdict(config), asdict(schedule), arch, dict(made_by.versions), made_by.source]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]


def _name(found: Description) -> str:
    return key(found.config, found.arch, found.schedule, found.origin)


def _refuse_another(made: Description, path: Path) -> None:
    """Refuse a kernel that has another name than was asked for: packages were replaced while this process ran, say."""
    if _name(made) == path.stem:
        return
    wanted, used = ({"source of tirx-attn": each.source, **each.versions} for each in (origin(), made.origin))
    differ = [
        f"{name} {used.get(name, 'missing')} in place of {wanted.get(name, 'missing')}"
        for name in sorted({*wanted, *used})
        if used.get(name) != wanted.get(name)
    ]
    raise CompileError(
        f"the kernel was made by {', '.join(differ)}: start the process again"
        if differ
        else f"the compiler made another kernel than was asked for: {made.config}, {made.schedule}, {made.arch}"
    )


def _entry(path: Path) -> Entry | None:
    try:
        facts = path.stat()
    except OSError:  # removed by another process
        return None
    description: Any = None
    with suppress(ArtifactError, OSError):
        description = unseal(path.read_bytes(), path.name)
    return Entry(path, facts.st_size, facts.st_mtime, description)


def _default_limit() -> int:
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return DEFAULT_LIMIT
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{LIMIT_VARIABLE}={text!r}: allowed are positive numbers of bytes")
    return int(text)
