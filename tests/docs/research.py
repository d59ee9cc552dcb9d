"""Runs docs/research.md: its diffs are applied to a copy of the package, its commands are run there, in order.

`python -m tests.docs.research --write` writes what the commands print now into the page. A diff that no longer applies
has to be made anew by hand.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "research.md"
BLOCK = re.compile(r"^```(?P<kind>diff|console)\n(?P<body>.*?)^```\n", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (?P<line>.*(?:\\\n.*)*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
COMMAND_SECONDS = 3000


@dataclass(frozen=True)
class Printed:
    """A command of the page, what stands behind it there, and what it prints on stdout."""

    command: str
    written: str
    printed: str


def copy_package(folder: Path) -> None:
    """A copy in which the commands find `tirx-attn` and `python`, and the package before an installed one."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tirx_attn", folder / "tirx_attn", ignore=ignored)
    (folder / "docs").mkdir()
    (folder / "bin").mkdir()
    for name, arguments in {"tirx-attn": " -m tirx_attn", "python": ""}.items():
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        script.chmod(0o755)


def apply(diff: str, folder: Path) -> None:
    """Apply a diff of the page; its line numbers may be off."""
    command = ["git", "apply", "--whitespace=error", "-"]
    # Without a ceiling, git would take the folder for a part of a repository around it.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = subprocess.run(command, input=diff, text=True, cwd=folder, env=environment, capture_output=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"a diff of {PAGE.name} does not apply: {done.stderr.strip()}")


def output_of(command: str, folder: Path, seconds: float = COMMAND_SECONDS) -> str:
    """What a command prints on stdout, whatever its exit status."""
    environment = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    environment |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
    )
    if "Traceback" in done.stderr:
        raise RuntimeError(f"{command}\n{done.stderr}")
    return done.stdout


def play(page: str, folder: Path) -> Iterator[Printed]:
    """Apply and run all blocks of a page in a fresh copy, in order."""
    copy_package(folder)
    for block in BLOCK.finditer(page):
        if block["kind"] == "diff":
            apply(block["body"], folder)
        else:
            for found in COMMAND.finditer(block["body"]):
                printed = output_of(found["line"], folder)
                yield Printed(found["line"], found["output"], printed)


def renewed(page: str, folder: Path) -> str:
    """The page with what its commands print now."""
    outputs = play(page, folder)

    def block(found: re.Match[str]) -> str:
        if found["kind"] == "diff":
            return found[0]
        body = COMMAND.sub(lambda command: f"$ {command['line']}\n{next(outputs).printed}", found["body"])
        return f"```console\n{body}```\n"

    return BLOCK.sub(block, page)


def main() -> int:
    """Write the page, or say what differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.research", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what the commands print into the page")
    write = parser.parse_args().write
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        new = renewed(page, Path(folder))
    if write and new != page:
        PAGE.write_text(new)
    print("the page is up to date" if new == page else f"the page {'was renewed' if write else 'is not up to date'}")
    return 0 if write or new == page else 1


if __name__ == "__main__":
    sys.exit(main())
