"""How a command ends: its exit status, and what is said when it does not end well."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from tirx_attn.commands.arguments import ArgumentError
from tirx_attn.commands.output import print_json
from tirx_attn.runtime.errors import CompileError

FAILED, BAD_ARGUMENT, INTERRUPTED = 1, 2, 130


def command(body: Callable[..., bool]) -> Callable[..., None]:
    """Command function whose body says whether all went well.

    The exit status is 0, or 1 where it did not, 2 for bad arguments, 130 after Ctrl-C. No traceback for what a user
    can cause. With --json a failure is a JSON document too; a bad argument leaves stdout empty.
    """

    @functools.wraps(body)
    def run(**options: Any) -> None:
        name = body.__name__
        with _interrupts() as interrupted:
            try:
                fine = body(**options)
                sys.stdout.flush()
            except BaseException as error:
                if interrupted.is_set() or isinstance(error, KeyboardInterrupt):
                    _end_children()
                    _say(f"tirx-attn {name}: interrupted")
                    raise typer.Exit(INTERRUPTED) from None
                status = _explain(name, error, bool(options.get("as_json")))
                if status is None:
                    raise
                raise typer.Exit(status) from None
        if not fine:
            raise typer.Exit(FAILED)

    return run


def _explain(name: str, error: BaseException, as_json: bool) -> int | None:
    """Say what went wrong. Returns the exit status; None for an error that no user can cause."""
    if isinstance(error, BrokenPipeError):
        # The reader of stdout has gone; what is left in the buffer must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if not isinstance(error, (ArgumentError, CompileError, OSError)):
        return None
    _say(f"tirx-attn {name}: {error}")
    if isinstance(error, ArgumentError):
        return BAD_ARGUMENT
    if as_json:
        problem = {"type": type(error).__name__, "message": str(error)}
        print_json({"command": name, "verdict": "error", "error": problem})
    return FAILED


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that tells whether Ctrl-C was pressed: TVM turns a KeyboardInterrupt into errors of its own."""
    interrupted = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handler(number: int, frame: Any) -> None:
        interrupted.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, handler)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _end_children() -> None:
    if "tirx_attn.verify.simulator" in sys.modules:
        sys.modules["tirx_attn.verify.simulator"].close()
