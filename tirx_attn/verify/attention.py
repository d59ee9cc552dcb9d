"""Attention on NumPy arrays by the generated Blackwell kernel, on the simulator."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, overload

import ml_dtypes  # noqa: F401  (makes np.dtype("bfloat16") a name)
import numpy as np

from tirx_attn.config import RUNTIME, AttentionConfig
from tirx_attn.runtime.arguments import Facts, problem
from tirx_attn.runtime.layout import element_strides
from tirx_attn.schedule import Schedule
from tirx_attn.schedule.parts import Launch
from tirx_attn.schedule.plan import Plan, make_plan
from tirx_attn.verify.process import Notes, require_simulator
from tirx_attn.verify.reference import Array
from tirx_attn.verify.simulator import DEFAULT_LIMIT, run

SMALLEST_GRID = 64


@overload
def simulate(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    return_lse: Literal[False] = ...,
    schedule: Schedule | None = ...,
    time_limit: float = ...,
    notes: Notes | None = ...,
) -> Array: ...


@overload
def simulate(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = ...,
    scale: float | None = ...,
    return_lse: Literal[True],
    schedule: Schedule | None = ...,
    time_limit: float = ...,
    notes: Notes | None = ...,
) -> tuple[Array, Array]: ...


def simulate(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    schedule: Schedule | None = None,
    time_limit: float = DEFAULT_LIMIT,
    notes: Notes | None = None,
) -> Array | tuple[Array, Array]:
    """Attention by the kernel for run-time lengths, built once for all lengths.

    Args:
        q: [B, Sq, Hq, D] float16 or bfloat16 (ml_dtypes), D 64 or 128; any strides that the kernel takes.
        k, v: [B, Skv, Hkv, D] in q's dtype; Hq / Hkv an integer up to 128.
        causal: bottom-right aligned causal mask: query i sees keys up to i + Skv - Sq.
        scale: positive factor on the logits; 1/sqrt(D) unless given.
        return_lse: return LSE as well.
        schedule: `tirx_attn.Schedule` to use; the tuned one unless given.
        time_limit, notes: as in `run`.

    Returns:
        o [B, Sq, Hq, D] in q's dtype; with `return_lse` also lse [B, Hq, Sq] in fp32, the natural logarithm of the sum
        of the exponentials of the scaled logits. A row that sees no key has o = 0 and lse = −inf. Where a size is 0,
        the answer is given without a launch.

    Raises:
        TypeError, ValueError: an argument that does not fit, before anything is compiled.
        SimulatorUnavailable, SimulatorError, TimeoutError: as `run` raises them.
    """
    config = _config(q, k, v, causal, scale, return_lse)
    kernel = replace(config, scale=RUNTIME if scale is not None else None)
    plan = make_plan(kernel, schedule)
    if 0 in q.shape or 0 in k.shape:
        o, lse = np.zeros(q.shape, q.dtype), np.full((q.shape[0], q.shape[2], q.shape[1]), -np.inf, np.float32)
        return (o, lse) if return_lse else o
    require_simulator()
    known = replace(plan, config=replace(kernel, B=q.shape[0], Sq=q.shape[1], Skv=k.shape[1]))
    arrays: dict[str, Any] = {"Q": q, "K": k, "V": v}
    if scale is not None:
        arrays["scale"] = np.float32(scale)
    outputs = run(_kernel(simulated_plan(plan, known.tasks)), arrays, time_limit=time_limit, notes=notes).outputs
    return (outputs["O"], outputs["LSE"]) if return_lse else outputs["O"]


def simulated_plan(plan: Plan, tasks: int | None = None) -> Plan:
    """The plan for the simulator, which takes compact tensors and a grid that does not depend on a length.

    Args:
        plan: any plan. The device code of the result is the same.
        tasks: tasks of the largest launch; needed where the grid depends on a length.
    """
    return replace(plan, launch=Launch(strided=False, grid=_grid(tasks) if plan.grid is None else None))


def _grid(tasks: int | None) -> int:
    """One of few grids, so that launches of other lengths find a kernel that is already built."""
    if tasks is None:
        raise ValueError("tasks=None: allowed for a grid that depends on a length is the largest task count")
    return max(SMALLEST_GRID, 1 << (tasks - 1).bit_length())


@lru_cache(maxsize=32)
def _kernel(plan: Plan) -> Any:
    from tirx_attn.kernel import build_kernel

    return build_kernel(plan)


def _config(q: Array, k: Array, v: Array, causal: bool, scale: float | None, return_lse: bool) -> AttentionConfig:
    """The problem with its lengths left open, or an error that names the argument that does not fit."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} is {type(array).__name__}: allowed are NumPy arrays")
    facts = {
        name: Facts(
            name, str(x.dtype), x.shape, element_strides(name, x) if x.itemsize else (), x.itemsize, x.ctypes.data
        )
        for name, x in (("q", q), ("k", k), ("v", v))
    }
    return problem(**facts, causal=causal, scale=scale, return_lse=return_lse)
