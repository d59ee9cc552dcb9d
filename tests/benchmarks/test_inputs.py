"""The check against fp32 attention, and the Triton kernel in Triton's interpreter. Both need torch, neither a GPU."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.inputs import Problem, WrongResult
from tests.benchmarks.fakes import FakeClock
from tirx_attn import AttentionConfig

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

INTERPRETED = """
import json, math, torch
from benchmarks.inputs import Problem
from benchmarks.triton_peer import Launch, Tiling
from tirx_attn import AttentionConfig
found = {}
for causal in (False, True):
    for lengths in ((2, 70, 145), (1, 64, 64), (1, 130, 40), (2, 1, 65)):
        problem = Problem.random(AttentionConfig(*lengths, 4, 2, 64, causal), "cpu")
        launch = Launch(problem, Tiling(64, 32, 2, 4))
        launch()
        found[f"{lengths} {causal}"] = problem.difference(launch.output)
print(json.dumps(found))
"""


def attention(problem: Problem) -> torch.Tensor:
    """fp64 attention, by loops over batches and heads."""
    c = problem.config
    _, sq, skv = c.lengths
    visible = torch.ones(sq, skv, dtype=torch.bool)
    if c.is_causal:
        visible = visible.tril(skv - sq)
    out = torch.zeros(problem.q.shape, dtype=torch.float64)
    for b in range(out.shape[0]):
        for h in range(c.Hq):
            logits = problem.q[b, :, h].double() @ problem.k[b, :, h // c.ratio].double().T / math.sqrt(c.D)
            weights = torch.softmax(logits.masked_fill(~visible, -math.inf), -1).nan_to_num()
            out[b, :, h] = weights @ problem.v[b, :, h // c.ratio].double()
    return out


@pytest.mark.parametrize("config", [
    AttentionConfig(2, 300, 500, 4, 2, 64, True),
    AttentionConfig(1, 400, 200, 2, 2, 64, True, dtype="bf16"),
    AttentionConfig(2, 1, 130, 4, 1, 64, False),
])  # fmt: skip
def test_right_results_pass_and_others_do_not(config):
    problem = Problem.random(config, "cpu")
    right = attention(problem)
    assert problem.difference(right) < 1e-5
    assert problem.difference(right.to(problem.q.dtype)) < 0.02
    shifted = right.clone()
    shifted[-1, -1, -1, 5] += 0.1
    with pytest.raises(WrongResult, match=r"differs from fp32 attention by 0\.1"):
        problem.difference(shifted)
    shifted[-1, -1, -1, 5] = math.nan
    with pytest.raises(WrongResult, match="by inf"):
        problem.difference(shifted)
    with pytest.raises(WrongResult, match="O has shape"):
        problem.difference(right[:, :0])


def test_inputs_are_the_same_for_the_same_seed():
    config = AttentionConfig(1, 8, 8, 2, 1, 64, dtype="bf16")
    one, other = Problem.random(config, "cpu"), Problem.random(config, "cpu")
    assert torch.equal(one.q, other.q)
    assert one.k.shape == (1, 8, 1, 64)
    assert one.v.dtype == torch.bfloat16
    assert not torch.equal(one.k, one.v)


def test_triton_kernel_computes_attention():
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERPRETED],
        cwd=root, env=environment, capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found) == 8
    assert max(found.values()) < 2e-3


@pytest.mark.parametrize(("name", "kv_heads"), [("ours", 2), ("repeated", 6)])
def test_repeated_keys_and_values_go_to_the_kernel_without_groups(monkeypatch, name, kv_heads):
    calls = []

    def kernel(q, k, v, o):
        calls.append((k, v))
        o.copy_(attention(problem_of_heads(k, v)))

    grouped = Problem.random(AttentionConfig(1, 5, 7, 6, 2, 64), "cpu")

    def problem_of_heads(k, v):
        return Problem(AttentionConfig(1, 5, 7, 6, k.shape[2], 64), grouped.q, k, v)

    loaded = []
    monkeypatch.setattr(peers, "load", lambda path: loaded.append(path.name) or kernel)
    ready = peers.make_peers([name], Path("folder"))[name](grouped, FakeClock())
    ready.call()
    assert loaded == [f"attention_fp16_full_h6x{kv_heads}_d64.so"]
    assert [x.shape[2] for x in calls[0]] == [kv_heads, kv_heads]
    assert grouped.difference(ready.output()) < 1e-3
