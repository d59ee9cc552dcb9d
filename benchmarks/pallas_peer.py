"""JAX's attention for Mosaic GPU (`jax.experimental.pallas.ops.gpu.attention_mgpu`), called as a library.

Its logits are not scaled, so Q is scaled beforehand, outside the time. JAX sees the tensors in place, through DLPack.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.inputs import Problem
from benchmarks.measure import Clock, Implementation, error_text, nothing
from benchmarks.tuning import NoVariant, fastest, in_threads

CONFIGS: tuple[dict[str, Any], ...] = (
    {"block_q": 64, "block_kv": 128, "max_concurrent_steps": 2, "use_schedule_barrier": True},
    {"block_q": 64, "block_kv": 128, "max_concurrent_steps": 2, "use_schedule_barrier": False},
    {"block_q": 64, "block_kv": 128, "max_concurrent_steps": 3, "use_schedule_barrier": True},
    {"block_q": 64, "block_kv": 64, "max_concurrent_steps": 4, "use_schedule_barrier": True},
    {"block_q": 64, "block_kv": 256, "max_concurrent_steps": 2, "use_schedule_barrier": True},
    {"block_q": 128, "block_kv": 128, "max_concurrent_steps": 2, "use_schedule_barrier": True},
)
"""Fields of TuningConfig that are tried. They are compiled for each shape, so a later shape tries the best few only."""

KEPT = 2


class PallasPeer:
    """Tunes on the first shape of each mask, dtype and head layout; later ones take the best few of that order."""

    def __init__(self) -> None:
        import jax  # noqa: F401  fails here, not at the first shape

        self.ranking: dict[tuple[Any, ...], list[str]] = {}
        self.failed: set[tuple[Any, ...]] = set()
        self.clock: Clock | None = None
        self.stamped = False
        self.note = ""

    def __call__(self, problem: Problem, clock: Clock) -> Implementation:
        if not self.note:
            self._choose_clock()
        config = problem.config
        key = (config.dtype, config.is_causal, config.ratio, config.D)
        calls = {config_name(fields): Call(problem, fields) for fields in CONFIGS}
        if key in self.ranking:
            try:
                return self._fastest({name: calls[name] for name in self.ranking[key]}, problem, clock)
            except NoVariant:
                pass
        if key in self.failed:  # most likely it fails again: one configuration tells
            self._fastest(dict([*calls.items()][:1]), problem, clock)
        self.failed.add(key)
        best = self._fastest(calls, problem, clock)
        self.failed.discard(key)
        times = {name: ms for name, ms in (best.tuning or {}).items() if isinstance(ms, float)}
        self.ranking[key] = sorted(times, key=lambda name: times[name])[:KEPT]
        return best

    def _choose_clock(self) -> None:
        from benchmarks.jax_clock import HostClock, JaxClock

        self.note = "Q scaled beforehand; "
        try:
            self.clock = JaxClock()
            self.stamped = True
            self.note += "time by stamps on JAX's stream"
        except Exception as error:
            self.clock = HostClock()
            self.note += f"host time with one wait per chunk, dispatch included ({error_text(error, limit=300)})"

    def _fastest(self, calls: dict[str, Call], problem: Problem, clock: Clock) -> Implementation:
        in_threads(call.compile for call in calls.values())
        return fastest({name: partial(self._implementation, call) for name, call in calls.items()}, problem, clock)

    def _implementation(self, call: Call) -> Implementation:
        call.compile()
        leave = nothing if self.stamped else call.finish
        return Implementation(call=call, output=call.output, leave=leave, clock=self.clock, note=self.note)


class Call:
    """One configuration on the tensors of a problem.

    Args:
        problem: the shape and its tensors.
        fields: arguments of TuningConfig, without `causal`.
    """

    def __init__(self, problem: Problem, fields: dict[str, Any]) -> None:
        self.problem = problem
        self.fields = fields
        self.function: Callable[..., Any] | None = None
        self.inputs: tuple[Any, ...] = ()
        self.result: Any = None

    def compile(self) -> None:
        """Compile, run once and wait; the second time does nothing."""
        if self.function is not None:
            return
        import jax
        from jax.experimental.pallas.ops.gpu import attention_mgpu

        config = self.problem.config
        tuning = attention_mgpu.TuningConfig(**self.fields, causal=config.is_causal)
        function = jax.jit(partial(attention_mgpu.attention, config=tuning))
        # The factor is not a power of two for D = 128, so Q rounds once more than elsewhere.
        tensors = (self.problem.q * config.softmax_scale, self.problem.k, self.problem.v)
        self.inputs = tuple(jax.dlpack.from_dlpack(tensor) for tensor in tensors)
        self.result = function(*self.inputs)
        self.result.block_until_ready()
        self.function = function

    def __call__(self) -> None:
        assert self.function is not None
        self.result = self.function(*self.inputs)

    def finish(self) -> None:
        """The host waits for the latest call."""
        self.result.block_until_ready()

    def output(self) -> Any:
        """O as a torch tensor."""
        import torch

        return torch.from_dlpack(self.result)


def config_name(fields: dict[str, Any]) -> str:
    """Readable name of one configuration."""
    barrier = "" if fields["use_schedule_barrier"] else ", no schedule barrier"
    return f"{fields['block_q']}x{fields['block_kv']}, {fields['max_concurrent_steps']} steps{barrier}"
