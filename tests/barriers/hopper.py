"""sm_90a kernels and mutants that the tests of the structural check share. Each is traced once in a process."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from tirx_attn import AttentionConfig
from tirx_attn.barriers.check import Report, check
from tirx_attn.hopper.kernel import build_hopper_kernel
from tirx_attn.hopper.plan import HopperPlan, make_hopper_plan
from tirx_attn.verify.mutate import Mutant, mutants
from tirx_attn.verify.mutation import EVENT_LIMIT
from tirx_attn.verify.mutation_hopper import HOPPER_BASES

ONE_CTA = {"persistent_ctas": 1}


def _plan(shape: tuple[int | None, ...], is_causal: bool = False, options: Any = None, **knobs: Any) -> HopperPlan:
    config = AttentionConfig(*shape, is_causal, **(options or {}))
    return make_hopper_plan(config, replace(make_hopper_plan(config).schedule, **knobs))


PLANS = {
    "full": _plan((1, 256, 384, 2, 1, 128)),
    "causal": _plan((1, 512, 640, 2, 1, 128), True),
    "full_64_three_tiles": _plan((1, 500, 384, 2, 1, 64), **ONE_CTA),
    "causal_64": _plan((1, 512, 640, 2, 1, 64), True),
    "bfloat16": _plan((1, 512, 640, 2, 1, 128), options={"dtype": "bfloat16"}),
    "ratio_7": _plan((1, 100, 300, 7, 1, 128), True, {"return_lse": True}),
    "one_row": _plan((1, 1, 300, 1, 1, 128)),
    "one_key": _plan((1, 30, 1, 1, 1, 128)),
    "several_stops": _plan((2, 900, 512, 2, 2, 128), **ONE_CTA),
    "several_stops_causal": _plan((2, 900, 512, 2, 2, 128), True, **ONE_CTA),
    "rows_without_keys": _plan((1, 512, 256, 1, 1, 128), True, **ONE_CTA),
    "no_keys_in_a_tile": _plan((1, 512, 256, 1, 1, 128), True, persistent_ctas=2),
    "one_q_stage": _plan((2, 512, 640, 2, 1, 128), True, q_stages=1, **ONE_CTA),
    "no_turns": _plan((2, 512, 640, 2, 1, 128), True, ping_pong=False, **ONE_CTA),
    "three_kv_stages": _plan((2, 512, 640, 2, 1, 128), kv_stages=3, **ONE_CTA),
}
BIG = {
    "full_8192": _plan((1, 8192, 8192, 32, 32, 128)),
    "causal_8192": _plan((1, 8192, 8192, 32, 32, 128), True, {"return_lse": True}),
    "full_8192_64": _plan((1, 8192, 8192, 32, 32, 64)),
}
OPEN = {
    "open_causal_7_1": _plan((None, None, None, 7, 1, 64), True, {"dtype": "bfloat16", "return_lse": True}),
    "open_full": _plan((None, None, None, 6, 2, 128), options={"scale": "runtime"}, persistent_ctas=2),
}
"""Lengths that the launch gives."""


@cache
def kernel(name: str) -> Any:
    """PrimFunc of a plan, or of a base of the mutants."""
    return build_hopper_kernel((PLANS | BIG | OPEN | HOPPER_BASES)[name])


@cache
def all_mutants(base: str) -> tuple[Mutant, ...]:
    """Mutants of a base."""
    return tuple(mutants(kernel(base)))


def judge(family: str, label: str, number: int = 0, base: str = "hopper full") -> Report:
    """Report on the mutant of that family and label, in program order."""
    found = [m for m in all_mutants(base) if (m.family, m.label) == (family, label)]
    return check(found[number].apply(kernel(base)), limit=EVENT_LIMIT)
