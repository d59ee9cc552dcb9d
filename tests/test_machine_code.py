"""The benchmark shapes as machine code: registers, spills, setmaxnreg."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

import pytest

from tirx_attn import AttentionConfig
from tirx_attn.analysis import code_report
from tirx_attn.runtime import Build, build

pytestmark = pytest.mark.slow

SHAPES = {
    "full_8192": (AttentionConfig(1, 8192, 8192, 32, 32, 128), "sm_100a"),
    "causal_8192": (AttentionConfig(1, 8192, 8192, 32, 32, 128, True), "sm_100a"),
    "causal_4096_ratio_8": (AttentionConfig(1, 4096, 4096, 32, 4, 128, True), "sm_100a"),
    "B5": (AttentionConfig(1, 35073, 35073, 1, 1, 128), "sm_100a"),
    "causal_8192_sm_103a": (AttentionConfig(1, 8192, 8192, 32, 32, 128, True), "sm_103a"),
}


made = cache(build)
"""A build, once in a process."""


@pytest.fixture(scope="module", params=SHAPES)
def built(request) -> Build:
    config, arch = SHAPES[request.param]
    return made(config, arch=arch)


def test_nothing_spills(built):
    resources = built.cubin.resources()
    assert (resources.spill_instructions, resources.spill_bytes, resources.local_bytes) == (0, 0, 0)


def test_the_launch_fits_one_cta_per_sm(built):
    resources = built.cubin.resources()
    assert resources.registers <= 128
    assert resources.registers * built.plan.warps.threads <= built.plan.target.registers
    assert resources.static_smem == 0
    assert resources.dynamic_smem == built.plan.smem.size <= built.plan.target.smem_bytes
    assert resources.barriers <= built.plan.target.named_barriers


def test_setmaxnreg_of_the_machine_code_is_the_plans(built):
    """USETMAXREG in the code of each role; ptxas drops them all where it thinks the launch bound too loose."""
    assert set(built.cubin.resources().register_requests) == set(built.plan.warps.registers)
    assert len(built.cubin.resources().register_requests) == 3


def test_machine_code_is_for_the_architecture(built):
    assert built.cubin.arch == built.arch
    assert built.cubin.image[:4] == b"\x7fELF"
    number = re.match(r"sm_(\d+)a", built.arch)[1]
    assert re.search(rf"\.target\s+sm_{number}a", built.cubin.sass())


def test_the_tensor_cores_and_tma_are_used(built):
    sass = built.cubin.sass()
    assert len(re.findall(r"\bUTCHMMA\b", sass)) > 0
    assert len(re.findall(r"\bUTMALDG\b", sass)) > 0
    assert len(re.findall(r"\bUTMASTG\b", sass)) > 0


def test_only_the_mufu_bound_target_emulates(built):
    """Exponentials of the MUFU: all of a careful block and one for acc_scale; in the steady loop, where no reference
    moves, those that the FMA pipe leaves.
    """
    steady = 128 - built.plan.schedule.emulated_exponentials
    assert len(re.findall(r"\bMUFU\.EX2\b", built.cubin.sass())) == (128 + 1) + steady


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_run_time_lengths_cost_the_steady_loop_nothing(is_causal, record_property):
    """At most 2 % more instructions for a thread and a key tile, and no spill in the loop."""
    static = made(AttentionConfig(1, 8192, 8192, 32, 32, 128, is_causal), arch="sm_100a")
    open_lengths = build(AttentionConfig(None, None, None, 32, 32, 128, is_causal))
    loops = [code_report(built.cubin).role("softmax") for built in (static, open_lengths)]
    record_property("static", loops[0].instructions)
    record_property("run_time", loops[1].instructions)
    for loop in loops:
        assert loop.tiles == 1
        assert "LDL/STL" not in loop.kinds
    assert loops[1].instructions <= 1.02 * loops[0].instructions


@pytest.mark.parametrize(
    "config",
    [
        AttentionConfig(None, None, None, 7, 1, 64, True, dtype="bfloat16", scale="runtime", return_lse=True),
        AttentionConfig(None, None, None, 6, 2, 128, dtype="bfloat16", scale=0.1, return_lse=True),
    ],
    ids=["causal_7_1_d64", "full_6_2"],
)
def test_every_option_at_once(config):
    resources = build(config).cubin.resources()
    assert resources.registers == 128
    assert resources.spill_instructions <= 16


def test_a_build_needs_no_driver():
    """In a process that cannot load libcuda: the loader is told that it does not exist."""
    script = """
import ctypes
load = ctypes.CDLL.__init__
def refuse(self, name, *rest, **more):
    if "libcuda.so" in str(name):
        raise OSError(f"{name}: there is no driver on this machine")
    load(self, name, *rest, **more)
ctypes.CDLL.__init__ = refuse
from tirx_attn import AttentionConfig
from tirx_attn.runtime import build
resources = build(AttentionConfig(1, 256, 128, 1, 1, 128)).cubin.resources()
mapped = open("/proc/self/maps").read()
assert "libcuda.so" not in mapped, "a driver was loaded"
print(resources.registers, resources.spill_instructions)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "128 0\n"
