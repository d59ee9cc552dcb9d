"""Where the compile cache lies, by the environment."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_VARIABLE = "TIRX_ATTN_CACHE"


def cache_folder() -> tuple[Path, str]:
    """The folder, and what names it, such as "TIRX_ATTN_CACHE=/var/kernels", for messages.

    It never depends on the current folder. A relative $XDG_CACHE_HOME is ignored, as its specification says (XDG Base
    Directory Specification, "Environment variables").

    Raises:
        ValueError: $TIRX_ATTN_CACHE is relative.
        FileNotFoundError: no variable names a folder and the user has no home.
    """
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        folder = os.path.expanduser(chosen)
        if not os.path.isabs(folder):
            raise ValueError(f"{FOLDER_VARIABLE}={chosen!r}: allowed are absolute folders, and those below ~ or ~user")
        return Path(folder), f"{FOLDER_VARIABLE}={chosen}"
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        named = f"XDG_CACHE_HOME={base}"
    else:
        home = os.path.expanduser("~") if os.environ.get("HOME", "unset") else ""
        if not os.path.isabs(home):
            raise FileNotFoundError(f"there is no home folder to keep kernels in: set {FOLDER_VARIABLE} to a folder")
        base, named = os.path.join(home, ".cache"), f"HOME={home}"
    return Path(base) / "tirx_attn" / "kernels", named
