"""Shared by all tests: the simulator's child process ends with the run."""

from __future__ import annotations

import pytest

from tirx_attn import verify


@pytest.fixture(scope="session", autouse=True)
def simulator_process():
    yield
    verify.close()
