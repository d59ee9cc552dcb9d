"""Constants of the model: fitted to measured times or cycles, or assumed. docs/model.md has the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from tirx_attn.analysis.timeline.machine import Machine
from tirx_attn.targets import Target


def _fitted(unit: str, meaning: str) -> Any:
    return field(metadata={"unit": unit, "meaning": meaning})


def _assumed(value: Any, unit: str, meaning: str) -> Any:
    return field(default=value, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True)
class Constants:
    """What the model cannot read off a kernel or a target. Each field says its unit and meaning.

    Attributes:
        name: whose they are.
        fitted: names of the fields that were fitted; the others are assumptions.
    """

    name: str
    fitted: tuple[str, ...]
    dilation: float = _fitted(
        "cycles per stall cycle", "how much longer a warp's instructions take than their stall sum"
    )
    edge: float = _assumed(
        60.0, "cycles", "from the last arrival on an mbarrier to the waiting warp's next instruction"
    )
    named: float = _assumed(60.0, "cycles", "the same at a hardware named barrier")
    fill: float = _assumed(60.0, "cycles", "from the end of a product to its completion")
    tmem_read: float = _assumed(100.0, "cycles", "wait for loads of tensor memory")
    tmem_write: float = _assumed(60.0, "cycles", "wait for stores to tensor memory")
    tma_latency: float = _assumed(600.0, "cycles", "from the last byte asked for to the arrival of a tile, out of L2")
    query_latency: float = _assumed(600.0, "cycles", "the same of a query tile, out of memory")
    mma_share: float = _assumed(1.0, "", "of the tensor pipe's peak rate that products reach")
    tma_bytes: float = _assumed(64.0, "bytes per cycle", "that one SM takes out of L2")
    store_latency: float = _assumed(500.0, "cycles", "until a TMA store has read its tile")
    issue_depth: int | None = _assumed(None, "products", "that a warp may issue ahead of the tensor pipe; None: any")
    launch_us: float = _assumed(0.0, "µs", "launch and end of the grid")
    cta_start: float = _assumed(0.0, "cycles", "of a CTA before its first instruction that counts, and behind its last")
    clock_slope: float = _assumed(0.0, "", "clock = boost clock x (time / 100 µs) ** -slope, from 20 µs to 1 ms")
    cold: bool = _assumed(False, "", "K and V come from memory, not from L2: they were flushed before the run")

    def machine(self, target: Target) -> Machine:
        """Rates and latencies of one SM of a target."""
        return Machine(
            flops=target.mma_flop_per_clock * self.mma_share,
            mufu_cycles=target.mufu_cycles,
            dilation=self.dilation, edge=self.edge, named=self.named, fill=self.fill,
            tmem_read=self.tmem_read, tmem_write=self.tmem_write,
            tma_latency=self.tma_latency, query_latency=self.query_latency, tma_bytes=self.tma_bytes,
            store_latency=self.store_latency, issue_depth=self.issue_depth,
        )  # fmt: skip

    def clock_ghz(self, target: Target, time_us: float) -> float:
        """Clock of a run that takes so long."""
        return target.clock_ghz * (min(max(time_us, SHORT_US), LONG_US) / 100.0) ** -self.clock_slope

    def to_dict(self) -> list[dict[str, Any]]:
        """Name, value, unit, meaning and origin of each constant, JSON-able."""
        return [
            {"name": each.name, "value": getattr(self, each.name), **each.metadata, "fitted": each.name in self.fitted}
            for each in fields(self)
            if each.metadata
        ]


SHORT_US, LONG_US = 20.0, 1000.0
"""Run times between which the clock is taken to fall."""

BLACKWELL = Constants(
    "Blackwell, fitted on published B200 times",
    fitted=("dilation", "launch_us", "cta_start", "clock_slope"),
    dilation=1.396,
    launch_us=2.987,
    cta_start=1612.0,
    clock_slope=0.0365,
    cold=True,
)

HOPPER = Constants(
    "Hopper, fitted on cycles of an H200",
    fitted=("dilation", "edge", "tma_latency", "query_latency", "mma_share"),
    dilation=1.85,
    edge=30.0,
    named=20.0,
    fill=20.0,
    tma_latency=200.0,
    query_latency=1200.0,
    mma_share=0.92,
    issue_depth=2,
    cta_start=1500.0,
)


def constants_for(target: Target) -> Constants:
    """The constants of a target's tensor cores."""
    return BLACKWELL if target.mma == "tcgen05" else HOPPER
