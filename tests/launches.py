"""All launches that are proved on the simulator, kernel by kernel, and kind by kind, since each kind is one build."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cases import CASES
from tests.run_time import KERNELS, LAUNCHES
from tirx_attn.verify.proofs import Kernel, Launch

LIMIT = 7500.0
"""Seconds for a call with its build, on a busy machine that has built nothing yet."""


def launches() -> Iterator[tuple[Kernel, Launch]]:
    """Every launch once: rows of the list of inputs may ask for the same."""
    asked = [(case.subject, launch) for case in CASES for launch in case.launches]
    subjects = {name: kernel.subject for name, kernel in KERNELS.items()}
    asked += [(subjects[launch.kernel], launch.proof) for launch in LAUNCHES]
    yield from dict.fromkeys(asked)
