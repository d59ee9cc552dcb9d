"""Where the launches of the run-time kernels run: the CPU simulator (sm_100a), or an H200 (sm_90a).

On the GPU the kernels come as libraries that a machine with TVM exported before; `python -m tests.engines FOLDER` does.
TIRX_ATTN_KERNELS names the folder there, and TIRX_ATTN_LIBRARIES that of TVM's runtime libraries where TVM is not
installed.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.launches import LIMIT
from tests.run_time import KERNELS, Kernel
from tirx_attn import AttentionConfig, verify
from tirx_attn.config import RUNTIME
from tirx_attn.verify import gpu
from tirx_attn.verify.gpu import from_gpu, to_gpu

GPU_ARCH = "sm_90a"

LARGE_KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("full_4_4", (4, 4, 128)),
        Kernel("causal_8_2", (8, 2, 128), True),
        Kernel("causal_8_8_bf16", (8, 8, 128), True, "bfloat16"),
        Kernel("full_8_8", (8, 8, 128)),
        Kernel("causal_8_1", (8, 1, 128), True),
        Kernel("full_128_128", (128, 128, 128)),
    )
}
"""For launches that only a GPU can take, or can take with all their heads: strided tensors, and large ones."""

GPU_KERNELS = KERNELS | LARGE_KERNELS

OP_KERNELS = {
    "op_full": AttentionConfig(None, None, None, 8, 2, 128),
    "op_causal_lse": AttentionConfig(None, None, None, 8, 2, 128, True, return_lse=True),
    "op_scale": AttentionConfig(None, None, None, 8, 2, 128, scale=RUNTIME),
    "op_bf16": AttentionConfig(None, None, None, 8, 2, 128, dtype="bf16"),
    "op_24": AttentionConfig(None, None, None, 24, 24, 128),
    "op_single": AttentionConfig(None, None, None, 1, 1, 128),
    "op_llama": AttentionConfig(None, None, None, 4, 2, 64, True),
    "op_llama_bf16": AttentionConfig(None, None, None, 4, 2, 64, True, dtype="bf16"),
    "op_bert": AttentionConfig(None, None, None, 2, 2, 64),
}
"""For `flash_attention` on a GPU; the last three for models of transformers."""


@dataclass(frozen=True)
class Outputs:
    """O and LSE of one launch, and what was found besides; both were NaN before."""

    o: np.ndarray
    lse: np.ndarray
    verdict: str = "clean"
    findings: tuple[Any, ...] = ()


def no_gpu() -> str:
    """What the launches on a GPU lack here, in words; "" where they can be made."""
    if "TIRX_ATTN_KERNELS" not in os.environ:
        return "needs the libraries that TIRX_ATTN_KERNELS names"
    return gpu.absent(GPU_ARCH) or gpu.missing()


class Simulator:
    """The sm_100a kernels, on the CPU."""

    def run(self, name: str, arrays: dict[str, Any]) -> Outputs:
        done = verify.run(KERNELS[name].subject.func(), with_scale(name, arrays), time_limit=LIMIT)
        return Outputs(done.outputs["O"], done.outputs["LSE"], done.verdict, tuple(done.findings))


class Gpu:
    """The sm_90a kernels, on the GPU of this machine."""

    def run(self, name: str, arrays: dict[str, Any]) -> Outputs:
        outputs = self.outputs(name, with_scale(name, arrays))
        return Outputs(outputs["O"], outputs["LSE"])

    def outputs(self, name: str, arrays: dict[str, Any], return_lse: bool = True) -> dict[str, np.ndarray]:
        """What a kernel writes, by parameter; all was NaN before. `arrays` holds the scale where it takes one."""
        import torch

        q, k, v = (to_gpu(arrays[each]) for each in "QKV")
        o = torch.full_like(q, float("nan"))
        lse = torch.full((q.shape[0], q.shape[2], q.shape[1]), float("nan"), device="cuda")
        scale = [float(arrays["scale"])] if "scale" in arrays else []
        library(name)(q, k, v, o, *([lse] if return_lse else []), *scale)
        torch.cuda.synchronize()
        return {"O": from_gpu(o, arrays["Q"].dtype), "LSE": lse.cpu().numpy()}


@cache
def library(name: str) -> Any:
    """An exported run-time kernel."""
    from tirx_attn.runtime.load import load

    return load(library_file(name), libraries=runtime_libraries())


def library_file(name: str) -> Path:
    """The file of an exported kernel."""
    return Path(os.environ["TIRX_ATTN_KERNELS"]) / f"{name}.so"


def runtime_libraries() -> str | None:
    """Folder of TVM's runtime libraries, where TVM is not installed."""
    return os.environ.get("TIRX_ATTN_LIBRARIES") or None


ENGINES = [
    pytest.param(Simulator, id="simulator", marks=[pytest.mark.simulator, pytest.mark.slow]),
    pytest.param(Gpu, id=GPU_ARCH, marks=pytest.mark.gpu),
]


def export_all(folder: Path) -> None:
    """Libraries of all run-time kernels for the GPU."""
    from tirx_attn.runtime.export import export

    folder.mkdir(parents=True, exist_ok=True)
    configs = {name: kernel.config for name, kernel in GPU_KERNELS.items()} | OP_KERNELS
    for name, config in configs.items():
        print(*export(config, folder / f"{name}.so", (GPU_ARCH,)), flush=True)
    # One for another GPU, which is refused.
    print(*export(OP_KERNELS["op_full"], folder / "blackwell.so", ("sm_100a",)), flush=True)


def with_scale(name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays, and the scale where the kernel takes one."""
    scale = GPU_KERNELS[name].scale
    return arrays if scale is None else {**arrays, "scale": np.float32(scale)}


if __name__ == "__main__":
    export_all(Path(sys.argv[1]))
