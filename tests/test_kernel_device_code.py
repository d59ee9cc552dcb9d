"""The device code of a kernel whose launch takes any strides and grid is that which the simulator runs."""

from __future__ import annotations

import re
import shutil

import pytest

from tirx_attn import AttentionConfig
from tirx_attn.schedule import make_plan, plan

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to stand in for CUDA"),
]


def device_code(source: str) -> tuple[str, list[str], str, list[str]]:
    """Source ahead of the kernel, parameters that it reads, body, types of parameters that it does not read.

    Temporaries are numbered by the body: TVM numbers them on the host too, and orders the parameters by these names.
    """
    before, text = source.split('extern "C" __global__', 1)
    parameters, body = re.search(r"flash_attention4_kernel\(([^)]*)\) \{(.*)", text, re.DOTALL).groups()
    numbers = {name: f"t{i}" for i, name in enumerate(dict.fromkeys(re.findall(r"\bcse_v\d+\b", body)))}
    read, unread = [], []
    for kind, name in (parameter.rsplit(" ", 1) for parameter in parameters.split(", ")):
        if re.search(rf"\b{name}\b", body):
            read.append(f"{kind} {numbers.get(name, name)}")
        else:
            unread.append(kind)
    return before, sorted(read), re.sub(r"\bcse_v\d+\b", lambda match: numbers[match[0]], body), unread


def simulated(config: AttentionConfig, grid: int | None = None) -> str:
    """CUDA source of the kernel that the simulator runs."""
    from tirx_attn.kernel import build_kernel
    from tirx_attn.runtime import generate_cuda

    return generate_cuda(build_kernel(make_plan(config, launch=plan.Launch(strided=False, grid=grid))))


@pytest.mark.parametrize("kernel", ["full", "fixed", "many_heads"], indirect=True)
def test_the_device_does_not_see_strides(kernel):
    strided, plain = device_code(kernel.launcher.source), device_code(simulated(kernel.config))
    assert strided == plain
    assert strided[3] == []


def test_the_device_does_not_see_the_grid_of_a_causal_launch(causal):
    """But for the number of tasks as a parameter that it does not read."""
    *strided, unread = device_code(causal.launcher.source)
    *plain, none = device_code(simulated(causal.config, grid=64))
    assert strided == plain
    assert (unread, none) == (["int"], [])
