"""Bad arguments are refused before anything else happens: before TVM is loaded, before a kernel is traced."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cases import REJECTED
from tirx_attn import Schedule


def test_refusals_and_plans_need_no_tvm():
    """A fresh interpreter: every bad argument is refused, and a plan and its protocol are made, with TVM unloaded."""
    script = f"""
import sys
from tirx_attn import AttentionConfig, Schedule
from tirx_attn.schedule import make_plan
from tirx_attn.barriers.protocol import protocol
for arguments in {[case.arguments for case in REJECTED]!r}:
    try:
        AttentionConfig(*arguments)
    except ValueError:
        continue
    raise SystemExit(f"accepted {{arguments}}")
for change in (dict(pv_split=(100, 28)), dict(kv_stages=1), dict(epilogue_owner="mma")):
    try:
        Schedule(**change)
    except ValueError:
        continue
    raise SystemExit(f"accepted {{change}}")
for sizes in ((1, 256, 256), (None, None, None)):
    protocol(make_plan(AttentionConfig(*sizes, 6, 2, 64, True, dtype="bf16", return_lse=True)))
loaded = [name for name in sys.modules if name.split(".")[0] in ("tvm", "tvm_ffi", "torch")]
raise SystemExit(f"loaded {{loaded}}" if loaded else 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def no_tracing(monkeypatch):
    """Building a kernel would be an error."""
    from tirx_attn import kernel

    def build(plan):
        raise AssertionError(f"traced {plan.config}")

    monkeypatch.setattr(kernel, "build_kernel", build)
    return kernel.get_flash_attention4_kernel


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case.name)
def test_the_kernel_refuses_before_it_traces(case, no_tracing):
    with pytest.raises(ValueError, match=case.message):
        no_tracing(*case.arguments)


@pytest.mark.parametrize("value", [True, 2.0, "2"], ids=repr)
def test_the_kernel_refuses_a_wrong_type_before_it_traces(value, no_tracing):
    with pytest.raises(TypeError, match=r"B=.*allowed values are positive integers"):
        no_tracing(value, 128, 128, 1, 1, 128)


def test_the_kernel_refuses_a_bad_schedule_before_it_traces(no_tracing):
    with pytest.raises(TypeError, match=r"schedule='fast': allowed values are None and tirx_attn.Schedule"):
        no_tracing(1, 128, 128, 1, 1, 128, schedule="fast")
    with pytest.raises(ValueError, match=r"kv_stages=4, o_stages=2: need 265216 bytes of shared memory, allowed are"):
        no_tracing(1, 128, 128, 1, 1, 128, schedule=Schedule(kv_stages=4))
    with pytest.raises(ValueError, match=r"softmax_registers=208.*need 69632 registers, allowed are 65536"):
        no_tracing(1, 128, 128, 1, 1, 128, schedule=Schedule(softmax_registers=208))


def test_good_arguments_reach_the_tracer(no_tracing):
    with pytest.raises(AssertionError, match="traced"):
        no_tracing(1, 128, 128, 1, 1, 128)
    with pytest.raises(AssertionError, match=r"traced .*'bfloat16', scale='runtime', return_lse=True"):
        no_tracing(None, None, None, 3, 1, 64, dtype="bf16", scale="runtime", return_lse=True)
