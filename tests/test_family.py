"""Which kernel serves an architecture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tirx_attn
from tirx_attn import AttentionConfig, HopperSchedule, Schedule
from tirx_attn.family import FAMILIES, family_of, plan_for
from tirx_attn.hopper.plan import HopperPlan
from tirx_attn.schedule import Plan
from tirx_attn.targets import TARGETS

CONFIG = AttentionConfig(1, 256, 256, 2, 1, 128)


def test_every_target_has_a_family():
    families = {arch: family_of(target).stem for arch, target in TARGETS.items()}
    assert families == {
        "sm_100a": "flash_attention4", "sm_103a": "flash_attention4", "sm_90a": "flash_attention",
    }  # fmt: skip
    assert len({family.stem for family in FAMILIES}) == len(FAMILIES)


def test_plans():
    assert isinstance(plan_for(CONFIG), Plan)
    assert plan_for(CONFIG, arch="sm_103a").schedule.emulated_exponentials == 0
    hopper = plan_for(CONFIG, HopperSchedule(q_stages=1), "sm_90a")
    assert isinstance(hopper, HopperPlan)
    assert (hopper.target.name, hopper.schedule.q_stages) == ("H200", 1)


@pytest.mark.parametrize(
    ("arch", "schedule", "error", "message"),
    [
        ("sm_80", None, ValueError, "arch='sm_80': allowed values are sm_100a, sm_103a, sm_90a"),
        ("sm_90a", Schedule(), TypeError, "allowed values are None and tirx_attn.HopperSchedule"),
        ("sm_100a", HopperSchedule(), TypeError, "allowed values are None and tirx_attn.Schedule"),
    ],
)
def test_refused_before_any_tvm_work(arch, schedule, error, message):
    with pytest.raises(error, match=message):
        tirx_attn.get_kernel(CONFIG, arch=arch, schedule=schedule)


@pytest.mark.slow
def test_get_kernel_is_the_kernel_of_the_architecture():
    for arch in ("sm_100a", "sm_90a"):
        func = tirx_attn.get_kernel(CONFIG, arch=arch)
        assert str(func.attrs["global_symbol"]) == family_of(TARGETS[arch]).stem
        assert [parameter.name for parameter in func.params] == ["Q", "K", "V", "O"]


def test_plans_load_no_tvm():
    script = (
        "import sys; from tirx_attn import AttentionConfig; from tirx_attn.family import plan_for;"
        "plan_for(AttentionConfig(1, 2, 3, 4, 4, 128), arch='sm_90a'); print(*{'tvm', 'cuda'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
