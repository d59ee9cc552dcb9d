"""The wheel: what is in it, and that with the packages it asks for, and no others, it generates and compiles."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_it_is_pure_and_typed_and_holds_the_package_only(wheel):
    assert re.fullmatch(r"tirx_attn-[0-9.]+-py3-none-any\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert "tirx_attn/py.typed" in names
    assert {f"tirx_attn/explore/page.{suffix}" for suffix in ("html.jinja", "css", "js")} <= set(names)
    assert {name.split("/")[0] for name in names} == {"tirx_attn", wheel.name.rsplit("-", 3)[0] + ".dist-info"}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "tirx_attn").rglob("*.py")}
    assert modules == {name for name in names if name.endswith(".py")}


def needed(requirement: str, found: dict[str, importlib.metadata.Distribution]) -> None:
    """Add to `found` the installed distributions behind a requirement, without extras."""
    parsed = Requirement(requirement)
    if parsed.marker is not None and not parsed.marker.evaluate({"extra": ""}):
        return
    name = re.sub(r"[-_.]+", "-", parsed.name).lower()
    if name not in found:
        found[name] = importlib.metadata.distribution(name)
        for each in found[name].requires or ():
            needed(each, found)


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An environment with the wheel and links to the files of what it asks for."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=600)
    python = folder / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "pip", "install", "--offline", "--no-deps", "--quiet", "--python", python, wheel]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    with zipfile.ZipFile(wheel) as file:
        metadata = file.read(next(name for name in file.namelist() if name.endswith("METADATA"))).decode()
    found: dict[str, importlib.metadata.Distribution] = {}
    for requirement in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE):
        needed(requirement, found)
    for distribution in found.values():
        for path in distribution.files or ():
            if path.parts[0] != ".." and "__pycache__" not in path.parts:
                place = site / path
                place.parent.mkdir(parents=True, exist_ok=True)
                if not place.exists():
                    place.symlink_to(Path(str(distribution.locate_file(path))))
    return folder, found


def test_base_packages_only(environment):
    _, found = environment
    assert {"apache-tvm", "nvidia-cuda-nvrtc", "numpy", "typer"} <= set(found)
    assert not {"torch", "tirx-harness", "pytest", "ruff", "mypy", "hypothesis", "matplotlib"} & set(found)


def test_generate_and_compile(environment, tmp_path):
    folder, _ = environment
    tool = folder / "bin" / "tirx-attn"
    command = [tool, "build", "--shape", "_,_,_,2,1,128", "--emit", "cubin", "-o", tmp_path, "--json"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=1500, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = json.loads(done.stdout)["builds"]
    (cubin,) = tmp_path.glob("*.cubin")
    assert built["files"] == [str(cubin)]
    assert cubin.read_bytes()[:4] == b"\x7fELF"
    assert built["resources"]["spill_instructions"] < 20
