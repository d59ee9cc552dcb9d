"""Shared libraries loaded by their contents.

A loader knows a library by its path and by its inode: a file that was replaced or overwritten would be the old library
again. So the bytes are put into memory that no path names, and are loaded through a link that is gone afterwards.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tirx_attn.runtime.errors import ToolchainError
from tirx_attn.runtime.files import scratch_folder

_modules: dict[str, Any] = {}
"""SHA-256 of a library -> its module. TVM keeps what was loaded, so that the same bytes need not be loaded twice."""
_loading = threading.Lock()


def loaded(content: bytes) -> Any:
    """The module of a library with this content.

    Raises:
        RuntimeError: it cannot be loaded.
        ToolchainError: there is no folder for temporary files, or it forbids execution.
    """
    import tvm_ffi

    key = hashlib.sha256(content).hexdigest()
    with _loading:
        if key not in _modules:
            with _private_copy(content, f"{key}.so") as path:
                _modules[key] = tvm_ffi.load_module(str(path))
        return _modules[key]


@contextmanager
def _private_copy(content: bytes, name: str) -> Iterator[Path]:
    """A path that has never been another library's: a link to anonymous memory, or a file where there is none."""
    with scratch_folder() as folder:
        path = folder / name
        memory = _memory(name)
        if memory is None:
            path.write_bytes(content)
            try:
                yield path
            except RuntimeError as error:
                if "failed to map segment" not in str(error):
                    raise
                where = f"TMPDIR={tempfile.gettempdir()}"
                raise ToolchainError(f"{where}: must allow shared libraries, it seems to be mounted noexec") from error
            return
        with os.fdopen(memory, "wb") as stream:
            stream.write(content)
            stream.flush()
            path.symlink_to(f"/proc/self/fd/{memory}")
            yield path


_MFD_EXEC = 0x0010
"""Linux 6.3 and newer: memory that stays executable where others are not by default. Older ones refuse the flag."""


def _memory(name: str) -> int | None:
    """Descriptor of anonymous memory that may be executed, whatever TMPDIR allows; None where there is none."""
    for flags in (_MFD_EXEC, 0):
        try:
            memory = os.memfd_create(name, os.MFD_CLOEXEC | flags)
        except (AttributeError, OSError):
            continue
        if os.path.exists(f"/proc/self/fd/{memory}"):
            return memory
        os.close(memory)  # no /proc here
    return None
