"""Running the mutants: which checker catches each one first, and why those that none catches are no fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.schedule import Schedule, make_plan
from tirx_attn.verify.attention import simulated_plan

BASES = {
    "correction": Schedule(persistent_ctas=1),
    "softmax": Schedule(
        persistent_ctas=1, pv_split=(64, 64), epilogue_owner="softmax", statistics="collective", stagger=True
    ),
    "variants": Schedule(
        persistent_ctas=1, pv_split=(32, 32, 32, 32), statistics="tmem", o_stages=1, mma_order="by_product"
    ),
}  # fmt: skip
"""Kernels that are mutated: one of each epilogue owner, and one of what variants.py adds to the protocol. Together they
have every edge, both places of the statistics, one and two staging tiles, and both orders of the products.
"""

PROBLEM = AttentionConfig(B=1, Sq=1024, Skv=512, Hq=1, Hkv=1, D=128)
"""Four tasks of four key blocks on one CTA: every phase wraps, and a task starts at every slot of the K/V ring."""

SHORT = {"short": AttentionConfig(B=1, Sq=256, Skv=384, Hq=1, Hkv=1, D=128)}
"""Problems of one task, in which no slot of Q and of the staging memory is used twice (mutation_short.py)."""

EVENT_LIMIT = 100_000

LATER = "The arrival comes later than it could, past a statement that does not depend on it: slower, not wrong."
ALL_OF_P = "Waiting for the next part of P before a part is used costs the overlap, nothing else."
STILL_AFTER = "The fence has to follow the wait for o_ready, and it still does; the staging memory is no TMEM."
OTHER_MEMORY = "The credit is about TMEM and the fence about shared memory; neither depends on the other."
SECOND_FENCE = (
    "The phase needs this group's arrival with P of the next task too, which comes behind a fence of its own."
)

EQUIVALENT = {
    ("swap", "exp_turn <-> tcgen05_wait", "softmax"): LATER,
    ("swap", "stats.full <-> exp_turn", "softmax"): LATER,
    ("wrong split, late", "p_o_rescale", "softmax"): LATER,
    ("late release", "row_sum.empty", "correction"): LATER,
    ("swap", "kv_load.empty <-> kv_load.full", "mma"): LATER,
    ("swap", "tile.gemm_async <-> p_ready_2", "mma"): ALL_OF_P,
    ("swap", "tile.gemm_async <-> p_ready_3", "mma"): ALL_OF_P,
    ("swap", "tile.gemm_async <-> p_ready_4", "mma"): ALL_OF_P,
    ("swap", "tcgen05_fence <-> o_staged.empty", "correction"): STILL_AFTER,
    ("swap", "tcgen05_fence <-> o_staged.empty", "softmax"): STILL_AFTER,
    ("swap", "p_o_rescale <-> fence_proxy", "correction"): OTHER_MEMORY,
    ("swap", "p_o_rescale <-> fence_proxy", "softmax"): OTHER_MEMORY,
    ("swap", "tcgen05_fence <-> p_o_rescale", "softmax"): SECOND_FENCE,
}
"""(family, label, role) -> why a mutant that no checker catches is no fault. Says nothing of those that are caught."""

EQUIVALENT_FAMILIES = {
    "double wait": "The phase is complete, and the next one cannot be before this role goes on: a second wait returns "
    "at once.",
}
"""Family -> the same, where one sentence holds for all its mutants that no checker catches."""


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant.

    Attributes:
        id: base and mutant.
        family, label, role: of the mutant.
        edge: edge that the edit touches, "" for none.
        caught_by: "structural", "synccheck", "racecheck", "numbers", or None.
        equivalent: why it is no fault, where nothing caught it.
        seconds: time to edit and judge it.
        message: first line of the counterexample.
    """

    id: str
    family: str
    label: str
    role: str
    edge: str
    caught_by: str | None
    equivalent: str | None
    seconds: float
    message: str

    @property
    def is_settled(self) -> bool:
        """Caught, or known to be no fault."""
        return self.caught_by is not None or self.equivalent is not None

    def to_dict(self) -> dict[str, Any]:
        """The outcome as JSON-able data."""
        return {**asdict(self), "seconds": round(self.seconds, 3)}


Known = Callable[[str, Any, Any], Outcome | None]
"""(base, its PrimFunc, mutant) -> the outcome, where it need not be judged."""


