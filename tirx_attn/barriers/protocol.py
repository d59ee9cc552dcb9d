"""The synchronisation protocol as a table: who arrives, who waits, what an edge protects, who gives the first credit.

Counts are derived from the warp plan, never typed. barriers/device.py turns rows into TIRx objects; the roles use
them by name; docs/barriers.md is rendered from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tirx_attn.schedule.parts import WARP_THREADS, Role
from tirx_attn.schedule.plan import Q_STAGES, Plan


class Kind(Enum):
    """How an edge is signalled."""

    TMA = "TMA mbarrier"
    COMMIT = "tcgen05 mbarrier"
    THREADS = "mbarrier"
    NAMED = "hardware named barrier"


@dataclass(frozen=True)
class Producer:
    """Arrivals of one role in one phase of an edge.

    Attributes:
        role: name in the warp plan.
        arrivals: what it adds to the count.
        signal: what arrives, in words.
        groups: how many of the role's warpgroups make these arrivals. Where it is not all of them, it is the stage's
            own one, or, where the role waits too, the one before it.
    """

    role: str
    arrivals: int
    signal: str
    groups: int = 1


@dataclass(frozen=True)
class Edge:
    """One row of the protocol.

    Attributes:
        name: name that roles use; `full` and `empty` edges of a pipeline share a prefix.
        kind: how it is signalled.
        stages: slots, each with a phase of its own.
        producers: who arrives, with the arrivals per phase.
        consumers: roles that wait.
        protects: what is true once a wait returned.
        tx_bytes: bytes that TMA must bring in a phase besides the arrivals.
        credit: role that arrives once before its first task so that the first phase can complete, or None.
        free_stages: stages whose first wait passes at once, because the slot is free when the kernel starts. At a
            hardware named barrier no wait passes by itself: these are the stages on which the credit is given.
    """

    name: str
    kind: Kind
    stages: int
    producers: tuple[Producer, ...]
    consumers: tuple[str, ...]
    protects: str
    tx_bytes: int = 0
    credit: str | None = None
    free_stages: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Arrivals that complete a phase; of a named barrier, the threads that arrive or wait."""
        arrivals = sum(producer.arrivals for producer in self.producers)
        return arrivals + (self.waiting if self.kind is Kind.NAMED else 0)

    @property
    def waiting(self) -> int:
        """Threads that wait at one named barrier: as many as arrive, one consumer for each producer."""
        return sum(producer.arrivals for producer in self.producers)

    def first_wait_parity(self, stage: int) -> int:
        """Parity of the phase that the first wait for a stage asks for; an untouched mbarrier satisfies 1."""
        return 1 if stage in self.free_stages else 0


@dataclass(frozen=True)
class Protocol:
    """All edges of one plan."""

    edges: tuple[Edge, ...]

    def __getitem__(self, name: str) -> Edge:
        for edge in self.edges:
            if edge.name == name:
                return edge
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(edge.name == name for edge in self.edges)

    @property
    def mbarriers(self) -> int:
        """mbarrier words in shared memory."""
        return sum(edge.stages for edge in self.edges if edge.kind is not Kind.NAMED)

    @property
    def named_barriers(self) -> int:
        """Hardware named barriers, without barrier 0 of the CTA-wide sync."""
        return sum(edge.stages for edge in self.edges if edge.kind is Kind.NAMED)


def protocol(plan: Plan) -> Protocol:
    """The protocol of a plan.

    Raises:
        ValueError: the edges need more hardware named barriers than the target has.
    """
    warps, owner = plan.warps, plan.epilogue
    edges = [
        _tma("q_load.full", Q_STAGES, plan.q_tile_bytes, "Q tile of the stage is in shared memory"),
        _release("q_load.empty", Q_STAGES, "last QKᵀ of the task has read the Q tile"),
        _tma("kv_load.full", plan.schedule.kv_stages, plan.tile_bytes, "K or V tile is in the ring slot"),
        _release("kv_load.empty", plan.schedule.kv_stages, "last MMA that reads the slot is complete"),
        Edge(
            "s_ready",
            Kind.COMMIT,
            Q_STAGES,
            (Producer("mma", 1, "commit behind QKᵀ"),),
            ("softmax",),
            "S is complete in TMEM; so is the PV of the block before, issued earlier by the same thread",
        ),
        Edge(
            "p_o_rescale",
            Kind.THREADS,
            Q_STAGES,
            (
                _threads(warps.softmax, "first part of P stored"),
                _threads(warps.correction, "O rescaled, or known to need none"),
            ),
            ("mma",),
            f"first part of P is in TMEM and O may be accumulated into. In block 0 of a task the second half of the "
            f"count comes from the {owner.name} group: it has read the last task's O",
            credit=owner.name,
        ),
        *_parts_of_p(plan),
        Edge(
            "o_ready",
            Kind.COMMIT,
            Q_STAGES,
            (Producer("mma", 1, "commit behind the task's last PV"),),
            (owner.name,),
            "O is final in TMEM",
        ),
        _statistics(plan),
        Edge(
            "o_staged.full",
            Kind.THREADS,
            Q_STAGES,
            (_threads(owner, "O tile written and fenced for the async proxy"),),
            ("store",),
            "O tile is in staging memory",
        ),
        _staging_free(plan),
    ]
    if plan.sends_row_sum:
        edges += _row_sum(plan)
    if plan.schedule.stagger:
        edges.append(
            Edge(
                "exp_turn",
                Kind.THREADS,
                Q_STAGES,
                (_threads(warps.softmax, "exponentials of the other stage issued"),),
                ("softmax",),
                "it is this stage's turn in the exponential phase",
                free_stages=(0,),
            )
        )
    table = Protocol(tuple(edges))
    free = plan.target.named_barriers - 1
    if table.named_barriers > free:
        raise ValueError(
            f"statistics={plan.schedule.statistics!r}: needs {table.named_barriers} named barriers, allowed are {free}"
        )
    return table


