"""Where output goes: results on stdout, as tables or as one JSON document; progress and notes on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tirx_attn.commands import interrupts

PLAIN_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""

PLAIN_NOTE_SECONDS = 20.0
"""Least time between two notes on the same step where stderr is no terminal."""


def stdout() -> Console:
    """Console for results."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def print_json(document: dict[str, Any]) -> None:
    """The one document of a command with --json."""
    print(json.dumps(document, indent=2, allow_nan=False, default=str), flush=True)


def compact_json(document: dict[str, Any]) -> str:
    """A document for programs, without spaces."""
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def table(title: str, *columns: str) -> Table:
    """An empty table in the style of all commands."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def row(cells: Sequence[str], widths: Sequence[int]) -> Table:
    """One line of a table that is printed as it comes: columns of these widths, which become less where they must."""
    made = Table.grid(padding=(0, 2))
    for width in widths:
        made.add_column(width=width, overflow="fold")
    made.add_row(*cells)
    return made


class Reporter:
    """Progress on stderr: a spinner with the time on a terminal, one plain line per step elsewhere.

    Args:
        total: number of steps, where it is known; they are then numbered.
    """

    def __init__(self, total: int | None = None) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._total = total
        self._done = 0

    def note(self, text: str) -> None:
        """One line, where stderr takes it: progress is no result."""
        with suppress(OSError):
            self._console.print(text, markup=False)

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[str], None]]:
        """A step that may take a while; yields a function that takes notes on its progress."""
        interrupts.check()
        self._done += 1
        label = f"{self._done}/{self._total}  {text}" if self._total else text
        if not self._console.is_terminal:
            yield self._plain(label)
            interrupts.check()
            return
        columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
        with Progress(*columns, console=self._console, transient=True, redirect_stdout=False) as progress:
            task = progress.add_task(label)
            yield lambda note: progress.update(task, description=f"{label} ({_phase(note)})")
        interrupts.check()

    def skip(self, count: int) -> None:
        """Steps that will not take place."""
        self._done += count

    def _plain(self, label: str) -> Callable[[str], None]:
        self.note(label)
        last = time.monotonic()

        def note(text: str) -> None:
            nonlocal last
            if time.monotonic() - last >= PLAIN_NOTE_SECONDS:
                self.note(f"  {text}")
                last = time.monotonic()

        return note


def _phase(note: str) -> str:
    """Phase of a simulator note such as "racecheck: building, 12 s"; the spinner shows the time itself."""
    return note.rpartition(": ")[2].partition(",")[0]
