"""`roofline_report` and `show`: the figures of the published kernel, in tables and as one JSON document."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from tirx_attn import AttentionConfig
from tirx_attn.commands.arguments import ArgumentError
from tirx_attn.commands.roofline import roofline_report, show
from tirx_attn.hopper.plan import make_hopper_plan
from tirx_attn.schedule import make_plan

FULL = AttentionConfig(1, 8192, 8192, 32, 32, 128)


def printed(plan) -> str:
    console = Console(file=StringIO(), width=160)
    show(plan, console)
    return console.file.getvalue()


def test_report_of_the_full_plan():
    report = roofline_report(make_plan(FULL))
    assert report["tile"] | {"mma": 1024, "exp": 896, "smem": 768, "binds": ["mma"]} == report["tile"]
    assert report["task_tile"] | {"rows": 256, "mma": 2048, "exp": 1792, "smem": 1536} == report["task_tile"]
    assert report["binds"] == ["mma"]
    assert report["exp_to_mma"] == 1
    assert report["balance"]["launched"] == 7 * 64
    assert report["margin"]["largest_p"] == 256
    assert report["traffic"]["flop_per_byte"]["single"] == 4096


@pytest.mark.parametrize("make", [make_plan, make_hopper_plan])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_json_is_one_document(make, causal, capsys):
    plan = make(replace(FULL, is_causal=causal, D=64))
    show(plan, Console(), as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert (printed.pop("command"), printed.pop("config")["D"]) == ("model --roofline", 64)
    assert printed == json.loads(json.dumps(roofline_report(plan)))


def test_tables():
    text = printed(make_plan(replace(FULL, D=64)))
    for part in ("by the MUFU", "every tensor once", "256 x 128", "longest first, fixed stride", "256, 8.0 bits"):
        assert part in text
    assert "the slowest two tie" in printed(make_hopper_plan(replace(FULL, D=64)))


def test_one_query_is_bound_by_global_memory():
    assert "by the global memory" in printed(make_plan(AttentionConfig(16, 1, 4096, 32, 8, 128)))


def test_open_lengths_are_refused():
    with pytest.raises(ArgumentError, match="--roofline with Sq, Skv left to run time: allowed here are sizes"):
        roofline_report(make_plan(AttentionConfig(1, None, None, 6, 2, 64)))


def test_no_tvm_is_loaded():
    program = (
        "import sys; from tirx_attn.commands.roofline import roofline_report; from tirx_attn.schedule import make_plan;"
        "from tirx_attn import AttentionConfig; roofline_report(make_plan(AttentionConfig(1, 256, 256, 1, 1, 128)));"
        "assert 'tvm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
