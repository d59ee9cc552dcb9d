"""What the instruments cost beside `import tvm`: builds, structural checks, and commands from an edit to a verdict.

Every row is a process of its own, by turns, and the least of its rounds counts: what runs beside it only slows it down.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

BASE = "import tvm"
BUILD = """
import time
import tirx_attn.kernel  # imports are not part of a build
from tirx_attn import AttentionConfig
from tirx_attn.runtime import build
start = time.process_time()
build(AttentionConfig({arguments}), arch="{arch}")
print(time.process_time() - start)
"""
CHECK = """
import time
import tvm
from tirx_attn import AttentionConfig
from tirx_attn.family import build_planned, plan_for
from tirx_attn.verify.exercise import check_launches
plan = plan_for(AttentionConfig({arguments}), arch="{arch}")
start = time.process_time()
report = check_launches(plan, build_planned(plan))
assert report.verdict == "clean", report.findings
print(time.process_time() - start)
"""
"""Trace and all launches."""

COMMAND = "import sys\nfrom tirx_attn.cli import main\nsys.argv = ['tirx-attn', {words}]\nmain()"
"""The command line without the entry point's script."""


@dataclass(frozen=True)
class Program:
    """What is timed: all of its process, or the seconds of the processor that it prints."""

    text: str
    prints: bool = False


ROWS = {
    BASE: Program(BASE),
    **{
        f"build, {name}": Program(BUILD.format(arguments=f"1, 8192, 8192, 32, 32, 128, {causal}", arch=arch), True)
        for name, causal, arch in (
            ("full 8192", False, "sm_100a"),
            ("causal 8192", True, "sm_100a"),
            ("causal 8192, sm_90a", True, "sm_90a"),
        )
    },
    **{
        f"check, {name}": Program(CHECK.format(arguments=arguments, arch=arch), True)
        for name, arch, arguments in (
            ("sm_100a", "sm_100a", "1, 256, 384, 2, 1, 128"),
            ("sm_100a, causal", "sm_100a", "1, 256, 256, 2, 1, 128, True"),
            ("sm_100a, causal, head size 64", "sm_100a", "1, 300, 300, 8, 2, 64, True"),
            ("sm_100a, 8192", "sm_100a", "1, 8192, 8192, 32, 32, 128"),
            ("sm_90a", "sm_90a", "1, 256, 384, 2, 1, 128"),
            ("sm_90a, causal", "sm_90a", "1, 256, 256, 2, 1, 128, True"),
            ("sm_90a, 8192", "sm_90a", "1, 8192, 8192, 32, 32, 128"),
        )
    },
    **{
        f"tirx-attn {words}": Program(COMMAND.format(words=", ".join(map(repr, words.split()))))
        for words in (
            "plan --shape 1,256,384,2,1,128",
            "check --shape 1,256,384,2,1,128 --simulate none",
            "check --shape 1,256,384,2,1,128 --arch sm_90a --simulate none",
            "check --shape 1,8192,8192,32,32,128 --causal --simulate none",
        )
    },
}
"""By the name of the row."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one program: on the clock, and of the processor."""

    clock: float
    processor: float


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instruments", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns that each row takes (%(default)s)")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose name holds this text")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(argv)
    rows = {name: program for name, program in ROWS.items() if name == BASE or options.rows in name}
    found = measure(rows, options.rounds)
    base = found[BASE].processor
    if options.json:
        ratios = {name: vars(cost) | {"ratio": cost.processor / base} for name, cost in found.items()}
        print(json.dumps(ratios, indent=1))
    else:
        print(f"| row | clock, s | processor, s | processor / {BASE} |\n|---|---:|---:|---:|")
        for name, cost in found.items():
            print(f"| {name} | {cost.clock:.2f} | {cost.processor:.2f} | {cost.processor / base:.2f} |")
    return 0


def measure(rows: dict[str, Program], rounds: int) -> dict[str, Cost]:
    """The least cost of each program over all rounds."""
    costs: dict[str, list[Cost]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, program in rows.items():
            costs[name].append(once(program))
    return {
        name: Cost(min(cost.clock for cost in each), min(cost.processor for cost in each))
        for name, each in costs.items()
    }


def once(program: Program) -> Cost:
    """Cost of one program in a process of its own."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program.text], check=True, capture_output=True, text=True, timeout=600)
    clock, after = time.perf_counter() - start, os.times()
    children = (after.children_user - before.children_user) + (after.children_system - before.children_system)
    return Cost(clock, float(done.stdout) if program.prints else children)


if __name__ == "__main__":
    raise SystemExit(main())
