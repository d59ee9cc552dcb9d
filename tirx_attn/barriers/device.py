"""Rows of the protocol as TIRx barrier objects: init counts, first phases, named-barrier ids. Nothing else sets them.

Phase convention: a wait names the parity of the phase that must complete. A cursor (PipelineState) starts at the edge's
`first_wait_parity` and flips once per completed use of the slot.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.lang.pipeline import MBarrier, PipelineState, TCGen05Bar, TMABar

from tirx_attn.barriers.protocol import Edge, Kind, Protocol, part_edge
from tirx_attn.schedule.plan import Q_STAGES

_OBJECTS = {Kind.TMA: TMABar, Kind.COMMIT: TCGen05Bar, Kind.THREADS: MBarrier}

CTA_SYNC_ID = 0
"""Named barrier of the CTA-wide sync; edges are numbered from the next one."""


@T.meta_class
class NamedBarrier:
    """A hardware named barrier per slot: producers arrive, consumers wait, both count."""

    def __init__(self, first_id: int, edge: Edge):
        self.first_id = first_id
        self.threads = edge.count
        self.per_stage = edge.stages // Q_STAGES

    def index(self, stage, warp):
        """Barrier id of a query stage and the warp's place in its warpgroup."""
        pair = stage if self.per_stage == 1 else stage * self.per_stage + warp
        return T.cast(self.first_id + pair, "uint32")

    @T.inline
    def arrive(self, stage, warp):
        T.ptx.bar.arrive(self.index(stage, warp), T.uint32(self.threads))

    @T.inline
    def wait(self, stage, warp):
        T.ptx.bar.sync(self.index(stage, warp), T.uint32(self.threads))


@T.meta_class
class Barriers:
    """All edges of a protocol, by name: `q_load.full` is `barriers.q_load_full`."""

    def __init__(self, pool, table: Protocol):
        self.table = table
        next_id = CTA_SYNC_ID + 1
        for edge in table.edges:
            if edge.kind is Kind.NAMED:
                barrier = NamedBarrier(next_id, edge)
                next_id += edge.stages
            else:
                barrier = _OBJECTS[edge.kind](pool, edge.stages)
                barrier.init(edge.count)
                # TVM names the fields of an MBarrier by itself, but not those of its subclasses.
                IRBuilder.name(buffer_name(edge.name), barrier.buf)
            setattr(self, attribute(edge.name), barrier)

    def cursor(self, name: str, depth: int = 1, stage=0):
        """Where a role stands on an edge: the phase, and with `depth` > 1 the slot, of its next wait.

        `stage` is the one stage that the role serves, where stages start with different parities.
        """
        edge = self.table[name]
        parities = {edge.first_wait_parity(slot) for slot in range(edge.stages)}
        if len(parities) == 1:
            return PipelineState(depth, parities.pop())
        if isinstance(stage, int):
            return PipelineState(depth, edge.first_wait_parity(stage))
        (free,) = edge.free_stages
        return PipelineState(depth, T.if_then_else(stage == free, 1, 0))

    def phase(self, name: str, cursor: PipelineState, stage):
        """Phase of a role's next wait for a stage, where one cursor, that of stage 0, serves both query stages."""
        first, second = (self.table[name].first_wait_parity(slot) for slot in range(Q_STAGES))
        return cursor.phase if first == second else cursor.phase ^ stage

    def part_of_p(self, part: int):
        """The barrier on which a part of P is handed over."""
        return getattr(self, attribute(part_edge(part)))

    def give_credit(self, role: str, stage):
        """The arrivals on mbarriers that a role owes before its first task, for one stage."""
        for edge in self.table.edges:
            if edge.credit == role and edge.kind is not Kind.NAMED:
                getattr(self, attribute(edge.name)).arrive(stage)


def attribute(edge_name: str) -> str:
    """Attribute of Barriers that holds an edge."""
    return edge_name.replace(".", "_")


def buffer_name(edge_name: str) -> str:
    """Name of an edge's mbarrier words in the PrimFunc and in the generated CUDA."""
    return f"ctx_barriers_{attribute(edge_name)}_buf"
