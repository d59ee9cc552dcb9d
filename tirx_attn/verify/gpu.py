"""Kernels on a GPU of this machine: the numbers of probes where the architecture fits."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np

from tirx_attn.runtime.device import arch_of
from tirx_attn.runtime.files import scratch_folder
from tirx_attn.verify.reference import Array

if TYPE_CHECKING:
    from tirx_attn.family import AnyPlan
    from tirx_attn.verify.probe import Probe


def absent(arch: str) -> str:
    """Why this machine cannot run kernels for an architecture, in words; "" where it can. Loads no framework."""
    found = arch_of()
    if found is None:
        return f"there is no {arch} GPU here"
    return "" if found == arch else f"the GPU here is {found.removesuffix('a')}, not {arch}"


def missing() -> str:
    """The package that a run on the GPU lacks, in words; "" where there is none."""
    return "" if importlib.util.find_spec("torch") else "torch is not installed, which holds the tensors"


class GpuKernel:
    """A kernel compiled for the GPU of this machine, without LSE and with a baked-in scale.

    Args:
        plan: what to compile.
        timeout: seconds that compiling may take.
    """

    def __init__(self, plan: AnyPlan, timeout: float) -> None:
        from tirx_attn.runtime.export import export
        from tirx_attn.runtime.load import load

        with scratch_folder() as folder:
            file = folder / "kernel.so"
            export(plan.config, file, (plan.target.arch,), schedule=plan.schedule, timeout=timeout)
            self._call = load(file)

    def run(self, probe: Probe) -> Array:
        """O of a probe, from an output that was NaN before."""
        import torch

        q, k, v = (to_gpu(array) for array in (probe.q, probe.k, probe.v))
        o = torch.full_like(q, float("nan"))
        self._call(q, k, v, o)
        torch.cuda.synchronize()
        return from_gpu(o, probe.q.dtype)


def to_gpu(array: Array) -> Any:
    """A tensor of the same bits: NumPy's bfloat16 is not torch's."""
    import torch

    bits = torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).cuda()
    return bits.view(getattr(torch, str(array.dtype)))


def from_gpu(tensor: Any, dtype: np.dtype[Any]) -> Array:
    """A 16-bit tensor as an array of the same bits."""
    import torch

    return tensor.view(torch.int16).cpu().numpy().view(dtype)
