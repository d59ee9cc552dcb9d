"""What the structural check of `tirx-attn check` costs: processor seconds of each kernel, beside `import tvm`.

A check traces the kernel, plays its own launch, and traces and plays it for further ones. Each is measured in a process
of its own, with files of bytecode that are there already.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from statistics import median

IMPORT = "import tvm"
KERNELS = {
    "sm_100a, non-causal": ("sm_100a", (1, 256, 384, 2, 1, 128), False),
    "sm_100a, causal": ("sm_100a", (1, 256, 256, 2, 1, 128), True),
    "sm_100a, causal, head size 64": ("sm_100a", (1, 300, 300, 8, 2, 64), True),
    "sm_100a, non-causal, 8192": ("sm_100a", (1, 8192, 8192, 32, 32, 128), False),
    "sm_90a, non-causal": ("sm_90a", (1, 256, 384, 2, 1, 128), False),
    "sm_90a, causal": ("sm_90a", (1, 256, 256, 2, 1, 128), True),
    "sm_90a, non-causal, 8192": ("sm_90a", (1, 8192, 8192, 32, 32, 128), False),
}
"""Name -> architecture, (B, Sq, Skv, Hq, Hkv, D), mask."""

CHECK = """
import time
import tvm
from tirx_attn.config import AttentionConfig
from tirx_attn.family import build_planned, plan_for
from tirx_attn.verify.exercise import check_launches
plan = plan_for(AttentionConfig(*{shape}, {is_causal}), arch={arch!r})
start = time.process_time()
report = check_launches(plan, build_planned(plan))
assert report.verdict == "clean", report.findings
print(time.process_time() - start)
"""
ALONE = f"""
import time
start = time.process_time()
{IMPORT}
print(time.process_time() - start)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check_time", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, of which the median counts (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(argv)
    programs = {IMPORT: ALONE} | {
        name: CHECK.format(arch=arch, shape=shape, is_causal=is_causal)
        for name, (arch, shape, is_causal) in KERNELS.items()
    }
    found = {name: seconds(program, options.rounds) for name, program in programs.items()}
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print("| check of | processor seconds |\n|---|---:|")
        print("\n".join(f"| {name} | {value:.2f} |" for name, value in found.items()))
    return 0


def seconds(program: str, rounds: int) -> float:
    """Median of what a program prints, each time in a process of its own."""
    run = [sys.executable, "-c", program]
    return median(
        float(subprocess.run(run, check=True, capture_output=True, text=True, timeout=300).stdout)
        for _ in range(rounds)
    )


if __name__ == "__main__":
    raise SystemExit(main())
