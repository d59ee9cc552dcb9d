"""Fates of mutants as records: which checker caught each one, and of which kernel, by which code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tirx_attn.verify.mutation import Outcome
from tirx_attn.verify.proofs import source_hash
from tirx_attn.verify.records import Record, code_hash, key_of

NOT_CAUGHT = "not caught"
"""Verdict of a mutant that no checker catches; the runner says why it is no fault."""

_PACKAGE = Path(__file__).parents[1]
_WHO_JUDGES = (
    "barriers",
    *(f"verify/{name}.py" for name in ("mutate", "mutate_end", "mutate_wgmma", "mutation_short", "exercise")),
)


class Base:
    """A kernel that is mutated.

    Args:
        name: of the base.
        func: its PrimFunc.
        arch: its architecture.
    """

    def __init__(self, name: str, func: Any, arch: str) -> None:
        self.file = f"mutants/{arch}/{name.replace(' ', '_')}"
        judges = code_hash(*(_PACKAGE / part for part in _WHO_JUDGES))
        self.about = {"mutants of": name, "arch": arch, "source": source_hash(func, arch), "judges": judges}
        self._name = name

    def key(self, mutant: str) -> str:
        """Hash of the kernel, of those who judge, and of a mutant's id."""
        return key_of(mutant=mutant, **self.about)

    def record(self, outcome: Outcome) -> Record:
        """The record of an outcome. Its reason, where it is no fault, is not kept: the code has it."""
        name = outcome.id.removeprefix(f"{self._name}/")
        figures = {"family": outcome.family, "label": outcome.label, "role": outcome.role, "edge": outcome.edge}
        return Record(name, self.key(name), outcome.caught_by or NOT_CAUGHT, figures)

    def outcome(self, record: Record, why: Callable[[str, str, str], str | None]) -> Outcome:
        """The outcome that a record tells of.

        Args:
            why: family, label and role -> why a mutant that nothing catches is no fault.
        """
        family, label, role, edge = (str(record.figures[name]) for name in ("family", "label", "role", "edge"))
        caught = None if record.verdict == NOT_CAUGHT else record.verdict
        reason = None if caught else why(family, label, role)
        return Outcome(f"{self._name}/{record.name}", family, label, role, edge, caught, reason, 0.0, "")
