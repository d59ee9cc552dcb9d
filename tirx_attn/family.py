"""Which kernel serves an architecture: its schedule, tuning table, plan, protocol and PrimFunc. TVM is loaded last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tirx_attn.barriers.protocol import Protocol, protocol
from tirx_attn.config import AttentionConfig
from tirx_attn.hopper.plan import HopperPlan, make_hopper_plan
from tirx_attn.hopper.protocol import hopper_protocol
from tirx_attn.hopper.schedule import HopperSchedule
from tirx_attn.hopper.tuning import hopper_tuning_row
from tirx_attn.schedule import Plan, Schedule, make_plan
from tirx_attn.schedule.tuning import TuningRow, tuning_row
from tirx_attn.targets import Target, target_for

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

DEFAULT_ARCH = "sm_100a"

AnySchedule = Schedule | HopperSchedule
AnyPlan = Plan | HopperPlan


@dataclass(frozen=True)
class Family:
    """The kernel of one kind of tensor core.

    Attributes:
        stem: how names of files begin.
        mma: the tensor cores it is for (`Target.mma`).
        schedule: class of its knobs.
        tuning_row: (config, target) -> row of its tuning table.
        make_plan: (config, schedule or None, target) -> plan.
        protocol: plan -> protocol table.
        build: plan -> PrimFunc; loads TVM.
        simulated: the CPU simulator models its instructions.
        refuses_slow_code: what ptxas did not do for speed is an error (`Cubin.slow_code`).
    """

    stem: str
    mma: str
    schedule: type[Any]
    tuning_row: Callable[[AttentionConfig, Target], TuningRow]
    make_plan: Callable[..., Any]
    protocol: Callable[[Any], Protocol]
    build: Callable[[Any], PrimFunc]
    simulated: bool
    refuses_slow_code: bool


def _build_blackwell(plan: Plan) -> PrimFunc:
    from tirx_attn.kernel import build_kernel

    return build_kernel(plan)


def _build_hopper(plan: HopperPlan) -> PrimFunc:
    from tirx_attn.hopper.kernel import build_hopper_kernel

    return build_hopper_kernel(plan)


FAMILIES = (
    Family(
        "flash_attention4",
        "tcgen05",
        Schedule,
        tuning_row,
        make_plan,
        protocol,
        _build_blackwell,
        simulated=True,
        refuses_slow_code=False,
    ),
    Family(
        "flash_attention",
        "wgmma",
        HopperSchedule,
        hopper_tuning_row,
        make_hopper_plan,
        hopper_protocol,
        _build_hopper,
        simulated=False,
        refuses_slow_code=True,
    ),
)


def family_of(target: Target) -> Family:
    """The family that serves a target."""
    return next(family for family in FAMILIES if family.mma == target.mma)


def plan_for(config: AttentionConfig, schedule: AnySchedule | None = None, arch: str = DEFAULT_ARCH) -> AnyPlan:
    """Plan of a problem on an architecture; without a schedule, that of the tuning table.

    Raises:
        TypeError, ValueError: naming the argument, its value and the allowed values.
    """
    target = target_for(arch)
    return family_of(target).make_plan(config, schedule, target)


def build_planned(plan: AnyPlan) -> PrimFunc:
    """The PrimFunc of a plan."""
    return family_of(plan.target).build(plan)


def get_kernel(
    config: AttentionConfig, *, arch: str = DEFAULT_ARCH, schedule: AnySchedule | None = None
) -> PrimFunc:
    """Attention forward for an architecture as a TIRx PrimFunc.

    Args:
        config: the problem; see AttentionConfig. The parameters are those of `get_flash_attention4_kernel`.
        arch: sm_100a or sm_103a (tcgen05, knobs `Schedule`), sm_90a (WGMMA, knobs `HopperSchedule`).
        schedule: how to run it; None takes the tuning table's row.

    Raises:
        TypeError, ValueError: naming the argument, its value and the allowed values, before any TVM work.
    """
    return build_planned(plan_for(config, schedule, arch))
