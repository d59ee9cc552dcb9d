"""Standard streams that a user closed, or that take no more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FAILED = 1
"""Exit status of a command that did not go well."""

_MODES = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
"""How a closed stream is opened on /dev/null. A write to stdout must fail, as it does to a stream that is closed, so
that no result is lost without a word; what goes to stderr may be lost."""


@contextmanager
def guarded(program: str) -> Iterator[None]:
    """Streams that can be used, and exit status 1 with one sentence where stdout takes no more."""
    _open_closed()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        abandon_stdout()
        say(f"{program}: stdout cannot be written: {error}")
        sys.exit(FAILED)


def say(text: str) -> None:
    """One line on stderr, where that takes it."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def abandon_stdout() -> None:
    """Drop what stdout still holds: at exit it must not be tried again."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _open_closed() -> None:
    """Give closed descriptors 0 to 2 something to be, before a file that is opened takes their place."""
    for number, mode in enumerate(_MODES):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest number that is free, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  (lives as long as the process)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
