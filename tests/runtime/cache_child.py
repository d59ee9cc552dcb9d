"""A process that wants kernels of a cache, with a compiler that takes its time and says that it was called.

    python -m tests.runtime.cache_child FOLDER SECONDS CALLS [ROUNDS]

SECONDS is what the compiler takes; CALLS a file with a line for each of its calls. With ROUNDS, each line of stdin
starts one round in a folder of its own. The path of each kernel is printed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.runtime.artifacts import CONFIG, content
from tirx_attn.runtime import KernelCache


def main() -> None:
    folder, seconds, calls = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])

    def build(config, arch, schedule, timeout):
        with calls.open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        (folder / "half").write_bytes(b"half")  # as a compiler leaves files behind when it is killed
        time.sleep(seconds)
        return content(arch=arch, schedule=schedule)

    if len(sys.argv) < 5:
        print(KernelCache(folder, build=build).get(CONFIG, "sm_90a", timeout=300), flush=True)
        return
    print("ready", flush=True)
    for line in sys.stdin:
        print(KernelCache(folder / line.strip(), build=build).get(CONFIG, "sm_90a", timeout=300), flush=True)


if __name__ == "__main__":
    main()
