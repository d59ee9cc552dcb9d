"""A copy of this package that a test may edit, and processes of users that import it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tirx_attn.config import __file__ as CONFIG_FILE


def copied_package(folder: Path) -> Path:
    """The package in `folder`, without bytecode."""
    source = Path(CONFIG_FILE).parent
    return Path(shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__")))


def run_script(code: str, cwd: Path, **environment: str) -> str:
    """What a script prints that runs in `cwd` and lies in a folder beside it. It has no PYTHONPATH but a given one."""
    script = cwd.parent / "scripts" / "get.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(code)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run([sys.executable, script], cwd=cwd, env=env, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
