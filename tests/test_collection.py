"""What pytest collects on the machine of a GPU, which has the exported libraries and no TVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
import sys
from importlib.abc import MetaPathFinder

class NoTvm(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tvm", "tirx_harness", "simpy", "altair", "cuda", "playwright"):
            raise ModuleNotFoundError(f"there is no {name} here", name=name)

if sys.argv[1] == "without":
    sys.meta_path.insert(0, NoTvm())
    import importlib.util
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: None if name == "tvm" else find(name, *rest)
import pytest
sys.exit(pytest.main(["-m", "gpu", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]))
"""


def collected(which: str) -> set[str]:
    command = [sys.executable, "-c", PROGRAM, which]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.slow
@pytest.mark.torch
def test_the_tests_for_a_gpu_are_collected_without_tvm():
    pytest.importorskip("torch")
    found = collected("without")
    assert found == collected("with")
    assert len(found) >= 222
    assert {name.partition("::")[0] for name in found} >= {"tests/test_gpu.py", "tests/test_run_time.py"}
