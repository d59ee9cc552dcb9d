"""What it costs to start: imports, compiling, finding a kernel in the cache, loading it, and the host's time per call.

Without a GPU the first part is measured; with a GPU and --library also loading, the first call and the calls after it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.runtime.cache import KernelCache
from tirx_attn.targets import TARGETS

CONFIG = AttentionConfig(None, None, None, 8, 2, 128)
IMPORTS = {"import tirx_attn": "import tirx_attn", "import of load": "from tirx_attn import load"}
REPEATS = 5
CALLS = 50
SHAPE = (1, 128, 128)
"""B, Sq, Skv of the calls: small, so that the host is what they wait for."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--arch", default="sm_90a", choices=sorted(TARGETS), help="to compile for (%(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="leave out what needs TVM")
    parser.add_argument("--library", type=Path, metavar="FILE", help="exported kernel to load and call on this GPU")
    parser.add_argument("--libraries", type=Path, metavar="FOLDER", help="TVM's runtime libraries, without TVM")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(argv)
    found: dict[str, float] = imports()
    if not options.no_compile:
        found |= compiling(options.arch)
    if options.library:
        found |= calling(options.library, options.libraries)
    if options.json:
        print(json.dumps({"config": str(CONFIG), "measured": found}, indent=1))
    else:
        print("\n".join(f"{name:44} {value:12,.4g}" for name, value in found.items()))
    return 0


def imports() -> dict[str, float]:
    """Seconds that imports take in a fresh process, beyond those of an empty one."""
    empty = _process("")
    return {f"{name}, s": max(0.0, _process(statement) - empty) for name, statement in IMPORTS.items()}


def _process(statement: str) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True, timeout=60)
        times.append(time.perf_counter() - start)
    return median(times)


def compiling(arch: str, **options: Any) -> dict[str, float]:
    """Seconds until a kernel's file is there, with an empty cache and with a warm one, and the file's size.

    Args:
        options: of `KernelCache`.
    """
    with tempfile.TemporaryDirectory() as folder:
        cache = KernelCache(folder, **options)
        cold, path = timed(lambda: cache.get(CONFIG, arch))
        warm = [timed(lambda: cache.get(CONFIG, arch))[0] for _ in range(REPEATS)]
        return {"cold cache, s": cold, "warm cache, s": median(warm), "module, bytes": path.stat().st_size}


def calling(library: Path, libraries: Path | None) -> dict[str, float]:
    """Seconds of loading and of the first call, and the host's microseconds per call beside torch's."""
    import torch

    from tirx_attn import flash_attention, preload

    config = CONFIG
    b, sq, skv = SHAPE
    q = torch.randn(b, sq, config.Hq, config.D, device="cuda").half()
    k, v = (torch.randn(b, skv, config.Hkv, config.D, device="cuda").half() for _ in "kv")
    o = torch.empty_like(q)
    torch.cuda.synchronize()
    loading, kernel = timed(lambda: preload(library, libraries=libraries))

    def first() -> None:
        kernel(q, k, v, o)
        torch.cuda.synchronize()

    first_seconds, _ = timed(first)
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls: dict[str, Callable[[], object]] = {
        "kernel with outputs": lambda: kernel(q, k, v, o),
        "flash_attention": lambda: flash_attention(q, k, v),
        "scaled_dot_product_attention": lambda: sdpa(*heads_first, enable_gqa=True),
    }
    with torch.inference_mode():
        hosts = host_microseconds(calls, torch.cuda.synchronize)
    return {
        "load, s": loading,
        "first call, s": first_seconds,
        **{f"host per call of {name}, us": value for name, value in hosts.items()},
    }


def host_microseconds(
    calls: dict[str, Callable[[], object]], wait: Callable[[], object], rounds: int = 60
) -> dict[str, float]:
    """Median time in which the host makes a call, all kinds in turn; `wait` empties the GPU's queue before each lot."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            wait()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - start) / CALLS * 1e6)
    wait()
    return {name: median(each) for name, each in times.items()}


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    sys.exit(main())