def _threads(role: Role, signal: str) -> Producer:
    return Producer(role.name, role.threads, signal)


def _tma(name: str, stages: int, tile_bytes: int, protects: str) -> Edge:
    producer = Producer("load", 1, "expect-tx arrive and the bytes of the tile's boxes")
    return Edge(name, Kind.TMA, stages, (producer,), ("mma",), protects, tx_bytes=tile_bytes)


def _release(name: str, stages: int, protects: str) -> Edge:
    producer = Producer("mma", 1, "commit behind the last reader")
    return Edge(name, Kind.COMMIT, stages, (producer,), ("load",), protects, free_stages=tuple(range(stages)))


def part_edge(part: int) -> str:
    """Name of the edge on which a part of P is handed over; parts count from 0."""
    return "p_o_rescale" if part == 0 else f"p_ready_{part + 1}"


def _parts_of_p(plan: Plan) -> list[Edge]:
    """The edges of all parts of P but for the first one, which O has to wait for as well."""
    last = len(plan.schedule.pv_split) - 1
    made = []
    for part in range(1, last + 1):
        what = "rest of P" if part == last else f"part {part + 1} of P"
        producer = _threads(plan.warps.softmax, f"{what} stored")
        made.append(Edge(part_edge(part), Kind.THREADS, Q_STAGES, (producer,), ("mma",), f"{what} is in TMEM"))
    return made


def _staging_free(plan: Plan) -> Edge:
    signal, protects = "TMA store has read the tile", "staging memory may be written again"
    free = tuple(range(Q_STAGES))
    if plan.schedule.o_stages < Q_STAGES:
        # One slot for both stages would alias: a stage misses the phases of the other one.
        signal, protects = "TMA store has read O of the other stage", "this stage may write the one staging tile"
        free = (0,)
    producers = (_threads(plan.warps.store, signal),)
    return Edge("o_staged.empty", Kind.THREADS, Q_STAGES, producers, (plan.epilogue.name,), protects, free_stages=free)


def _statistics(plan: Plan) -> Edge:
    pairwise = plan.schedule.statistics != "collective"
    group = plan.warps.softmax.threads
    per_barrier = WARP_THREADS if pairwise else group
    return Edge(
        "stats.full",
        Kind.NAMED,
        Q_STAGES * group // per_barrier,
        (Producer("softmax", per_barrier, "acc_scale written"),),
        ("correction",),
        f"acc_scale of the block is in {_place(plan)}. It may be written again after s_ready of the next block: the PV "
        "ahead of that QKᵀ waited for the reader on p_o_rescale",
    )


def _place(plan: Plan) -> str:
    """Where acc_scale and row_sum lie."""
    return "TMEM, over S" if plan.schedule.statistics_in_tmem else "shared memory"


def _row_sum(plan: Plan) -> list[Edge]:
    warps, in_tmem = plan.warps, plan.schedule.statistics_in_tmem
    return [
        Edge(
            "row_sum.full",
            Kind.THREADS,
            Q_STAGES,
            (_threads(warps.softmax, "row_sum of the task written"),),
            ("correction",),
            f"row_sum of the task is in {_place(plan)}",
        ),
        Edge(
            "row_sum.empty",
            Kind.THREADS,
            Q_STAGES,
            (_threads(warps.correction, "row_sum read"),),
            ("mma",) if in_tmem else ("softmax",),
            "S of the next task may overwrite row_sum" if in_tmem else "row_sum may be written again",
            free_stages=tuple(range(Q_STAGES)),
        ),
    ]
