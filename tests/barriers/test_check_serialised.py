"""The structural check on a PrimFunc that comes from a file, in a process that knows nothing of the protocol."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.barriers.checked import find, headline, judge, kernel

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

SCRIPT = """
import json, sys
import tvm
from tirx_attn.barriers.check import check

reports = [check(tvm.ir.load_json(open(path).read())) for path in sys.argv[1:]]
known = [name for name in sys.modules if name.startswith("tirx_attn.")]
print(json.dumps({"reports": [report.to_dict() for report in reports], "modules": known}))
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """What a fresh process says of a base and of two mutants."""
    import tvm

    folder = tmp_path_factory.mktemp("serialised")
    base = kernel("correction")
    mutants = [find("correction", "skip arrival with rescale"), find("correction", "drop wait", "p_ready_2")]
    files = []
    for number, func in enumerate([base, *(mutant.apply(base) for mutant in mutants)]):
        files.append(folder / f"{number}.json")
        files[-1].write_text(tvm.ir.save_json(func))
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, files)], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return json.loads(output)


def test_neither_protocol_nor_kernel_is_imported(answer):
    assert "tirx_attn.barriers.check" in answer["modules"]
    unwanted = ("tirx_attn.barriers.protocol", "tirx_attn.kernel", "tirx_attn.roles")
    assert [name for name in answer["modules"] if name.startswith(unwanted)] == []


def test_the_kernel_is_clean(answer):
    assert answer["reports"][0]["verdict"] == "clean"


def test_names_of_edges_and_roles_are_in_the_file(answer):
    skipped, unordered = (report["findings"][0] for report in answer["reports"][1:])
    assert (skipped["kind"], skipped["edge"], skipped["role"]) == ("deadlock", "p_o_rescale", "correction")
    assert (unordered["kind"], unordered["edge"], unordered["role"]) == ("race", "p_ready_2", "mma")


def test_the_counterexample_is_the_same(answer):
    first = answer["reports"][1]["findings"][0]["message"].splitlines()[0]
    assert first == headline(judge("correction", "skip arrival with rescale"))