def run_mutants(
    *,
    simulate: str = "unsettled",
    time_limit: float = 600.0,
    notes: Callable[[str], None] | None = None,
    known: Known | None = None,
) -> Iterator[Outcome]:
    """Judge all mutants of all bases, one after the other.

    Args:
        simulate: which of those that the structural check passes go to the simulator: "unsettled" (those without a
            known reason), "all", or "none".
        time_limit: seconds for each simulator run, its build included.
        notes: called with a line on each mutant before it is judged.
        known: gives the outcome of those that need not be judged.

    Raises:
        ValueError: `simulate` is none of the three.
    """
    if simulate not in ("unsettled", "all", "none"):
        raise ValueError(f"simulate={simulate!r}: allowed values are 'unsettled', 'all' and 'none'")
    from tirx_attn.verify.mutate import mutants
    from tirx_attn.verify.mutation_short import run_short_mutants

    for name in BASES:
        func = base(name)
        for mutant in mutants(func):
            if notes:
                notes(f"{name}: {mutant.id}")
            if known and (outcome := known(name, func, mutant)):
                yield outcome
                continue
            start = time.monotonic()
            mutated = mutant.apply(func)
            caught, message = structural(mutated)
            reason = why_no_fault(mutant.family, mutant.label, mutant.role)
            if caught is None and (simulate == "all" or (simulate == "unsettled" and reason is None)):
                caught, message = _simulated(mutated, time_limit)
            seconds = time.monotonic() - start
            yield Outcome(
                f"{name}/{mutant.id}", mutant.family, mutant.label, mutant.role, mutant.edge,
                caught, None if caught else reason, seconds, message,
            )  # fmt: skip
    yield from run_short_mutants({name: make_plan(config) for name, config in SHORT.items()}, notes, known)


def base(name: str) -> Any:
    """PrimFunc of the kernel of that name in `BASES` or `SHORT`; None where there is none."""
    from tirx_attn.kernel import build_kernel

    if name in BASES:
        return build_kernel(simulated_plan(make_plan(PROBLEM, BASES[name])))  # the simulator judges some mutants
    return build_kernel(make_plan(SHORT[name])) if name in SHORT else None


def why_no_fault(family: str, label: str, role: str) -> str | None:
    """Why a mutant that no checker catches is no fault, or None where that is not known."""
    return EQUIVALENT.get((family, label, role)) or EQUIVALENT_FAMILIES.get(family)


def structural(func: Any) -> tuple[str | None, str]:
    """Who catches a mutant, and with what words: the structural check, or None."""
    from tirx_attn.barriers.check import check

    report = check(func, limit=EVENT_LIMIT)
    if not report.findings:
        return None, ""
    return "structural", report.findings[0].message.splitlines()[0]


def _simulated(func: Any, time_limit: float) -> tuple[str | None, str]:
    """Synccheck, racecheck, then the numbers, on an input that rescales in every block."""
    from tirx_attn.verify import RESCALE_PROBES, simulator
    from tirx_attn.verify.process import SimulatorError

    probe = RESCALE_PROBES["rescale_every"](PROBLEM)
    for checker in ("synccheck", "racecheck"):
        try:
            result = getattr(simulator, checker)(func, probe.arrays, time_limit=time_limit)
        except (SimulatorError, TimeoutError) as error:
            return checker, str(error).splitlines()[0]
        if not result.clean:
            return checker, ": ".join(result.findings[0]) if result.findings else result.verdict
    try:
        run = simulator.run(func, probe.arrays, time_limit=time_limit)
    except (SimulatorError, TimeoutError) as error:
        return "numbers", str(error).splitlines()[0]
    verdict = probe.judge(run.outputs["O"])
    return (None, "") if verdict.ok else ("numbers", f"error {verdict.error:.3g}, allowed {verdict.bound:.3g}")


def to_markdown(outcomes: list[Outcome]) -> str:
    """The table of docs/protocol_check.md: mutants by family and edge, and the sentences of the equivalent ones."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.family, outcome.edge or "-"), []).append(outcome)
    lines = ["| family | edge | mutants | structural | other checkers | no fault |", "|---|---|---:|---:|---:|---:|"]
    totals = [0, 0, 0, 0]
    for (family, edge), members in sorted(groups.items()):
        structural = sum(o.caught_by == "structural" for o in members)
        other = sum(o.caught_by not in (None, "structural") for o in members)
        row = [len(members), structural, other, sum(o.caught_by is None for o in members)]
        totals = [a + b for a, b in zip(totals, row, strict=True)]
        lines.append(f"| {family} | {edge} | " + " | ".join(map(str, row)) + " |")
    lines.append("| **all** | | " + " | ".join(f"**{n}**" for n in totals) + " |")
    passed: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.caught_by is None:
            passed.setdefault((outcome.family, outcome.label, outcome.role), []).append(outcome)
    lines += ["", "| no fault: family | statement | role | mutants | why |", "|---|---|---|---:|---|"]
    for (family, label, role), members in sorted(passed.items()):
        lines.append(f"| {family} | {label} | {role} | {len(members)} | {members[0].equivalent or 'UNEXPLAINED'} |")
    return "\n".join(lines) + "\n"
