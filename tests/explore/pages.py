"""Pages to open in a browser: of kernels that were built, and of plans whose task is a small program."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from tests.explore.studied import one, study, two
from tirx_attn.commands import explore, model, output
from tirx_attn.explore import document
from tirx_attn.explore.page import page
from tirx_attn.runtime.files import write_atomic

SHAPE = "1,8192,8192,32,32,128"
CHANGE = "kv_stages=2"

DOCUMENTS = {
    "toy": one,
    "toy-two": two,
    "toy-causal": lambda: document("a test", "sm_100a", [study(True)]),
    "toy-hopper": lambda: document("a test", "sm_90a", [study(arch="sm_90a"), study(arch="sm_90a", ping_pong=False)]),
    "one": lambda: document(problem("").title, "sm_100a", [built("")]),
    "two": lambda: document(problem("").title, "sm_100a", [built(""), built(CHANGE)]),
}
"""Name of a page -> its document. Those that are no toys take a build or two."""


def problem(change: str) -> Any:
    return model.fixed_problem(SHAPE, False, "sm_100a", [change] if change else None, "fp16")


@cache
def built(change: str) -> Any:
    return explore._study(problem(change), output.Reporter())


def made(name: str, folder: Path) -> Path:
    """The page in a folder that test processes share. The first that asks makes it."""
    path = folder / f"{name}.html"
    with FileLock(folder / f"{name}.lock"):
        if not path.exists():
            write_atomic(path, page(DOCUMENTS[name]()))
    return path
