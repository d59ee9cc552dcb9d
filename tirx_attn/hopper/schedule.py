"""HopperSchedule: every knob of the sm_90a kernel that does not change what it computes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tirx_attn.schedule.schedule import MAX_TASKS

CONSUMER_ROWS = 64
"""Query rows of one consumer warpgroup: the M of a WGMMA."""


@dataclass(frozen=True)
class HopperSchedule:
    """One way to run the sm_90a kernel. All values are fixed when the kernel is generated.

    Args:
        consumers: warpgroups that compute, 64 query rows each.
        kv_stages: slots of the ring that K and V tiles share.
        q_stages: slots for query tiles; with 2 the next task's tile is loaded while this one is computed.
        ping_pong: let the consumer warpgroups take turns in issuing their MMAs, so that one computes exponentials while
            the tensor cores work for the other.
        consumer_registers, producer_registers: registers per thread (setmaxnreg) of the warpgroups that compute, and of
            the one that loads and stores.
        persistent_ctas: CTAs of the persistent grid; None means one per SM of the target.

    Raises:
        TypeError, ValueError: naming the argument, its value and the allowed values.
    """

    consumers: int = 2
    kv_stages: int = 4
    q_stages: int = 2
    ping_pong: bool = True
    consumer_registers: int = 240
    producer_registers: int = 24
    persistent_ctas: int | None = None

    @property
    def rows(self) -> int:
        """Rows of a query tile."""
        return self.consumers * CONSUMER_ROWS

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "ping_pong":
                if not isinstance(value, bool):
                    raise TypeError(f"ping_pong={value!r}: allowed values are True and False")
            elif not (value is None and field.name == "persistent_ctas") and (
                isinstance(value, bool) or not isinstance(value, int)
            ):
                raise TypeError(f"{field.name}={value!r} ({type(value).__name__}): allowed values are integers")
        if self.consumers not in (2, 3):
            _refuse("consumers", self.consumers, "2 and 3")
        if self.kv_stages < 3:
            # K of the next block comes ahead of V of this one.
            _refuse("kv_stages", self.kv_stages, "integers from 3 (two K tiles and one V tile)")
        if self.q_stages not in (1, 2):
            _refuse("q_stages", self.q_stages, "1 and 2")
        for name in ("consumer_registers", "producer_registers"):
            value = getattr(self, name)
            if not 24 <= value <= 256 or value % 8:
                _refuse(name, value, "multiples of 8 from 24 to 256")
        if self.persistent_ctas is not None and not 1 <= self.persistent_ctas <= MAX_TASKS:
            _refuse("persistent_ctas", self.persistent_ctas, "None and positive integers up to 2**30")


def _refuse(name: str, value: object, allowed: str) -> None:
    raise ValueError(f"{name}={value!r}: allowed values are {allowed}")
