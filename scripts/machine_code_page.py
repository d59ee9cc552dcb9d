"""Renews the tables of docs/machine_code.md: behind each command of the page stands what it prints.

Run from the repository: python scripts/machine_code_page.py
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "machine_code.md"

TABLES = re.compile(r"(?P<command>^    tirx-attn code .*--markdown\n)\n(?P<tables>(?:(?:\|.*)?\n)*)", re.MULTILINE)
"""A command, and the lines behind it that are empty or rows."""


def printed(command: str) -> str:
    """What a command of the page prints."""
    call = [sys.executable, "-m", "tirx_attn", *shlex.split(command)[1:]]
    done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True, cwd=PAGE.parents[1])
    return done.stdout


def main() -> None:
    """Write the page anew."""
    page = TABLES.sub(lambda found: f"{found['command']}\n{printed(found['command'])}\n", PAGE.read_text())
    PAGE.write_text(page.rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
