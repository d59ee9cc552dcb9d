"""The project's own files: metadata, pinned lists, what an import costs."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTS = ("dev", "simulator", "full")


def pins(name: str) -> dict[str, str]:
    """Package -> version of one pinned list."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", LISTS)
def test_every_pin_has_a_hash_and_no_place_to_fetch_from(name):
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    # A package may be there twice, for an older and a newer Python.
    assert {re.match(r"[a-z0-9._-]+(?===)", entry)[0] for entry in entries} == set(pins(name))
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry.splitlines()[0]


@pytest.mark.parametrize("name", ["dev", "simulator"])
def test_smaller_lists_are_parts_of_the_full_one(name):
    assert pins(name).items() <= pins("full").items()


def test_lists_hold_what_their_level_is_for():
    assert "torch" not in pins("simulator")
    assert "pytest" not in pins("simulator")
    assert not {"torch", "tirx-harness"} & pins("dev").keys()
    assert {"torch", "transformers", "tirx-harness", "matplotlib", "pytest", "mypy", "ruff"} <= pins("full").keys()


def test_the_peers_sources_and_other_unused_packages_are_not_installed():
    assert not {"tirx-kernels", "nvidia-cutlass-dsl", "pypandoc-binary"} & pins("full").keys()


def test_machine_code_comes_from_one_cuda_release():
    versions = pins("full")
    for package in ("nvrtc", "runtime", "crt", "cccl"):
        assert versions[f"nvidia-cuda-{package}"].startswith("13.2.")
    assert versions["cuda-bindings"].startswith("13.2.")


def test_the_compiler_and_the_simulator_are_the_pinned_releases():
    versions = pins("full")
    assert versions["apache-tvm"] == "0.27.0.post1"
    assert versions["apache-tvm-ffi"] == "0.1.14.post0"
    assert versions["tirx-harness"] == "0.1.2.post2"


def test_this_environment_is_the_pinned_one():
    versions = pins("full")
    for package in ("apache-tvm", "apache-tvm-ffi", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "numpy"):
        assert importlib.metadata.version(package) == versions[package]


def test_metadata_of_the_installed_package():
    metadata = importlib.metadata.metadata("tirx-attn")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata.get_all("Provides-Extra") == [
        "benchmark", "browser", "dev", "docs", "explore", "simulator", "torch", "transformers",
    ]  # fmt: skip
    scripts = importlib.metadata.entry_points(group="console_scripts", name="tirx-attn")
    assert [script.value for script in scripts] == ["tirx_attn.cli:main"]


def test_base_install_needs_neither_simulator_nor_torch():
    base = [entry for entry in importlib.metadata.requires("tirx-attn") if "extra ==" not in entry]
    names = {re.match(r"[A-Za-z0-9._-]+", entry).group() for entry in base}
    assert {"apache-tvm", "nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm", "cuda-bindings"} <= names
    assert not {"torch", "tirx-harness", "pytest"} & names


def test_types_are_shipped():
    assert (ROOT / "tirx_attn" / "py.typed").is_file()


def test_licence_is_the_whole_apache_text():
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_importing_configuration_and_runtime_loads_neither_tvm_nor_nvrtc():
    script = (
        "import sys, tirx_attn, tirx_attn.runtime, tirx_attn.schedule, tirx_attn.barriers.protocol;"
        "print(*sorted({'tvm', 'cuda', 'torch', 'tirx_harness', 'tirx_kernels'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
