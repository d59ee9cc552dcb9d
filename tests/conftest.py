"""Shared by all tests: the simulator's child process ends with the run; launchers over a stand-in for CUDA."""

from __future__ import annotations

import importlib.util
import re
import shutil
from contextlib import ExitStack
from functools import cache

import pytest

from tests import proofs
from tests.engines import no_gpu
from tests.kernel_launch import Kernel
from tests.runtime.launcher import build_stubs
from tirx_attn import verify

pytest_addoption = proofs.pytest_addoption
pytest_configure = proofs.pytest_configure
pytest_report_header = proofs.pytest_report_header
pytest_runtest_setup = proofs.pytest_runtest_setup

ON_A_GPU = re.compile(r"mark\.gpu|import ENGINES|\bENGINES,")
"""Where a file has tests for a GPU: their marks, or the engines, one of which has the mark."""


def pytest_ignore_collect(collection_path):
    """On a GPU's machine there may be no TVM: what has no test for a GPU is left out, since it may not be imported."""
    if importlib.util.find_spec("tvm") is not None:
        return None
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    return None if any(ON_A_GPU.search(file.read_text(encoding="utf-8")) for file in files) else True


def pytest_collection_modifyitems(items):
    reason = no_gpu() if any(item.get_closest_marker("gpu") for item in items) else ""
    for item in items:
        if reason and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=f"{reason}; see `make test-gpu`"))


@pytest.fixture(scope="session", autouse=True)
def simulator_process():
    yield
    verify.close()


@pytest.fixture(scope="session")
def cuda_stubs(tmp_path_factory):
    """Folder of the stub libraries under which a host launcher runs."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler to make a stand-in for the CUDA driver")
    return build_stubs(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="session")
def launched(cuda_stubs):
    """Gives a kernel of tests/kernel_launch.py by its name; each is compiled once in a process."""
    with ExitStack() as stack:

        @cache
        def kernel(name: str) -> Kernel:
            made = Kernel(cuda_stubs, name)
            stack.enter_context(made.launcher)
            return made

        yield kernel


@pytest.fixture
def full(launched):
    return launched("full")


@pytest.fixture
def causal(launched):
    return launched("causal")


@pytest.fixture
def fixed(launched):
    return launched("fixed")


@pytest.fixture
def many_heads(launched):
    return launched("many_heads")


@pytest.fixture
def kernel(request, launched):
    """The kernel that a test's indirect parameter names."""
    return launched(request.param)
