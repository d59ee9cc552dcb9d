"""Ctrl-C and SIGTERM while a command runs.

Both are raised as KeyboardInterrupt, so that children and temporary files are cleaned up on the way out. TVM may turn
what a signal handler raises into an error of its own, or drop it, and Python drops it in a finaliser or a callback of
a weak reference; so the signal is remembered, and raised once more at the next step of the command.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_DEFAULTS: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Interrupted(KeyboardInterrupt):
    """A signal asked the command to end.

    It is a class of its own, since CPython ends a process by SIGINT, whatever its exit status, once a plain
    KeyboardInterrupt has left code that exec() was given as text, even where it was caught; TVM's parser has such code.
    """


_received: int | None = None


def received() -> int | None:
    """Number of the signal that asked the command to end, or None."""
    return _received


def check() -> None:
    """End here if a signal asked for it.

    Raises:
        Interrupted: one did.
    """
    if _received is not None:
        raise Interrupted


@contextmanager
def watched() -> Iterator[None]:
    """Take the signals that nobody else handles, until the end of the block."""
    global _received
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received = None
    taken = [number for number, default in _DEFAULTS.items() if signal.getsignal(number) is default]
    report_dropped = sys.unraisablehook

    def report(dropped: Any) -> None:
        # A dropped Interrupted is remembered: nothing is lost that a traceback should tell.
        if not (dropped.exc_type and issubclass(dropped.exc_type, Interrupted)):
            report_dropped(dropped)

    try:
        sys.unraisablehook = report
        for number in taken:
            signal.signal(number, _receive)
        yield
    finally:
        for number in taken:
            signal.signal(number, _DEFAULTS[number])
        sys.unraisablehook = report_dropped
        _received = None


def _receive(number: int, _frame: Any) -> None:
    global _received
    _received = number
    raise Interrupted
