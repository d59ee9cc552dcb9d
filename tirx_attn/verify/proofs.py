"""Proofs on the simulator as records: a kernel, its launches, and what each of them depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tirx_attn.config import RUNTIME, AttentionConfig
from tirx_attn.runtime.codegen import generate_cuda
from tirx_attn.runtime.origin import installed
from tirx_attn.schedule import Plan, Schedule, make_plan
from tirx_attn.verify import simulator
from tirx_attn.verify.attention import simulated_plan
from tirx_attn.verify.probe import Probe
from tirx_attn.verify.probes import PROBES
from tirx_attn.verify.process import Notes
from tirx_attn.verify.records import Record, Records, code_hash, key_of
from tirx_attn.verify.reference import Array, ErrorVerdict, attention_reference, judge_by_head, lse_rule
from tirx_attn.verify.rescale import RESCALE_PROBES

SIMULATED = "sm_100a"
"""The architecture of these kernels."""

JUDGES = ("apache-tvm", "tirx-harness")
"""Packages whose release is part of every key: the simulator, and what hands it the kernel."""

_HERE = Path(__file__).parent

@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kind: "run" for numbers, "synccheck" or "racecheck".
        probe: name of the input, of `PROBES` or `RESCALE_PROBES`.
        lengths: (B, Sq, Skv).
    """

    kind: str
    probe: str
    lengths: tuple[int, int, int]

    @property
    def name(self) -> str:
        """The record's name."""
        return f"{self.kind} {self.probe} {','.join(map(str, self.lengths))}"


class Subject(Protocol):
    """A kernel that is proved."""

    @property
    def file(self) -> str:
        """Name of its record file."""

    def func(self) -> Any:
        """Its PrimFunc, as the simulator takes it."""

    def source(self) -> str:
        """Hash of its device source."""

    def about(self) -> dict[str, Any]:
        """The first line of its file."""

    def arrays(self, launch: Launch) -> dict[str, Any]:
        """Inputs by parameter."""

    def answer(self, launch: Launch) -> Array | None:
        """The right output in closed form, where there is one; otherwise the reference says it."""

    def judged(self, launch: Launch, outputs: Mapping[str, Any]) -> list[ErrorVerdict]:
        """Verdicts on the outputs of a launch for numbers."""


@dataclass(frozen=True)
class Kernel:
    """An attention kernel on the simulator.

    Attributes:
        name: of its record file.
        config: the problem; lengths that are None are those of the launch.
        schedule: how it runs.
        grid: CTAs, where they would follow from a length.
        scale: factor on the logits, where the problem leaves it to the launch.
    """

    name: str
    config: AttentionConfig
    schedule: Schedule
    grid: int | None = None
    scale: float | None = None

    @property
    def file(self) -> str:
        return f"{SIMULATED}/{self.name}"

    @property
    def plan(self) -> Plan:
        return simulated_plan(make_plan(self.config, self.schedule), self.grid)

    def func(self) -> Any:
        return _func(self)

    def source(self) -> str:
        return _source(self)

    def about(self) -> dict[str, Any]:
        about = {"kernel": self.name, "arch": SIMULATED, "config": asdict(self.config), "grid": self.grid}
        return about | {"scale": self.scale, "schedule": asdict(self.schedule), "source": self.source(), **judges()}

    def probe(self, launch: Launch) -> Probe:
        """The input of a launch."""
        b, sq, skv = launch.lengths
        scale = self.config.scale if self.scale is None else self.scale
        return _probe(launch.probe, replace(self.config, B=b, Sq=sq, Skv=skv, scale=scale))

    def arrays(self, launch: Launch) -> dict[str, Any]:
        scale = {} if self.scale is None else {"scale": np.float32(self.scale)}
        return {**self.probe(launch).arrays, **scale}

    def answer(self, launch: Launch) -> Array | None:
        return self.probe(launch).expected

    def judged(self, launch: Launch, outputs: Mapping[str, Any]) -> list[ErrorVerdict]:
        probe, o = self.probe(launch), outputs["O"]
        scale = self.scale if self.config.scale == RUNTIME else self.config.scale
        assert not isinstance(scale, str)
        verdicts = [probe.judge(o, scale=scale)]
        if probe.name == "rescale_by_head":
            verdicts = judge_by_head(o, probe.q, probe.k, probe.v, causal=probe.is_causal)
        if self.config.return_lse:
            _, lse = attention_reference(probe.q, probe.k, probe.v, causal=probe.is_causal, scale=scale)
            verdicts.append(lse_rule(outputs["LSE"], lse, self.config.D))
        return verdicts


@cache
def _func(kernel: Kernel) -> Any:
    from tirx_attn.kernel import build_kernel

    return build_kernel(kernel.plan)


@cache
def _source(kernel: Kernel) -> str:
    return source_hash(kernel.func())


@lru_cache(maxsize=8)
def _probe(name: str, config: AttentionConfig) -> Probe:
    return (PROBES | RESCALE_PROBES)[name](config)


def source_hash(func: Any, arch: str = SIMULATED) -> str:
    """SHA-256 of a PrimFunc's CUDA source."""
    return hashlib.sha256(generate_cuda(func, arch).encode()).hexdigest()


@cache
def judges() -> dict[str, Any]:
    """What passes the verdict: releases of the simulator, and the code of the reference and of its rules."""
    return {"versions": installed(*JUDGES), "reference": code_hash(_HERE / "reference.py", _HERE / "probe.py")}


def proof_key(subject: Subject, launch: Launch) -> str:
    """Hash of the device source, the launch and its inputs, and the judges."""
    inputs = inputs_hash(subject.arrays(launch), subject.answer(launch))
    return key_of(source=subject.source(), launch=launch.name, inputs=inputs, **judges())


def inputs_hash(arrays: Mapping[str, Any], answer: Array | None) -> str:
    """Hash of the inputs of a launch, and of the right output where it is known in closed form."""
    made = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        made.update(f"{name} {array.dtype} {array.shape}".encode())
        made.update(np.ascontiguousarray(array).tobytes())
    if answer is not None:
        made.update(np.ascontiguousarray(answer).tobytes())
    return made.hexdigest()


def find(records: Records, subject: Subject, launch: Launch) -> Record | None:
    """The record of a proof as it would be made today, where there is one."""
    return records.find(subject.file, launch.name, proof_key(subject, launch))


def prove(subject: Subject, launch: Launch, *, time_limit: float, notes: Notes | None = None) -> Record:
    """Make a proof. Errors as `simulator.run` raises them: without an answer there is no record."""
    key, arrays = proof_key(subject, launch), subject.arrays(launch)
    if launch.kind == "run":
        run = simulator.run(subject.func(), arrays, time_limit=time_limit, notes=notes)
        verdicts = subject.judged(launch, run.outputs)
        worst = max(verdicts, key=lambda one: one.error / one.bound if one.bound else one.error)
        verdict = run.verdict if all(one.ok for one in verdicts) else "wrong"
        error = worst.error if np.isfinite(worst.error) else None
        figures = {"error": error, "bound": worst.bound, "seconds": round(run.seconds, 2)}
        return Record(launch.name, key, verdict, figures)
    check = getattr(simulator, launch.kind)(subject.func(), arrays, time_limit=time_limit, notes=notes)
    found = {} if check.clean else {"findings": [message.splitlines()[0] for _, message in check.findings]}
    return Record(launch.name, key, check.verdict, {"seconds": round(check.seconds, 2), **found})
