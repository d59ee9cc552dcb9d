"""Standard streams that are closed or full: one sentence, an exit status, no traceback, and no result lost silently."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAN = "plan --shape 1,256,256,2,1,128"
WITH_OUTPUT = [
    PLAN,
    *(
        pytest.param(words, marks=pytest.mark.slow)
        for words in ("--help", "--version", "plan --help", f"{PLAN} --json", "cache", "cache --json", "records --help")
    ),
]
FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


def run(words: str, redirection: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    command = f"'{sys.executable}' -m tirx_attn {words} {redirection}"
    environment = {**os.environ, "TIRX_ATTN_CACHE": str(tmp_path)}
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=600, check=False, cwd=ROOT, env=environment
    )


@pytest.mark.parametrize("words", WITH_OUTPUT)
@pytest.mark.parametrize(
    ("redirection", "reason"), [(">&-", "Bad file descriptor"), pytest.param(">/dev/full", "No space left", marks=FULL)]
)
def test_output_that_cannot_be_written_is_one_sentence(words, redirection, reason, tmp_path):
    done = run(words, redirection, tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("tirx-attn")
    assert reason in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--help", f"{PLAN} --json"])
@pytest.mark.parametrize("redirection", ["2>&-", pytest.param("2>/dev/full", marks=FULL), "<&-", "<&- 2>&-"])
def test_what_is_not_stdout_does_not_matter(words, redirection, tmp_path):
    done = run(words, redirection, tmp_path)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["command"] == "plan" if words.endswith("--json") else "Usage" in done.stdout


@pytest.mark.parametrize("redirection", [">&- 2>&-", pytest.param(">/dev/full 2>/dev/full", marks=FULL)])
def test_with_nobody_to_tell_the_exit_status_tells(redirection, tmp_path):
    assert run(PLAN, redirection, tmp_path).returncode == 1
    assert run("plan --shape 1", redirection, tmp_path).returncode == 2


def test_a_file_never_takes_the_place_of_a_closed_stream(tmp_path):
    """Else what is printed would go into the file that is opened first."""
    program = "import sys; from tirx_attn.commands.streams import guarded\nwith guarded('x'): print(open(0).fileno())"
    done = subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -c \"{program}\" <&-"], capture_output=True, text=True, timeout=600, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    program = "from tirx_attn.commands.streams import guarded\nwith guarded('x'): f = open('f', 'w'); print('result')"
    done = subprocess.run(
        ["sh", "-c", f"cd '{tmp_path}' && PYTHONPATH='{ROOT}' '{sys.executable}' -c \"{program}\" >&-"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 1
    assert "x: stdout cannot be written" in done.stderr
    assert (tmp_path / "f").read_text() == ""
