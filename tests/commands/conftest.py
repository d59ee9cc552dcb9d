"""Runs `tirx-attn` in this process, with stdout and stderr apart."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tirx_attn.cli import app


@pytest.fixture
def tirx_attn():
    def run(*arguments: str):
        return CliRunner().invoke(app, list(arguments))

    return run
