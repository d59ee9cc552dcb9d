"""Whether records still hold: the kernel of a record file is generated again from what its first line says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.family import AnyPlan, build_planned, family_of, plan_for
from tirx_attn.schedule import Schedule
from tirx_attn.targets import target_for
from tirx_attn.verify import mutation, mutation_hopper
from tirx_attn.verify.fates import Base
from tirx_attn.verify.proofs import SIMULATED, Kernel, Launch, judges, proof_key, source_hash
from tirx_attn.verify.records import Record, RecordFile


@dataclass(frozen=True)
class State:
    """What became of the records of one subject.

    Attributes:
        reasons: why all of them are stale, in words; empty where they are not.
        inputs: names of records whose input is no longer the one that was proved.
        unknown: why this cannot be said here; "" where it can.
    """

    reasons: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    unknown: str = ""

    @property
    def is_stale(self) -> bool:
        return bool(self.reasons or self.inputs)


def state(file: RecordFile) -> State:
    """Hold a file's records against the kernel that would be generated today, and those who would judge it."""
    about = file.subject
    if "mutants of" in about:
        return _state_of_mutants(about)
    if "config" not in about:
        return State(unknown="the tests themselves decide, as `make test` runs them")
    if about["arch"] != SIMULATED:
        found = source_hash(build_planned(plan_of(about)), about["arch"])
        return State(tuple(_differences(about, {"source": found, "reference": judges()["reference"]})))
    kernel = kernel_of(about)
    reasons = tuple(_differences(about, {"source": kernel.source(), **judges()}))
    if reasons:
        return State(reasons)
    today = {name: proof_key(kernel, launch_of(record)) for name, record in file.records.items()}
    return State(inputs=tuple(name for name, key in today.items() if key != file.records[name].key))


def _state_of_mutants(about: dict[str, Any]) -> State:
    bases = {SIMULATED: mutation.base, "sm_90a": mutation_hopper.base}
    func = bases[about["arch"]](about["mutants of"])
    if func is None:
        return State(("there is no such base any more",))
    today = Base(about["mutants of"], func, about["arch"]).about
    return State(tuple(_differences(about, today)))


_CHANGED = {
    "source": "the device source",
    "reference": "the reference",
    "judges": "the checker, or what makes mutants,",
}


def _differences(about: dict[str, Any], today: dict[str, Any]) -> Iterator[str]:
    for part, words in _CHANGED.items():
        if part in today and about[part] != today[part]:
            yield f"{words} is another one"
    for package, release in today.get("versions", {}).items():
        before = about["versions"].get(package, "none")
        if before != release:
            yield f"{package} {before}, now {release}"


def kernel_of(about: dict[str, Any]) -> Kernel:
    """The simulated kernel that a record file is about."""
    schedule = Schedule(**_tuples(about["schedule"]))
    return Kernel(about["kernel"], AttentionConfig(**about["config"]), schedule, about["grid"], about["scale"])


def plan_of(about: dict[str, Any]) -> AnyPlan:
    """The plan of any kernel that a record file is about."""
    schedule = family_of(target_for(about["arch"])).schedule(**_tuples(about["schedule"]))
    return plan_for(AttentionConfig(**about["config"]), schedule, arch=about["arch"])


def launch_of(record: Record) -> Launch:
    """The launch that a record is about."""
    kind, probe, lengths = record.name.split(" ")
    b, sq, skv = map(int, lengths.split(","))
    return Launch(kind, probe, (b, sq, skv))


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
