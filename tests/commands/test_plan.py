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
    assert registers == {"softmax": 192, "correction": 80, "mma": 48, "load": 48, "store": 48}


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


def test_run_time_figures(tirx_attn):
    plan = document(tirx_attn, "--shape", "_,_,_,32,8,128")
    assert plan["config"] | {"Hq": 32, "is_causal": False, "dtype": "float16", "scale": None} == plan["config"]
    expected = {"grid": 148, "tasks": None, "m_blocks": None, "l2_heads": None, "persistent": True}
    assert plan["plan"]["launch"] | expected == plan["plan"]["launch"]
    assert plan["parameters"][0] == {"name": "Q", "dtype": "float16", "shape": "[B, Sq, 32, 128]"}


def test_run_time_causal_figures(tirx_attn):
    options = ["--causal", "--dtype", "bf16", "--lse", "--scale", "runtime"]
    plan = document(tirx_attn, "--shape", "2,_,4096,14,2,64", *options)
    config = {"B": 2, "Sq": None, "dtype": "bfloat16", "scale": "runtime", "return_lse": True}
    assert plan["config"] | config == plan["config"]
    # 4 (batch, K/V head) pairs of 1 MiB fit in L2, whatever Sq is
    expected = {"grid": None, "tasks": None, "m_blocks": None, "l2_heads": 4}
    assert plan["plan"]["launch"] | expected == plan["plan"]["launch"]
    assert [parameter["name"] for parameter in plan["parameters"]] == ["Q", "K", "V", "O", "LSE", "scale"]


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
        "grid       │ 512 CTAs of 512 threads, one at a time per SM",
        "512 (batch, K/V head, pair of query tiles), one per CTA, longest first",
        "32 tokens x 4 heads of one K/V head, 128 of 128 rows",
        "key blocks │ 32 in the longest task",
        "K and V of 8 (batch, K/V head) at a time",
        "float16 in and out",
        "1/sqrt(128)",
        "not written",
        "acc_scale",
        "137.473 Gflop",
    ):
        assert part in text
    (line,) = [line for line in text.splitlines() if "kv_stages" in line.split()]
    assert line.split()[-2] == "--schedule"


def rows(tirx_attn, *arguments):
    """Name -> value of the tables of two columns."""
    result = tirx_attn("plan", *arguments)
    assert result.exit_code == 0, result.stderr
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines()]
    return {row[0]: row[1] for row in cells if len(row) == 2}


def test_readable_for_run_time_lengths(tirx_attn):
    assert rows(tirx_attn, "--shape", "_,_,_,21,7,64", "--dtype", "bf16", "--lse", "--scale", "runtime") == {
        "parameters": "Q [B, Sq, 21, 64], K [B, Skv, 7, 64], V [B, Skv, 7, 64], O [B, Sq, 21, 64], LSE [B, 21, Sq], "
        "scale",
        "dtype": "bfloat16 in and out, fp32 accumulation",
        "scale": "a float32 parameter",
        "LSE": "written in fp32, natural logarithm",
        "grid": "148 CTAs of 512 threads, persistent, one at a time per SM",
        "tasks": "known at launch: (batch, K/V head, pair of query tiles), spread evenly over the CTAs",
        "query tile": "42 tokens x 3 heads of one K/V head, 126 of 128 rows",
        "key blocks": "known at launch, last to first",
        "work": "known at launch",
    }


def test_readable_for_run_time_lengths_with_the_mask(tirx_attn):
    found = rows(tirx_attn, "--shape", "_,_,_,14,2,128", "--causal", "--scale", "0.1")
    expected = {
        "scale": "0.1",
        "grid": "one CTA per task, known at launch; each of 512 threads, one at a time per SM",
        "tasks": "known at launch: (batch, K/V head, pair of query tiles), one per CTA, longest first",
        "query tile": "18 tokens x 7 heads of one K/V head, 126 of 128 rows",
        "in L2": "K and V of groups of heads that fit, known at launch",
    }
    assert found | expected == found


def test_lengths_that_are_known_are_shown(tirx_attn):
    found = rows(tirx_attn, "--shape", "2,_,4000,32,8,128", "--causal")
    expected = {
        "tasks": "known at launch: (batch, K/V head, pair of query tiles), one per CTA, longest first",
        "key blocks": "32 in the longest task, last to first",
        "in L2": "K and V of 16 (batch, K/V head) at a time",
        "work": "known at launch",
    }
    assert found | expected == found
    assert rows(tirx_attn, "--shape", "2,4096,_,32,8,128")["tasks"].startswith("1024 (batch, K/V head, pair of query")


def test_no_compiler_is_loaded():
    script = (
        "import sys; from tirx_attn.cli import app;"
        "app(['plan', '--shape', '1,256,256,2,1,128', '--json'], standalone_mode=False);"
        "print(*{'tvm', 'cuda', 'torch', 'tirx_harness'} & sys.modules.keys(), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr.strip()) == (0, "")
