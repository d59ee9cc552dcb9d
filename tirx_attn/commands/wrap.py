"""How a command ends: its exit status, and what is said when it does not end well."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from typing import Any

import typer

from tirx_attn.commands import interrupts
from tirx_attn.commands.arguments import ArgumentError
from tirx_attn.commands.output import print_json
from tirx_attn.commands.streams import FAILED, abandon_stdout, say
from tirx_attn.runtime.errors import CompileError

BAD_ARGUMENT, SIGNALLED = 2, 128
"""SIGNALLED plus the number of a signal that ended the command."""


def command(body: Callable[..., bool]) -> Callable[..., None]:
    """Command function whose body says whether all went well.

    The exit status is 0, or 1 where it did not, 2 for bad arguments, 130 after Ctrl-C, 143 after SIGTERM. No traceback
    for what a user can cause. With --json a failure is a JSON document too; a bad argument leaves stdout empty.
    """

    @functools.wraps(body)
    def run(**options: Any) -> None:
        name = body.__name__
        with interrupts.watched():
            try:
                fine = body(**options)
                sys.stdout.flush()
                interrupts.check()
            except BaseException as error:
                if interrupts.received() is not None or isinstance(error, KeyboardInterrupt):
                    _end_children()
                    say(f"tirx-attn {name}: interrupted")
                    raise typer.Exit(SIGNALLED + (interrupts.received() or signal.SIGINT)) from None
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
        abandon_stdout()  # its reader has gone
        return FAILED
    if not isinstance(error, (ArgumentError, CompileError, OSError)):
        return None
    say(f"tirx-attn {name}: {error}")
    if isinstance(error, ArgumentError):
        return BAD_ARGUMENT
    if as_json:
        problem = {"type": type(error).__name__, "message": str(error)}
        try:
            print_json({"command": name, "verdict": "error", "error": problem})
        except OSError:  # that may have been the problem
            abandon_stdout()
    try:
        sys.stdout.flush()
    except OSError:
        abandon_stdout()
    return FAILED


def _end_children() -> None:
    if "tirx_attn.verify.simulator" in sys.modules:
        sys.modules["tirx_attn.verify.simulator"].close()
