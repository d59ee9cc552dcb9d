"""The synchronisation protocol of the sm_90a kernel as a table, in the terms of barriers/protocol.py."""

from __future__ import annotations

from tirx_attn.barriers.protocol import Edge, Kind, Producer, Protocol
from tirx_attn.hopper.plan import HopperPlan
from tirx_attn.schedule.parts import WARP_THREADS, WARPGROUP_THREADS


def hopper_protocol(plan: HopperPlan) -> Protocol:
    """The protocol of a plan."""
    s = plan.schedule
    threads = s.consumers * WARPGROUP_THREADS
    edges = [
        _tma("q_load.full", s.q_stages, plan.q_tile_bytes, "Q tile is in shared memory"),
        _release("q_load.empty", s.q_stages, s.consumers, "last QKᵀ of the tile has read it"),
        _tma("kv_load.full", s.kv_stages, plan.tile_bytes, "K or V tile is in the ring slot"),
        _release("kv_load.empty", s.kv_stages, s.consumers, "the MMAs of all consumers have read the slot"),
        Edge(
            "o_staged.full",
            Kind.THREADS,
            1,
            (Producer("consumer", threads, "O rows written and fenced for the async proxy", s.consumers),),
            ("store",),
            "O tile is in staging memory",
        ),
        Edge(
            "o_staged.empty",
            Kind.THREADS,
            1,
            (Producer("store", plan.warps.store.threads, "TMA store has read the tile"),),
            ("consumer",),
            "staging memory may be written again",
            free_stages=(0,),
        ),
    ]
    if s.ping_pong:
        edges.append(
            Edge(
                "mma_turn",
                Kind.NAMED,
                s.consumers,
                (Producer("consumer", WARPGROUP_THREADS, "MMAs of the warpgroup before issued"),),
                ("consumer",),
                "it is this warpgroup's turn to issue MMAs",
                credit="consumer",
                free_stages=(0,),
            )
        )
    return Protocol(tuple(edges))


def _tma(name: str, stages: int, tile_bytes: int, protects: str) -> Edge:
    producer = Producer("load", 1, "expect-tx arrive and the bytes of the tile's boxes")
    return Edge(name, Kind.TMA, stages, (producer,), ("consumer",), protects, tx_bytes=tile_bytes)


def _release(name: str, stages: int, consumers: int, protects: str) -> Edge:
    warps = consumers * WARPGROUP_THREADS // WARP_THREADS
    producer = Producer("consumer", warps, "one lane of each warp whose MMAs are complete", consumers)
    return Edge(name, Kind.THREADS, stages, (producer,), ("load",), protects, free_stages=tuple(range(stages)))
