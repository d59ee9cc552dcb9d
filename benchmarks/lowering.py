"""What it costs to generate a kernel's CUDA source, beside the public TIRx kernel: tracing and lowering, by turns.

The peer is `tirx_kernels.ported.flashattention.flash_attention4` of the package tirx-kernels. It is no dependency:
install it beside this package (`pip install --no-deps tirx-kernels==0.1.2.post1`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from tirx_attn import get_flash_attention4_kernel
from tirx_attn.runtime.codegen import generate_cuda

PEER = "tirx_kernels.ported.flashattention.flash_attention4"
PROBLEMS = {
    "non-causal": (1, 8192, 8192, 32, 32, 128, False),
    "causal": (1, 8192, 8192, 32, 32, 128, True),
    "causal, 4 K/V heads": (1, 4096, 4096, 32, 4, 128, True),
}
"""Arguments of both `get_flash_attention4_kernel`."""

Generator = Callable[..., Any]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lowering", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns that each kernel takes (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(argv)
    try:
        peer = importlib.import_module(PEER).get_flash_attention4_kernel
    except ImportError as error:
        print(f"{error}: pip install --no-deps tirx-kernels==0.1.2.post1", file=sys.stderr)
        return 2
    found = {name: measure(arguments, peer, options.rounds) for name, arguments in PROBLEMS.items()}
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print("| kernel | ours, trace + lower, s | the peer's | ratio |\n|---|---|---|---|")
        for name, row in found.items():
            ours, theirs = (" + ".join(f"{part:.2f}" for part in row[who]) for who in ("ours", "peer"))
            print(f"| {name} | {ours} | {theirs} | {row['ratio']:.2f} |")
    return 0


def measure(arguments: tuple[Any, ...], peer: Generator, rounds: int) -> dict[str, Any]:
    """Median seconds of (trace, lower) for both kernels, and the ratio of the sums."""
    times: dict[str, list[tuple[float, float]]] = {"ours": [], "peer": []}
    for turn in range(-1, rounds):  # the first one warms up
        for name, generate in (("ours", get_flash_attention4_kernel), ("peer", peer)):
            seconds = once(generate, arguments)
            if turn >= 0:
                times[name].append(seconds)
    found: dict[str, Any] = {name: [median(part) for part in zip(*taken, strict=True)] for name, taken in times.items()}
    return found | {"ratio": sum(found["ours"]) / sum(found["peer"])}


def once(generate: Generator, arguments: tuple[Any, ...]) -> tuple[float, float]:
    """Seconds of the processor to trace a kernel and to lower it to CUDA source; one thread does both."""
    start = time.process_time()
    func = generate(*arguments)
    traced = time.process_time()
    generate_cuda(func)
    return traced - start, time.process_time() - traced


if __name__ == "__main__":
    raise SystemExit(main())
