"""Child processes: what they import, and that nothing which lies beside the user by chance is among it."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.packages import copied_package, run_script
from tirx_attn.runtime import child

SHADOWS = ("inspect", "json", "runpy", "site", "numpy", "ml_dtypes", "tvm", "sitecustomize", "usercustomize")

SHOW = """
import json, sys, inspect
def origin(name):
    try:
        return __import__(name).__file__
    except ImportError as error:
        return None
found = {name: origin(name) for name in ("inspect", "json", "numpy", "torch", "beside", "extra")}
print(json.dumps({"argv": sys.argv[1:], "path": sys.path, "found": found}))
"""

START = """
import os, subprocess, sys
sys.path.insert(0, {checkout!r})
import inspect, json, numpy
from tirx_attn.runtime import child
from pathlib import Path
{change}
command = child.command(Path({program!r}), "a b", first=["/first"])
print(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode())
"""

EXPORT = """
import sys
sys.path.insert(0, {checkout!r})
from tirx_attn import AttentionConfig, export
try:
    print(export(AttentionConfig(None, None, None, 2, 1, 64), "kernel.so", ["sm_90a"], timeout=1500)[0])
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""

CHECKOUT = str(Path(child.__file__).parents[2])
INSPECT = inspect.__file__


@pytest.fixture
def beside(tmp_path):
    """A user's folder with files that have the names of modules, each of which fails when it is imported."""
    folder = tmp_path / "beside"
    folder.mkdir()
    for name in (*SHADOWS, "beside"):
        (folder / f"{name}.py").write_text("raise RuntimeError('mine')\n")
    return folder


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program" / "show.py"
    file.parent.mkdir()
    file.write_text(SHOW)
    return file


def shown(program: Path, cwd: Path, change: str, **environment: str):
    """What the child finds that a user's script starts in `cwd` after a change to its own sys.path."""
    return json.loads(
        run_script(START.format(checkout=CHECKOUT, change=change, program=str(program)), cwd, **environment)
    )


@pytest.mark.parametrize("entry", ["''", "'.'", "os.getcwd()", "'../beside'"])
def test_a_users_files_are_none_of_it(program, beside, entry):
    seen = shown(program, beside, f"sys.path.insert(0, {entry})")
    assert seen["argv"] == ["a b"]
    assert seen["found"]["inspect"] == INSPECT
    assert seen["found"]["numpy"] == np.__file__
    assert seen["found"]["beside"] is None
    assert str(beside) not in {os.path.realpath(entry or ".") for entry in seen["path"]}


def test_the_scripts_folder_is_none_of_it(program, beside):
    (beside.parent / "scripts").mkdir()
    (beside.parent / "scripts" / "beside.py").write_text("")
    assert shown(program, beside, "")["found"]["beside"] is None


def test_an_empty_entry_of_pythonpath_is_the_current_folder(program, beside):
    """As `export PYTHONPATH=$PYTHONPATH:/more` makes it."""
    for name in SHADOWS:
        (beside / f"{name}.py").unlink()  # the user's own process would import them
    seen = shown(program, beside, "assert os.getcwd() in sys.path", PYTHONPATH=":/more")
    assert "/more" in seen["path"]
    assert seen["found"]["beside"] is None


def test_folders_that_the_parent_added_keep_their_order_after_the_standard_library(program, beside):
    one, two = beside.parent / "one", beside.parent / "two"
    for folder in (one, two):
        folder.mkdir()
        for name in ("extra", "inspect"):
            (folder / f"{name}.py").write_text("")
    seen = shown(program, beside, f"sys.path[:0] = [{str(one)!r}, '../two']")
    assert seen["found"]["extra"] == str(one / "extra.py")
    assert seen["found"]["inspect"] == INSPECT
    path = seen["path"]
    assert path.index(os.path.dirname(INSPECT)) < path.index("/first") < path.index(str(one)) < path.index(str(two))


def test_a_current_folder_into_which_packages_were_installed_stays(program, tmp_path):
    bundle = tmp_path / "bundle"
    (bundle / "extra-1.0.dist-info").mkdir(parents=True)
    (bundle / "extra.py").write_text("")
    seen = shown(program, bundle, "sys.path.insert(0, '')")
    assert seen["found"]["extra"] == str(bundle / "extra.py")


def test_a_current_folder_that_is_gone(program, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    seen = shown(program, gone, "os.rmdir(os.getcwd()); sys.path.insert(0, '')")
    assert seen["found"]["numpy"] == np.__file__


def test_it_has_no_torch(program, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "torch.py").write_text("")
    seen = shown(program, tmp_path / "program", f"sys.path.insert(0, {str(tmp_path / 'more')!r})")
    assert seen["found"]["torch"] is None
    assert str(tmp_path / "more") in seen["path"]


def test_variables_of_python_do_not_count(program, beside):
    env = {**os.environ, "PYTHONPATH": str(beside), "PYTHONSTARTUP": "x"}
    done = subprocess.run(child.command(program), env=env, capture_output=True, check=True)
    assert str(beside) not in json.loads(done.stdout)["path"]


def test_the_compile_child_imports_the_package_of_its_parent(tmp_path):
    """Which a script put on sys.path itself; the library that only that copy wants is the proof."""
    package = copied_package(tmp_path / "checkout")
    toolchain = package / "runtime" / "toolchain.py"
    toolchain.write_text(toolchain.read_text().replace("libcudart.so.13", "libcudart.so.98"))
    (tmp_path / "cwd").mkdir()
    found = run_script(EXPORT.format(checkout=str(package.parent)), tmp_path / "cwd")
    assert found == "ToolchainError: libcudart.so.98 is not installed: install nvidia-cuda-runtime\n"


@pytest.mark.slow
def test_a_kernel_is_compiled_where_files_have_the_names_of_modules(beside):
    assert run_script(EXPORT.format(checkout=CHECKOUT), beside) == "kernel.so\n"
