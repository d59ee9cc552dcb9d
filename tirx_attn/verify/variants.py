"""Proof of a variant: one small launch whose heads hold ordinary data, a rescale in every block, and one in none."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tirx_attn.config import AttentionConfig
from tirx_attn.runtime.codegen import generate_cuda
from tirx_attn.runtime.files import write_atomic
from tirx_attn.schedule import Plan, Schedule, make_plan
from tirx_attn.verify import simulator
from tirx_attn.verify.attention import simulated_plan
from tirx_attn.verify.inputs import CHECKERS, INPUTS
from tirx_attn.verify.probe import Probe
from tirx_attn.verify.process import Notes, SimulatorDied, SimulatorError
from tirx_attn.verify.reference import Array, ErrorVerdict

TIMED_OUT, DIED = "timed out", "died"

_VERSIONED = ("apache-tvm", "tirx-harness", "numpy")


def problem(is_causal: bool) -> AttentionConfig:
    """Two query tiles and three key blocks for each of the heads."""
    return AttentionConfig(1, 256, 384, len(INPUTS), len(INPUTS), 128, is_causal)


def proof_plan(schedule: Schedule, is_causal: bool) -> Plan:
    """Plan of the launch. Without a mask one CTA takes all heads, so that every phase goes from task to task."""
    ctas = None if is_causal else 1
    return simulated_plan(make_plan(problem(is_causal), replace(schedule, persistent_ctas=ctas)))


def inputs(is_causal: bool) -> dict[str, Probe]:
    """One probe of a single head for each of INPUTS."""
    config = replace(problem(is_causal), Hq=1, Hkv=1)
    return {name: make(config) for name, make in INPUTS.items()}


def joined(probes: dict[str, Probe]) -> dict[str, Array]:
    """The launch's arrays: the probes side by side, as heads."""
    return {name: np.concatenate([probe.arrays[name] for probe in probes.values()], axis=2) for name in ("Q", "K", "V")}


def judged(probes: dict[str, Probe], o: Array) -> dict[str, ErrorVerdict]:
    """Verdict on each head's output."""
    return {name: probe.judge(o[:, :, head : head + 1]) for head, (name, probe) in enumerate(probes.items())}


@dataclass(frozen=True)
class Proof:
    """What the simulator said of one kernel.

    Attributes:
        kernel: `kernel_key`.
        numbers, synccheck, racecheck: "clean", "timed out", "died" (the simulator's process), or what else was found.
        error: largest error of a head as a part of what the rule allows it; None where there are no numbers.
        findings: what was reported, in a line each.
    """

    kernel: str
    numbers: str
    synccheck: str
    racecheck: str
    error: float | None
    findings: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return {self.numbers, self.synccheck, self.racecheck} == {"clean"}

    @property
    def is_settled(self) -> bool:
        """Every run ended with a verdict, which a timeout and a process that died are not."""
        return not {TIMED_OUT, DIED} & {self.numbers, self.synccheck, self.racecheck}


def kernel_key(func: Any, is_causal: bool, arch: str = "sm_100a") -> str:
    """What a proof is about: the CUDA text of a kernel, the inputs, and the packages that judge it."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _VERSIONED]
    made = hashlib.sha256("\n".join([generate_cuda(func, arch), *INPUTS, *versions]).encode())
    for array in joined(inputs(is_causal)).values():
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()


def prove(func: Any, is_causal: bool, *, time_limit: float, notes: Notes | None = None, key: str = "") -> Proof:
    """Numbers and both checkers of a kernel of `proof_plan`.

    Args:
        func: its PrimFunc.
        is_causal: its mask.
        time_limit: seconds for each of the three runs, its build included.
        notes: called with progress.
        key: its `kernel_key`, where that is known.
    """
    probes = inputs(is_causal)
    arrays = joined(probes)
    found: dict[str, str] = {}
    findings: list[str] = []
    worst: float | None = None
    try:
        run = simulator.run(func, arrays, time_limit=time_limit, notes=notes)
        verdicts = judged(probes, run.outputs["O"])
        wrong = [f"{name}: error {v.error:.2e}, allowed {v.bound:.2e}" for name, v in verdicts.items() if not v.ok]
        findings += [f"numbers: {text}" for text in (*wrong, *(message for _, message in run.findings))]
        found["numbers"] = "wrong" if wrong else run.verdict
        worst = max(v.error / v.bound for v in verdicts.values())
    except (SimulatorError, TimeoutError) as error:
        found["numbers"] = _verdict(error)
        findings.append(f"numbers: {error}")
    for checker in CHECKERS:
        try:
            report = getattr(simulator, checker)(func, arrays, time_limit=time_limit, notes=notes)
            found[checker] = report.verdict
            findings += [f"{checker}: {message.splitlines()[0]}" for _, message in report.findings]
        except (SimulatorError, TimeoutError) as error:
            found[checker] = _verdict(error)
            findings.append(f"{checker}: {error}")
    if worst is not None and not np.isfinite(worst):
        worst = None
    return Proof(key or kernel_key(func, is_causal), **found, error=worst, findings=tuple(findings))


def _verdict(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return TIMED_OUT
    return DIED if isinstance(error, SimulatorDied) else "error"


class Record:
    """Proofs that are kept in a file, one by one as they come, and found again by kernel."""

    def __init__(self, path: Path | None):
        """Read what the file holds; a missing one is empty, and None keeps nothing.

        Raises:
            ValueError: the file holds something else.
            OSError: it cannot be read.
        """
        self.path = path
        self._proofs: dict[str, Proof] = {}
        if path is not None and path.exists():
            try:
                for row in json.loads(path.read_text(encoding="utf-8"))["proofs"]:
                    self._proofs[row["kernel"]] = Proof(**{**row, "findings": tuple(row["findings"])})
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}: allowed is a file that this command wrote ({error})") from None

    def __iter__(self) -> Iterator[Proof]:
        return iter(self._proofs.values())

    def find(self, kernel: str) -> Proof | None:
        """The proof of a kernel, where there is one."""
        return self._proofs.get(kernel)

    def add(self, proof: Proof) -> None:
        """Keep a proof, unless a run of it passed its time limit: another machine, or another day, may be faster."""
        if not proof.is_settled:
            return
        self._proofs[proof.kernel] = proof
        if self.path is not None:
            write_atomic(self.path, json.dumps({"proofs": [asdict(each) for each in self]}, indent=1))
