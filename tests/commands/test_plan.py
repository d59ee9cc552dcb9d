"""`tirx-attn plan`: the figures of the published kernel, and nothing heavy loaded for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def document(tirx_attn, *arguments):
    result = tirx_attn("plan", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_non_causal_figures(tirx_attn):
    plan = document(tirx_attn, "--shape", "1,1024,1024,32,8,128")
    assert plan["tuning"] == {"row": "T1", "regime": "non-causal, MUFU-bound target", "changes": {}}
    assert plan["schedule"]["pv_split"] == [96, 32]
    # 8 K/V heads times 1024 tokens in tasks of two tiles of 128 / (32 / 8) tokens
    assert plan["plan"]["launch"]["tasks"] == 8 * 1024 // (2 * 32)
    assert plan["plan"]["launch"]["grid"] == 128
    registers = {role["name"]: role["registers"] for role in plan["plan"]["roles"]}
    assert registers == {"softmax": 200, "correction": 64, "mma": 48, "load": 48, "store": 48}


def test_the_persistent_grid_is_the_gpu(tirx_attn):
    launch = document(tirx_attn, "--shape", "1,8192,8192,32,32,128")["plan"]["launch"]
    assert (launch["grid"], launch["tasks"]) == (148, 32 * 32)


def test_causal_figures(tirx_attn):
    plan = document(tirx_attn, "--shape", "1,1024,1024,32,8,128", "--causal", "--schedule", "stagger=true")
    assert plan["tuning"]["row"] == "T2"
    assert plan["tuning"]["changes"] == {"stagger": True}
    assert plan["schedule"]["pv_split"] == [64, 64]
    assert plan["schedule"]["epilogue_owner"] == "softmax"
    assert plan["plan"]["launch"]["grid"] == plan["plan"]["launch"]["tasks"] == 128


def test_barriers(tirx_attn):
    protocol = document(tirx_attn, "--shape", "1,1024,1024,32,8,128")["protocol"]
    counts = {edge["name"]: edge["count"] for edge in protocol["edges"]}
    assert counts["p_o_rescale"] == 256
    assert counts["p_ready_2"] == 128
    assert counts["stats.full"] == 64
    assert protocol["named_barriers"] == 8


def test_readable(tirx_attn):
    result = tirx_attn("plan", "--shape", "1,4096,4096,32,8,128", "--causal", "--schedule", "kv_stages=2")
    assert result.exit_code == 0
    text = result.stdout
    for part in (
        "causal B=1 Sq=4096 Skv=4096 Hq=32 Hkv=8 D=128 on B200 (sm_100a)",
        "tuning row T2",
        "65,536 of 65,536 registers",
        "32 tokens x 4 heads",
        "softmax_corr.empty",
        "137.473 Gflop",
    ):
        assert part in text
    (line,) = [line for line in text.splitlines() if "kv_stages" in line]
    assert line.split()[-2] == "--schedule"


def test_no_compiler_is_loaded():
    script = (
        "import sys; from tirx_attn.cli import app;"
        "app(['plan', '--shape', '1,256,256,2,1,128', '--json'], standalone_mode=False);"
        "print(*{'tvm', 'cuda', 'torch', 'tirx_harness'} & sys.modules.keys(), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr.strip()) == (0, "")
