"""Kernels on a GPU of this machine: the numbers of probes where the architecture fits."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tirx_attn.verify.reference import Array

if TYPE_CHECKING:
    from tirx_attn.family import AnyPlan
    from tirx_attn.verify.probes import Probe


def why_not(arch: str) -> str | None:
    """Why kernels for an architecture cannot run here, in words; None where they can."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return f"there is no {arch} GPU here"  # found out without loading torch, which takes seconds
    if importlib.util.find_spec("torch") is None:
        return f"no {arch} GPU is used without torch, which is not installed"
    import torch

    if not torch.cuda.is_available():
        return f"there is no {arch} GPU here"
    major, minor = torch.cuda.get_device_capability()
    wanted = re.fullmatch(r"sm_(\d+)(\d)a", arch)
    if wanted is None or (major, minor) != (int(wanted[1]), int(wanted[2])):
        return f"the GPU here is sm_{major}{minor}, not {arch}"
    return None


class GpuKernel:
    """A kernel compiled for the GPU of this machine, without LSE and with a baked-in scale.

    Args:
        plan: what to compile.
        timeout: seconds that compiling may take.
    """

    def __init__(self, plan: AnyPlan, timeout: float) -> None:
        from tirx_attn.runtime.export import export
        from tirx_attn.runtime.load import load

        self._folder = tempfile.TemporaryDirectory(prefix="tirx-attn-")
        file = Path(self._folder.name) / "kernel.so"
        self._call = load(export(plan.config, file, arch=plan.target.arch, schedule=plan.schedule, timeout=timeout))

    def run(self, probe: Probe) -> Array:
        """O of a probe, from an output that was NaN before."""
        import torch

        q, k, v = (_tensor(array) for array in (probe.q, probe.k, probe.v))
        o = torch.full_like(q, float("nan"))
        self._call(q, k, v, o)
        torch.cuda.synchronize()
        return o.view(torch.int16).cpu().numpy().view(probe.q.dtype)


def _tensor(array: Array) -> Any:
    """On the GPU, by its bits: NumPy's bfloat16 is not torch's."""
    import torch

    bits = torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).cuda()
    return bits.view(getattr(torch, str(array.dtype)))
