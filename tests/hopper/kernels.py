"""The kernels that the tests of this folder share; each is built once in a process."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tests.cuda_text import Kernel
from tirx_attn import AttentionConfig, HopperSchedule
from tirx_attn.hopper.plan import HopperPlan, make_hopper_plan
from tirx_attn.runtime import Build, build

OPEN = AttentionConfig(None, None, None, 16, 16, 128, return_lse=True)

CONFIGS = {
    "full": OPEN,
    "causal": replace(OPEN, is_causal=True),
    "full_d64": replace(OPEN, D=64),
    "causal_7_1_d64_bf16": AttentionConfig(
        None, None, None, 7, 1, 64, True, dtype="bfloat16", scale="runtime", return_lse=True
    ),
    "fixed_ratio_3": AttentionConfig(2, 300, 384, 6, 2, 128),
}

SCHEDULES = {
    "full_other_knobs": ("full", {"ping_pong": False, "q_stages": 1, "kv_stages": 3, "persistent_ctas": 7}),
    "causal_other_registers": ("causal", {"consumer_registers": 232, "producer_registers": 40}),
}
"""Name -> (name of the config, knobs that differ from its tuned schedule)."""

NAMES = (*CONFIGS, *SCHEDULES)


def plan(name: str) -> HopperPlan:
    if name in CONFIGS:
        return make_hopper_plan(CONFIGS[name])
    base, changes = SCHEDULES[name]
    tuned: HopperSchedule = make_hopper_plan(CONFIGS[base]).schedule
    return make_hopper_plan(CONFIGS[base], replace(tuned, **changes))


@cache
def built(name: str) -> Build:
    made = plan(name)
    return build(made.config, schedule=made.schedule, arch="sm_90a")


@cache
def cuda(name: str) -> Kernel:
    return Kernel(built(name).source)
