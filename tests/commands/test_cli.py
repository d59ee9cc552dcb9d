"""The command line as a whole: help, version, exit statuses, where output goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tirx_attn.cli import app
from tirx_attn.runtime.errors import CompileError

ROOT = Path(__file__).parents[2]
SHAPE = "1,256,256,2,1,128"

COMMANDS = [
    "demo", "build", "export", "check", "plan", "code", "model", "explore", "tune", "variants", "mutants", "records",
    "cache",
]  # fmt: skip


def process(*arguments: str, **options):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "tirx_attn", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT, **options)


def test_help_has_a_line_for_each_command_and_examples(tirx_attn):
    result = tirx_attn("--help")
    assert result.exit_code == 0
    lines = [line.strip(" │\n") for line in result.stdout.splitlines()]
    for name in COMMANDS:
        described = [line for line in lines if line.split()[:1] == [name]]
        assert len(described) == 1
        assert described[0].endswith(".")
        assert any(line.startswith(f"tirx-attn {name}") for line in lines)


def test_every_command_has_help_with_an_example_and_json(tirx_attn):
    names = [command.callback.__name__ for command in app.registered_commands]
    assert names == COMMANDS
    for name in names:
        result = tirx_attn(name, "--help")
        assert result.exit_code == 0
        assert "--json" in result.stdout
        assert f"Example: tirx-attn {name}" in " ".join(result.stdout.split())


def test_help_shows_underscores(tirx_attn):
    """Help is Markdown, to which they may mean emphasis."""
    for name in ("build", "export", "plan"):
        text = " ".join(tirx_attn(name, "--help").stdout.replace("│", " ").split())
        assert "_ leaves B, Sq or Skv to run time." in text
        assert f"tirx-attn {name} --shape _,_,_,32,8,128 " in text
    assert "tirx-attn export --shape _,_,_,32,8,128 " in tirx_attn("--help").stdout
    assert "run time" not in tirx_attn("check", "--help").stdout


def test_version(tirx_attn):
    result = tirx_attn("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("tirx-attn ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--shape", "1,2,3"], "--shape '1,2,3' has 3 values: allowed are six integers"),
        (["plan", "--shape", SHAPE, "--arch", "sm_80"], "arch='sm_80': allowed values are sm_100a, sm_103a, sm_90a"),
        (["plan", "--shape", SHAPE, "--schedule", "x=1"], "KEY='x': allowed values are pv_split"),
        (["check", "--shape", SHAPE, "--time-limit", "0"], "--time-limit '0': allowed values are positive seconds"),
        (["check", "--shape", "1,256,256,2,1,96"], "D=96: allowed head sizes are 64, 128"),
        (["check", "--shape", "1,256,_,2,1,128"], "Skv='_': allowed values are positive integers, since check needs"),
        (["check", "--shape", SHAPE, "--dtype", "fp8"], "--dtype 'fp8': allowed values are fp16 (float16), bf16"),
        (["plan", "--shape", "_,_,_,_,1,128"], "Hq='_': allowed values are positive integers (_ is for B, Sq, Skv"),
        (["plan", "--shape", SHAPE, "--scale", "0"], "--scale '0': allowed values are numbers from"),
        (["export", "--shape", SHAPE, "-o", "missing/a.so"], "-o missing/a.so: allowed are files in a folder"),
        (["export", "--shape", SHAPE, "-o", "."], "-o .: allowed are files in a folder that exists"),
        (["export", "--shape", SHAPE, "--arch", "sm_80", "-o", "a.so"], "arch='sm_80': allowed values are sm_100a"),
        (["export", "--shape", SHAPE, "--timeout", "-1", "-o", "a.so"], "--timeout '-1': allowed values are positive"),
        (
            ["export", "--shape", SHAPE, "--arch", "sm_90a", "--schedule", "stagger=true", "-o", "a.so"],
            "KEY='stagger': allowed values are consumers",
        ),
        (["cache", "--folder", __file__], f"--folder {__file__}: allowed are folders"),
        (["build", "--shape", SHAPE, "--dtype", "fp8", "-o", "x"], "--dtype 'fp8': allowed values are fp16 (float16)"),
        (["build", "--shape", SHAPE, "--scale", "auto", "-o", "x"], "--scale 'auto': allowed values are numbers from"),
        (["build", "--shape", SHAPE, "--emit", "ptx", "-o", "x"], "--emit 'ptx': 'ptx': allowed values are cubin"),
        (["mutants", "--arch", "sm_90a", "--simulate", "all"], "--simulate all: allowed for sm_90a is none"),
        (["variants", "--mask", "band"], "--mask 'band': allowed values are none, causal"),
        (["variants", "--variant", "pv"], "--variant 'pv': allowed values are statistics-pairwise, statistics-coll"),
        (["variants", "--output", "missing/x.json"], "--output missing/x.json: allowed are files in a folder that exi"),
        (["variants", "--output", __file__], f"--output {__file__}: allowed is a file that this command wrote"),
        (["mutants", "--simulate", "some"], "--simulate some: allowed for sm_100a is unsettled, all, none"),
        (["build", "--shape", SHAPE, "-o", f"{__file__}/x"], "is not a folder, allowed are folders"),
    ],
)
@pytest.mark.parametrize("json_option", [[], ["--json"]], ids=["text", "json"])
def test_bad_values_are_named_on_stderr(tirx_attn, arguments, message, json_option):
    result = tirx_attn(*arguments, *json_option)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"tirx-attn {arguments[0]}: " in result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan"], "--shape"),
        (["build", "--shape", SHAPE], "--output"),
        (["plan", "--shape", SHAPE, "--colour"], "--colour"),
        (["prove"], "prove"),
    ],
)
def test_missing_and_unknown_options_are_named_on_stderr(tirx_attn, arguments, message):
    result = tirx_attn(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


def test_plan_in_a_process_of_its_own_prints_one_json_document():
    done = process("plan", "--shape", SHAPE, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["command"] == "plan"


def test_output_without_the_fields_symbols():
    done = process("plan", "--shape", SHAPE, env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr
    assert "last QK? of the" in done.stdout


def test_a_reader_that_leaves_early_is_no_traceback():
    command = f"'{sys.executable}' -m tirx_attn plan --shape {SHAPE} | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.stdout.startswith("full B=1 Sq=256")
    assert done.stderr == ""


@pytest.mark.parametrize("error", [CompileError("NVRTC cannot compile the source", "line 1"), OSError("disk full")])
def test_a_failure_is_a_json_document_too(tirx_attn, monkeypatch, tmp_path, error):
    def fail(*_arguments, **_options):
        raise error

    monkeypatch.setattr("tirx_attn.commands.build.build_kernel", fail)
    result = tirx_attn("build", "--shape", SHAPE, "-o", str(tmp_path), "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["verdict"] == "error"
    assert document["error"] == {"type": type(error).__name__, "message": str(error)}
    assert f"tirx-attn build: {error}" in result.stderr
    assert list(tmp_path.iterdir()) == []
