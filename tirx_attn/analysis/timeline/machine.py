"""Rates and latencies of one SM, in clock cycles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """What the replay takes for one SM.

    Attributes:
        flops: floating-point operations of the tensor pipe per cycle.
        mufu_cycles: cycles for which one warp's MUFU instruction holds its partition's unit.
        dilation: cycles that a cycle of an instruction's stall takes.
        edge: from the last arrival on an mbarrier to the waiting warp's next instruction.
        named: the same of a hardware named barrier.
        fill: from a product's last operation to the arrival of its commit.
        tmem_read, tmem_write: until a warp's loads and stores of tensor memory are complete.
        tma_latency: from the last byte that TMA asks for to the arrival of the tile.
        query_latency: the same for a query tile, which nobody read before.
        tma_bytes: bytes per cycle that TMA brings.
        store_latency: until a TMA store has read its tile.
        issue_depth: products that a warp may have issued before the pipe starts on them; None: any number.
        turns: 1 where the pipe takes one product of each warp by turns, 0 where it goes on with the same warp.
    """

    flops: float
    mufu_cycles: float
    dilation: float = 1.0
    edge: float = 0.0
    named: float = 0.0
    fill: float = 0.0
    tmem_read: float = 0.0
    tmem_write: float = 0.0
    tma_latency: float = 0.0
    query_latency: float = 0.0
    tma_bytes: float = 64.0
    store_latency: float = 0.0
    issue_depth: int | None = None
    turns: int = 1
