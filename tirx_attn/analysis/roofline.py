"""The bound of a plan: global memory at its bandwidth, the SMs at the pace of their slowest unit, and what waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tirx_attn.analysis.budget import TileBudget, plan_budget
from tirx_attn.analysis.traffic import Traffic, traffic
from tirx_attn.analysis.waves import Balance, balance
from tirx_attn.schedule.base import BasePlan


@dataclass(frozen=True)
class Roofline:
    """Times and bounds of one launch at the boost clock.

    Attributes:
        target: name of the GPU.
        mma_tflops: its dense fp16 peak.
        machine_balance: floating-point operations per byte from which on the tensor cores are the limit.
        traffic, tile, balance: what the figures are made of.
        memory_seconds: of the least traffic at the bandwidth of global memory.
        compute_seconds: of all tiles on SMs that share them evenly, at the pace of the slowest unit.
        launched_seconds: the same in the plan's order of tasks, until the last SM is done.
    """

    target: str
    mma_tflops: float
    machine_balance: float
    traffic: Traffic
    tile: TileBudget
    balance: Balance
    memory_seconds: float
    compute_seconds: float
    launched_seconds: float

    @property
    def bound_tflops(self) -> float:
        """What no order of tasks exceeds, in 10**12 floating-point operations of visible pairs per second."""
        return self.traffic.flops / max(self.memory_seconds, self.compute_seconds) / 1e12

    @property
    def launched_tflops(self) -> float:
        """The bound for the plan's order of tasks."""
        return self.traffic.flops / max(self.memory_seconds, self.launched_seconds) / 1e12

    @property
    def binds(self) -> tuple[str, ...]:
        """What sets `bound_tflops`: "hbm", or the slowest units of an SM."""
        return ("hbm",) if self.memory_seconds > self.compute_seconds else self.tile.binds

    def to_dict(self) -> dict[str, Any]:
        """All figures as JSON-able data."""
        return {
            "target": self.target,
            "mma_tflops": self.mma_tflops,
            "machine_balance": self.machine_balance,
            "traffic": self.traffic.to_dict(),
            "tile": self.tile.to_dict(),
            "balance": self.balance.to_dict(),
            "memory_seconds": self.memory_seconds,
            "compute_seconds": self.compute_seconds,
            "launched_seconds": self.launched_seconds,
            "bound_tflops": self.bound_tflops,
            "launched_tflops": self.launched_tflops,
            "binds": list(self.binds),
        }


def roofline(plan: BasePlan) -> Roofline:
    """Roofline of a plan.

    Raises:
        ValueError: a length is known at run time only.
    """
    target, moved, tile, spread = plan.target, traffic(plan), plan_budget(plan), balance(plan)
    block_seconds = plan.tiles.tiles_per_task * tile.clocks / (target.clock_ghz * 1e9)
    return Roofline(
        target=target.name,
        mma_tflops=target.mma_tflops,
        machine_balance=target.balance,
        traffic=moved,
        tile=tile,
        balance=spread,
        memory_seconds=moved.single_bytes / (target.hbm_tb_per_second * 1e12),
        compute_seconds=spread.work / target.sms * block_seconds,
        launched_seconds=spread.launched * block_seconds,
    )
