"""Python processes of our own: their search path is the parent's, without what lies beside the user by chance."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_BOOTSTRAP = """
import json, runpy, site, sys
standard = list(sys.path)
site.main()
folders, *sys.argv = sys.argv[1:]
sys.path[:] = dict.fromkeys([*standard, *json.loads(folders)])
sys.modules["torch"] = None
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""What the process runs first, isolated and without site (-I -S), so that sys.path is the standard library alone. site
then takes the steps of its .pth files, for packages that are installed as import hooks. Of torch TVM would take one
type, which costs seconds, and torch brings a CUDA of its own: the process has none."""


def command(program: Path, *arguments: str, first: Iterable[str] = ()) -> list[str]:
    """Command line of a Python process that runs a file.

    It looks for a module in the folders of the standard library, then in `first`, then in `search_path()`. No PYTHON*
    variable counts, and the current folder is not on its path.

    Args:
        program: the file, run as __main__.
        arguments: its sys.argv[1:].
        first: folders ahead of this process's own.
    """
    folders = json.dumps([*first, *search_path()])
    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, folders, str(program), *arguments]


def search_path() -> list[str]:
    """sys.path of this process, in its order, as absolute folders.

    Left out are the current folder and the script's, which are on it whether wanted or not: a user's files there are
    none of a child's. They stay where packages were installed into them.
    """
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    beside = {os.path.realpath(folder) for folder in _absolute(os.curdir, os.path.dirname(script))}
    return [
        folder
        for folder in _absolute(*sys.path)
        if os.path.realpath(folder) not in beside or any(Path(folder).glob("*.dist-info"))
    ]


def _absolute(*folders: str) -> Iterator[str]:
    for folder in folders:
        with suppress(FileNotFoundError):  # the current folder may have been removed
            yield os.path.abspath(folder)
