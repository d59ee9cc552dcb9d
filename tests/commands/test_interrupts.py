"""A signal ends a command even where what its handler raises is dropped, as TVM may do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from tirx_attn.commands import interrupts
from tirx_attn.commands.output import Reporter
from tirx_attn.commands.wrap import command

ROOT = Path(__file__).parents[2]


def outcome(body):
    app = Typer()
    app.command()(command(body))
    return CliRunner().invoke(app, [])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("step_follows", [True, False], ids=["next_step", "end"])
def test_a_dropped_interrupt_is_raised_again(number, status, step_follows):
    reached = []
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def body() -> bool:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        reached.append("swallowed")
        if step_follows:
            with Reporter().step("next"):
                reached.append("step")
        return True

    try:
        done = outcome(body)
    finally:
        after = {each: signal.getsignal(each) for each in before}
        for each, handler in before.items():
            signal.signal(each, handler)
    assert done.exit_code == status
    assert reached == ["swallowed"]
    assert "interrupted" in done.stderr
    assert after == {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


def test_the_next_command_starts_afresh():
    with interrupts.watched():
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.received() == signal.SIGTERM
    done = outcome(lambda: True)
    assert done.exit_code == 0
    assert interrupts.received() is None


def test_a_handler_of_somebody_else_stays():
    def own(number, frame):
        raise AssertionError

    before = signal.signal(signal.SIGTERM, own)
    try:
        with interrupts.watched():
            assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


PROGRAM = """
import os
from typer import Typer
from tirx_attn.commands.wrap import command

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), {number})

def text() -> None:
    exec("os.kill(os.getpid(), {number})")

def finaliser() -> None:
    Finalised()

def body() -> bool:
    {place}()
    return True

app = Typer()
app.command()(command(body))
app()
"""


@pytest.mark.parametrize("place", ["text", "finaliser"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_status_and_message_are_ours_wherever_the_signal_falls(tmp_path, number, status, place):
    """CPython would end a process by SIGINT after text given to exec, and print a traceback after a finaliser.

    A shell that starts the tests in the background has SIGINT ignored.
    """
    (tmp_path / "program.py").write_text(PROGRAM.format(number=int(number), place=place))
    command = [sys.executable, "-m", "program"]
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.splitlines()[-1].endswith("interrupted")
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr


def test_what_others_drop_is_still_reported(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: reported.append(dropped.exc_type))

    class Faulty:
        def __del__(self):
            raise OSError

    with interrupts.watched():
        Faulty()
    assert reported == [OSError]
