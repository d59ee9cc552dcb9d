"""The machine on two-warp programs: phases, credits, over-arrivals, early arrivals, named barriers, the event limit."""

from __future__ import annotations

import pytest

from tests.barriers.checker.skeletons import Steps, Warp, kinds, run
from tirx_attn.barriers.checker.signals import Fatal

PRODUCER, CONSUMER, OTHER = 1, 2, 3
ROUNDS = 6


def produce(warp: Warp, free: int = 1, waits: bool = True) -> Steps:
    for turn in range(ROUNDS):
        if waits:
            yield from warp.wait("empty", (turn & 1) ^ free)
        yield from warp.arrive("full")


def consume(warp: Warp, releases: bool = True) -> Steps:
    for turn in range(ROUNDS):
        yield from warp.wait("full", turn & 1)
        if releases:
            yield from warp.arrive("empty")


PIPELINE = {"full": 32, "empty": 32}


class TestPipeline:
    def test_full_and_empty_is_fine(self):
        machine = run(PIPELINE, {PRODUCER: produce, CONSUMER: consume})
        assert machine.ended
        assert machine.findings == []
        assert [machine.slots[edge, 0].phase for edge in PIPELINE] == [ROUNDS, ROUNDS]

    def test_a_producer_that_does_not_wait_aliases_the_phase(self):
        """Two phases on, the parity is the same again: the consumer cannot tell them apart."""
        machine = run(PIPELINE, {OTHER: lambda w: produce(w, waits=False), CONSUMER: consume})
        finding = next(f for f in machine.findings if f.kind == "aliased phase")
        assert (finding.edge, finding.role) == ("full", "warp 2")
        assert finding.message.startswith("full[0]: phase 1 can complete before warp 2 has waited for phase 0: wait on")
        assert "is not ordered before arrive on full" in finding.message

    def test_a_missed_phase(self):
        """The producer completes three phases while the consumer is held elsewhere."""

        def ahead(warp: Warp) -> Steps:
            for _ in range(3):
                yield from warp.arrive("full")
            yield from warp.arrive("go")

        def late(warp: Warp) -> Steps:
            yield from warp.wait("go", 0)
            yield from warp.wait("full", 0)

        machine = run({"full": 32, "go": 32}, {PRODUCER: ahead, CONSUMER: late})
        assert next(f.message for f in machine.findings if f.kind == "aliased phase").startswith(
            "full[0]: warp 2 waits for phase 0 when phase 2 is complete already: wait on full"
        )

    def test_missing_credit_is_a_deadlock(self):
        """The slot is free at the start, so the first wait must ask for the phase before phase 0, parity 1."""
        machine = run(PIPELINE, {PRODUCER: lambda w: produce(w, free=0), CONSUMER: consume})
        assert not machine.ended
        blocked = {warp: (target, phase) for warp, (target, phase, _) in machine.blocked.items()}
        assert blocked == {PRODUCER: (("empty", 0), 0), CONSUMER: (("full", 0), 0)}

    def test_first_waits(self):
        machine = run(PIPELINE, {PRODUCER: produce, CONSUMER: consume})
        phases = {(edge, role): phase for (edge, _, role), (phase, _) in machine.first_waits.items()}
        assert phases == {("empty", "warp 1"): -1, ("full", "warp 2"): 0}


class TestArrivals:
    def test_over_arrival(self):
        def twice(warp: Warp) -> Steps:
            yield from warp.arrive("full", lanes=48)

        with pytest.raises(Fatal):
            run({"full": 32}, {PRODUCER: twice})

    def test_early_arrival_is_seen_in_an_order_that_hides_it(self):
        """Two producers share a phase and only one of them is held back. Played in turn, each phase gets one arrival
        of each; but the free one could fill a phase alone.
        """

        def free(warp: Warp) -> Steps:
            for _ in range(3):
                yield from warp.arrive("full")
                for _ in range(6):
                    yield  # slow, which nothing promises

        def held(warp: Warp) -> Steps:
            for turn in range(3):
                yield from warp.wait("empty", (turn & 1) ^ 1)
                yield from warp.arrive("full")

        def consumer(warp: Warp) -> Steps:
            for turn in range(3):
                yield from warp.wait("full", turn & 1)
                yield from warp.arrive("empty")

        machine = run({"full": 64, "empty": 32}, {PRODUCER: held, CONSUMER: consumer, OTHER: free})
        assert machine.ended
        assert kinds(machine) == {"early arrival"}
        assert machine.findings[0].message.startswith(
            "full[0] phase 1: warp 3 can arrive before the phase before is complete: arrive on full"
        )
        assert "by warp 1" in machine.findings[0].message

    @pytest.mark.parametrize("expected", [8192, 32768])
    def test_wrong_byte_count_blocks(self, expected):
        """The tile has 128 x 64 x 2 = 16384 bytes."""
        machine = run(
            {"full": 1}, {PRODUCER: lambda w: w.load_tile("full", expected), CONSUMER: lambda w: w.wait("full", 0)}
        )
        assert not machine.ended
        assert machine.slots["full", 0].bytes == expected - 16384

    def test_barrier_used_before_its_init_is_known(self):
        with pytest.raises(Fatal):
            run({"full": 32}, {PRODUCER: lambda w: w.arrive("full")}, start=False)


class TestNamedBarriers:
    def test_one_use_each_is_fine(self):
        machine = run({}, {1: lambda w: w.bar(5, 64, False), 2: lambda w: w.bar(5, 64, True)})
        assert machine.ended
        assert machine.findings == []

    def test_second_use_by_who_cannot_know_that_the_first_is_over(self):
        def arrivals(warp: Warp) -> Steps:
            yield from warp.bar(5, 64, False)
            yield from warp.bar(5, 64, False)

        def syncs(warp: Warp) -> Steps:
            yield from warp.bar(5, 64, True)
            yield from warp.bar(5, 64, True)

        with pytest.raises(Fatal, match="named 5"):
            run({}, {1: arrivals, 2: syncs})

    def test_counts_must_agree(self):
        machine = run({}, {1: lambda w: w.bar(5, 96, False), 2: lambda w: w.bar(5, 64, True)})
        assert machine.findings[0].message.startswith("named 5: warp 2 counts 64 threads, others 96: bar.sync")


def test_event_limit():
    def endless(warp: Warp) -> Steps:
        while True:
            warp.m.tick(warp.number)
            yield

    with pytest.raises(Fatal, match="no end after 500 events"):
        run({}, {1: endless}, limit=500)
