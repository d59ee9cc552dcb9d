"""Every example runs as it stands and stays short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

OUTPUT = {
    "inspect_plan.py": "p_o_rescale",
    "published_recipe.py": "compiled for sm_100a",
    "build_cubin.py": "128 registers at launch",
    "custom_schedule.py": "refused: pv_split=(80, 48)",
    "simulate.py": "largest error",
    "run_time_lengths.py": "largest error",
}
"""Example -> something that it prints, on a machine without a Blackwell GPU."""

HEAVY = {
    "published_recipe.py": [pytest.mark.slow],
    "build_cubin.py": [pytest.mark.slow],
    "custom_schedule.py": [pytest.mark.slow],
    **{
        name: [
            pytest.mark.slow,
            pytest.mark.simulator,
            pytest.mark.recorded(f"examples/{name}", "tirx_attn/verify/attention.py"),
        ]
        for name in ("simulate.py", "run_time_lengths.py")
    },
}


def test_all_are_listed_and_shorter_than_sixty_lines():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(OUTPUT)
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 60


@pytest.mark.parametrize("name", [pytest.param(name, marks=HEAVY.get(name, [])) for name in OUTPUT])
def test_it_runs(name, tmp_path):
    arguments = [str(tmp_path)] if name == "build_cubin.py" else []
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
        cwd=tmp_path,
        env=_environment(),
    )
    assert done.returncode == 0, done.stderr
    expected = "the kernel ran" if name == "published_recipe.py" and "the kernel ran" in done.stdout else OUTPUT[name]
    assert expected in done.stdout


def _environment() -> dict[str, str]:
    """The environment, with this checkout importable also where it is not installed."""
    import os

    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
