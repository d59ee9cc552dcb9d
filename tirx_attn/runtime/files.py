"""Files that are either whole or absent, and folders for a while."""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tirx_attn.runtime.errors import ToolchainError

_NO_SYNC = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}
"""What a file system without fsync answers."""


def write_atomic(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write `data` to `path` so that a reader, or a crash, never meets half of it.

    The bytes go to a temporary file of the same folder, reach the disk, and then take the name over. Text is
    written as UTF-8. A file that is replaced passes its permissions on, where the file system has any; a new file gets
    the usual ones. A device or a pipe is no file that could be replaced: the bytes go into it.

    Returns:
        The path written.

    Raises:
        OSError: the folder is missing or not writable; nothing is left behind.
    """
    target = Path(path)
    content = data.encode() if isinstance(data, str) else data
    if target.exists() and not target.is_file() and not target.is_dir():
        target.write_bytes(content)
        return target
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            _sync(stream.fileno())
        with suppress(FileNotFoundError, PermissionError):
            os.chmod(temporary, target.stat().st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            temporary.unlink()
        raise
    with suppress(OSError):  # makes the new name durable, on file systems that let a folder be synced
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return target


def _sync(handle: int) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder in $TMPDIR, or where Python takes it to be, that is removed afterwards as far as it can be.

    Raises:
        ToolchainError: no such folder can be made.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="tirx-attn-", ignore_cleanup_errors=True)
    except OSError as error:
        named = os.environ.get("TMPDIR")
        raise ToolchainError(f"TMPDIR={named!r}: allowed are folders that can be written to ({error})") from None
    with folder as name:
        yield Path(name)
