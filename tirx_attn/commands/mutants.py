"""`tirx-attn mutants`: how many synchronisation faults the checkers catch."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tirx_attn.commands import output
from tirx_attn.commands.arguments import ArchOption, ArgumentError, JsonOption, parse_family, parse_seconds
from tirx_attn.commands.wrap import command
from tirx_attn.family import DEFAULT_ARCH

SimulateOption = Annotated[
    str | None,
    typer.Option(
        "--simulate",
        metavar="WHICH",
        help="Mutants that the structural check passes and the simulator judges: unsettled (the default), all or none.",
    ),
]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print the table of docs/protocol_check.md.")]
CHOICES = ("unsettled", "all", "none")


@command
def mutants(
    arch: ArchOption = DEFAULT_ARCH,
    simulate: SimulateOption = None,
    time_limit: Annotated[str, typer.Option("--time-limit", metavar="SECONDS", help="For each simulator run.")] = "600",
    markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> bool:
    """Break the synchronisation systematically; count what is caught.

    A mutant is the real kernel's PrimFunc with one edit: a wait dropped, a count off by one, a fence gone. Fails where
    a mutant is neither caught nor known to be no fault. Those of the sm_90a kernel go to the structural check alone,
    since the simulator has no WGMMA.

    Example: tirx-attn mutants --simulate none
    """
    family = parse_family(arch)
    choices = CHOICES if family.simulated else CHOICES[-1:]
    if simulate is not None and simulate not in choices:
        raise ArgumentError(f"--simulate {simulate}: allowed for {arch} is {', '.join(choices)}")
    limit = parse_seconds("--time-limit", time_limit)
    started = time.perf_counter()
    from tirx_attn.verify.mutation import run_mutants, to_markdown
    from tirx_attn.verify.mutation_hopper import run_hopper_mutants

    with output.Reporter().step("mutants") as note:
        if family.simulated:
            outcomes = list(run_mutants(simulate=simulate or CHOICES[0], time_limit=limit, notes=note))
        else:
            outcomes = list(run_hopper_mutants(note))
    fine = all(outcome.is_settled for outcome in outcomes)
    seconds = round(time.perf_counter() - started, 3)
    if as_json:
        verdict = "passed" if fine else "failed"
        rows = [outcome.to_dict() for outcome in outcomes]
        output.print_json({"command": "mutants", "mutants": rows, "verdict": verdict, "seconds": seconds})
    elif markdown:
        print(to_markdown(outcomes), end="")
    else:
        console = output.stdout()
        made = output.table("Mutants", "caught by", "mutants")
        made.columns[-1].justify = "right"
        for name in ("structural", "synccheck", "racecheck", "numbers"):
            made.add_row(name, str(sum(outcome.caught_by == name for outcome in outcomes)))
        made.add_row("none: no fault", str(sum(outcome.equivalent is not None for outcome in outcomes)))
        made.add_row("none: unexplained", str(sum(not outcome.is_settled for outcome in outcomes)))
        console.print(made)
        for outcome in outcomes:
            if not outcome.is_settled:
                console.print(f"not caught: {outcome.id}", markup=False, soft_wrap=True)
        console.print(f"{len(outcomes)} mutants in {seconds:.0f} s")
    return fine
