"""From an attention problem to machine code in one call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirx_attn.family import DEFAULT_ARCH, AnyPlan, AnySchedule, build_planned, family_of, plan_for
from tirx_attn.runtime.codegen import dynamic_smem_bytes, generate_cuda
from tirx_attn.runtime.cubin import Cubin
from tirx_attn.runtime.files import write_atomic
from tirx_attn.runtime.nvrtc import DEFAULT_SECONDS, compile_cubin

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

    from tirx_attn.config import AttentionConfig

PHASES = ("trace", "lower", "nvrtc")
"""The phases of a build: PrimFunc, CUDA source, machine code."""

EMITS = ("cubin", "cuda", "tir", "sass")
"""What a build can be saved as."""


@dataclass(frozen=True)
class Build:
    """A kernel in every form it passes through.

    Attributes:
        config: the problem.
        plan: the plan it was generated from.
        arch: architecture of source and machine code.
        func: the PrimFunc.
        source: the CUDA source.
        cubin: the machine code.
        seconds: time of each of `PHASES`; imports are not in it.
    """

    config: AttentionConfig
    plan: AnyPlan
    arch: str
    func: PrimFunc = field(repr=False)
    source: str = field(repr=False)
    cubin: Cubin
    seconds: dict[str, float]

    def save(self, folder: str | os.PathLike[str], stem: str, emit: Iterable[str] = ("cubin",)) -> list[Path]:
        """Write the chosen forms into `folder`, which is made if need be.

        Files are STEM.ARCH.cubin, STEM.ARCH.cu, STEM.ARCH.sass and STEM.tir.

        Raises:
            ValueError: `emit` holds something that is not in `EMITS`; nothing is written.
        """
        wanted = list(dict.fromkeys(emit))
        for name in wanted:
            if name not in EMITS:
                raise ValueError(f"emit={name!r}: allowed values are {', '.join(EMITS)}")
        forms: dict[str, tuple[str, Callable[[], bytes | str]]] = {
            "cubin": (f"{stem}.{self.arch}.cubin", lambda: self.cubin.image),
            "cuda": (f"{stem}.{self.arch}.cu", lambda: self.source),
            "sass": (f"{stem}.{self.arch}.sass", self.cubin.sass),
            "tir": (f"{stem}.tir", lambda: self.func.script()),
        }
        Path(folder).mkdir(parents=True, exist_ok=True)
        return [write_atomic(Path(folder) / forms[name][0], forms[name][1]()) for name in wanted]


def build(
    config: AttentionConfig,
    *,
    schedule: AnySchedule | None = None,
    arch: str = DEFAULT_ARCH,
    progress: Callable[[str], None] | None = None,
    timeout: float = DEFAULT_SECONDS,
) -> Build:
    """Generate and compile the kernel of `config`.

    Args:
        config: the problem.
        schedule: values of the knobs; None takes the tuned ones.
        arch: one of `tirx_attn.targets.TARGETS`.
        progress: called with the name of each of `PHASES` as it starts.
        timeout: seconds that NVRTC may take.

    Raises:
        TypeError, ValueError: `arch` or `schedule` is not allowed.
        CompileError: the kernel cannot be lowered or compiled; for sm_90a also where ptxas serialised WGMMAs, ignored a
            setmaxnreg or spilled.
    """
    plan = plan_for(config, schedule, arch)
    seconds: dict[str, float] = {}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        if progress is not None:
            progress(name)
        started = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - started

    with phase("trace"):
        func = build_planned(plan)
    with phase("lower"):
        source = generate_cuda(func, arch)
    with phase("nvrtc"):
        cubin = compile_planned(plan, source, dynamic_smem=dynamic_smem_bytes(func), timeout=timeout)
    return Build(config, plan, arch, func, source, cubin, seconds)


def compile_planned(plan: AnyPlan, source: str, **options: Any) -> Cubin:
    """Machine code of a plan's CUDA source, for its target. `options` are those of `compile_cubin`.

    Raises:
        CompileError: as `compile_cubin`, and where the family takes no slow code and there is some.
    """
    cubin = compile_cubin(source, plan.target.arch, **options)
    if family_of(plan.target).refuses_slow_code:
        cubin.refuse_slow_code()
    return cubin
