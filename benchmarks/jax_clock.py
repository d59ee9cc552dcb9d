"""Device time on JAX's stream, which is not one of torch's and shows no events."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np

WRAP = 2**32
"""The stamps are the low 32 bits of a count of nanoseconds: times up to four seconds can be told."""


class HostClock:
    """The host's time. For it the calls have to be waited for before the mark that ends their time."""

    def mark(self) -> Any:
        return time.perf_counter()

    def wait(self, mark: Any) -> None:
        """Nothing: a mark is in the past."""

    def milliseconds(self, start: Any, end: Any) -> float:
        return (end - start) * 1e3

    def delay(self) -> None:
        """Nothing: the host's work is in the time anyway."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class JaxClock(HostClock):
    """Marks are stamps of the GPU's nanosecond timer that a kernel of one warp writes between the calls.

    Raises:
        RuntimeError: the stamps do not tell a known delay.
    """

    def __init__(self) -> None:
        start = self.mark()
        self.delay()
        end = self.mark()
        self.wait(end)
        taken = self.milliseconds(start, end)
        if not 0.1 < taken < 1000:
            raise RuntimeError(f"a delay of about 2 ms took {taken:g} ms by the stamps")

    def mark(self) -> Any:
        function, argument = stamp(delay=False)
        return function(argument)

    def wait(self, mark: Any) -> None:
        mark.block_until_ready()

    def milliseconds(self, start: Any, end: Any) -> float:
        # Copied whole: an index would be a computation, behind all the calls that are enqueued by now.
        first, last = (int(np.asarray(mark).item()) for mark in (start, end))
        return (last - first) % WRAP * 1e-6

    def delay(self) -> None:
        function, argument = stamp(delay=True)
        function(argument)


@cache
def stamp(delay: bool) -> tuple[Any, Any]:
    """A compiled function that returns a stamp as an array of one element, and the argument it is called with.

    Args:
        delay: sleep on the device first, for up to four milliseconds.
    """
    import jax
    from jax import numpy
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    sleep = "nanosleep.u32 1000000; nanosleep.u32 1000000; " if delay else ""
    stamps = jax.ShapeDtypeStruct((1,), numpy.int32)

    def write(unused: Any, out: Any) -> None:
        (now,) = triton.elementwise_inline_asm(
            sleep + "mov.u32 $0, %globaltimer_lo;",
            args=[unused[...]],
            constraints="=r,r",
            pack=1,
            result_shape_dtypes=[stamps],
        )
        out[...] = now

    parameters = triton.CompilerParams(num_warps=1, num_stages=1)
    argument = numpy.zeros((1,), numpy.int32)
    function = jax.jit(lambda unused: pallas.pallas_call(write, out_shape=stamps, compiler_params=parameters)(unused))
    function(argument).block_until_ready()
    return function, argument
