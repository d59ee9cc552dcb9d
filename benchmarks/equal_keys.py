"""How far O and LSE are from right where one key and value are repeated n times, on this GPU, beside the rule for it.

Every weight is 1/n, so that O is the value itself and LSE is its score plus ln n. Tensor cores cut off what does not
fit their accumulator, so that the error grows with n, and most where all terms have one sign.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

POWERS = range(12, 22)
ROWS, HEAD_SIZE = 128, 128


def bound(n: int) -> float:
    """Relative error of O that accumulation may cause: up to one unit of the last of 24 places for each 8 keys."""
    return n * 2.0**-26


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equal_keys", description=__doc__)
    parser.add_argument(
        "--library", type=Path, required=True, metavar="FILE", help="exported kernel of one head, D=128, no mask, LSE"
    )
    parser.add_argument("--libraries", type=Path, metavar="FOLDER", help="TVM's runtime libraries, without TVM")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(argv)
    from tirx_attn import load

    kernel = load(options.library, libraries=options.libraries)
    rows = [measure(kernel, 2**power) for power in POWERS]
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print("| keys | O, relative | of what n · 2^-26 allows | LSE, absolute |\n|---:|---:|---:|---:|")
        for row in rows:
            share = row["o"] / row["bound"]
            print(f"| 2^{int(math.log2(row['keys']))} | {row['o']:.1e} | {share:.2f} | {row['lse']:.1e} |")
    return 0


def measure(kernel: Any, n: int) -> dict[str, float]:
    """Largest error of O, relative to the value, and of LSE, for n equal keys."""
    import torch

    dtype = getattr(torch, kernel.description.config.dtype)
    generator = torch.Generator(device="cuda").manual_seed(n)
    q, k, v = (
        torch.randn(1, length, 1, HEAD_SIZE, device="cuda", generator=generator).to(dtype) for length in (ROWS, 1, 1)
    )
    o = torch.full_like(q, float("nan"))
    lse = torch.full((1, 1, ROWS), float("nan"), device="cuda")
    kernel(q, k.expand(-1, n, -1, -1), v.expand(-1, n, -1, -1), o, lse)
    scores = (q[0, :, 0].double() @ k[0, 0, 0].double()) / math.sqrt(HEAD_SIZE)
    value = v[0, 0, 0].double()
    error = (o[0, :, 0].double() - value).abs() / value.abs()
    # Rounding O to its dtype is no part of it.
    above = (error - torch.finfo(dtype).eps / 2).clamp(min=0)
    return {
        "keys": n,
        "o": float(above.max()),
        "bound": bound(n),
        "lse": float((lse[0, 0].double() - scores - math.log(n)).abs().max()),
    }


if __name__ == "__main__":
    sys.exit(main())
