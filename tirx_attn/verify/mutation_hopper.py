"""Running the mutants of the sm_90a kernel. The simulator has no WGMMA: the structural check is their one judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.hopper.plan import HopperPlan, make_hopper_plan
from tirx_attn.hopper.schedule import HopperSchedule
from tirx_attn.verify.mutation import EQUIVALENT_FAMILIES, Known, Outcome, structural


def _plan(config: AttentionConfig, **changes: int | bool) -> HopperPlan:
    return make_hopper_plan(config, HopperSchedule(persistent_ctas=1, **changes))  # type: ignore[arg-type]


HOPPER_BASES = {
    "hopper full": _plan(
        AttentionConfig(B=1, Sq=1024, Skv=384, Hq=1, Hkv=1, D=64),
        consumers=3, consumer_registers=160, producer_registers=32, kv_stages=9,
    ),
    "hopper causal": _plan(
        AttentionConfig(B=1, Sq=512, Skv=700, Hq=1, Hkv=1, D=128, is_causal=True, return_lse=True),
        kv_stages=3, q_stages=1, ping_pong=False,
    ),
}  # fmt: skip
"""Plans of the kernels that are mutated: three consumers and two, with turns and without, a masked loop in the second
only. On one CTA, so that every phase wraps."""

HOPPER_SHORT = {
    "hopper short full": make_hopper_plan(AttentionConfig(B=1, Sq=128, Skv=128, Hq=1, Hkv=1, D=128)),
    "hopper short causal": make_hopper_plan(AttentionConfig(B=1, Sq=128, Skv=128, Hq=1, Hkv=1, D=128, is_causal=True)),
}
"""As `mutation.SHORT`: one query tile and one key block, so that no slot is used twice."""

STILL_ISSUED = "The turn is about the issue of the products, and they are issued; the commit closes the same group."
STILL_COMMITTED = "The commit comes later than it could, and still ahead of the wait_group that needs it."
TURN_LATER = "The turn is passed later than it could be: slower, not wrong."

EQUIVALENT_HOPPER = {
    ("swap", "wgmma_commit_group <-> mma_turn", "consumer"): STILL_ISSUED,
    ("swap", "mma_turn <-> wgmma_wait_group", "consumer"): TURN_LATER,
    ("swap", "wgmma_commit_group <-> kv_load.full", "consumer"): STILL_COMMITTED,
}
"""As `mutation.EQUIVALENT`."""

EQUIVALENT_HOPPER_FAMILIES = {
    "double wait": EQUIVALENT_FAMILIES["double wait"],
    "wait_group - 1": "Waiting for PV too before the softmax costs the overlap, nothing else.",
}
"""As `mutation.EQUIVALENT_FAMILIES`."""


def run_hopper_mutants(
    notes: Callable[[str], None] | None = None, known: Known | None = None
) -> Iterator[Outcome]:
    """Judge all mutants of the sm_90a bases, one after the other. Arguments are those of `mutation.run_mutants`."""
    from tirx_attn.verify.mutate import mutants
    from tirx_attn.verify.mutation_short import run_short_mutants

    for name in HOPPER_BASES:
        func = base(name)
        for mutant in mutants(func):
            if notes:
                notes(f"{name}: {mutant.id}")
            if known and (outcome := known(name, func, mutant)):
                yield outcome
                continue
            start = time.monotonic()
            caught, message = structural(mutant.apply(func))
            reason = why_no_fault(mutant.family, mutant.label, mutant.role)
            yield Outcome(
                f"{name}/{mutant.id}", mutant.family, mutant.label, mutant.role, mutant.edge,
                caught, None if caught else reason, time.monotonic() - start, message,
            )  # fmt: skip
    yield from run_short_mutants(HOPPER_SHORT, notes, known)


def base(name: str) -> Any:
    """As `mutation.base`, of `HOPPER_BASES` and `HOPPER_SHORT`."""
    from tirx_attn.hopper.kernel import build_hopper_kernel

    plan = (HOPPER_BASES | HOPPER_SHORT).get(name)
    return None if plan is None else build_hopper_kernel(plan)


def why_no_fault(family: str, label: str, role: str) -> str | None:
    """Why a mutant that the check passes is no fault, or None where that is not known."""
    return EQUIVALENT_HOPPER.get((family, label, role)) or EQUIVALENT_HOPPER_FAMILIES.get(family)
