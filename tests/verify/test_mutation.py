"""The mutants' judges: all are caught or known to be no fault, and docs/protocol_check.md says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.barriers.checked import judge
from tests.proofs import Fates
from tirx_attn import AttentionConfig, verify
from tirx_attn.barriers.check import check
from tirx_attn.kernel import build_kernel
from tirx_attn.schedule import make_plan
from tirx_attn.verify import RESCALE_PROBES, mutation
from tirx_attn.verify.mutate import mutants
from tirx_attn.verify.mutation import (
    BASES,
    EQUIVALENT,
    EQUIVALENT_FAMILIES,
    Outcome,
    run_mutants,
    to_markdown,
    why_no_fault,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol_check.md"
TABLE = re.compile(r"<!-- mutants: begin -->\n(.*)<!-- mutants: end -->", re.DOTALL)


def outcome(family: str, edge: str, caught_by: str | None = "structural", equivalent: str | None = None) -> Outcome:
    return Outcome(f"base/{family}:{edge}:here", family, edge, "mma", edge, caught_by, equivalent, 0.1, "")


class TestOutcomes:
    def test_settled(self):
        assert outcome("drop wait", "s_ready").is_settled
        assert outcome("drop wait", "s_ready", None, "It is no fault.").is_settled
        assert not outcome("drop wait", "s_ready", None).is_settled

    def test_as_data(self):
        data = outcome("drop wait::ld", "").to_dict()
        assert set(data) >= {"id", "edge", "caught_by", "equivalent", "seconds", "message"}
        assert (data["family"], data["caught_by"], data["equivalent"]) == ("drop wait::ld", "structural", None)

    def test_table(self):
        text = to_markdown(
            [
                outcome("drop wait", "s_ready"),
                outcome("drop wait", "s_ready", "racecheck"),
                outcome("drop wait", "o_ready", None, "It is no fault."),
                outcome("drop wait::ld", ""),
                outcome("drop wait::ld", "", None),
            ]
        )
        assert text.splitlines()[2:] == [
            "| drop wait | o_ready | 1 | 0 | 0 | 1 |",
            "| drop wait | s_ready | 2 | 1 | 1 | 0 |",
            "| drop wait::ld | - | 2 | 1 | 0 | 1 |",
            "| **all** | | **5** | **2** | **1** | **2** |",
            "",
            "| no fault: family | statement | role | mutants | why |",
            "|---|---|---|---:|---|",
            "| drop wait | o_ready | mma | 1 | It is no fault. |",
            "| drop wait::ld |  | mma | 1 | UNEXPLAINED |",
        ]

    def test_reasons(self):
        assert why_no_fault("drop wait", "p_ready_2", "mma") is None
        assert why_no_fault("double wait", "p_ready_2", "mma") == EQUIVALENT_FAMILIES["double wait"]
        assert why_no_fault("swap", "tile.gemm_async <-> p_ready_2", "mma") == mutation.ALL_OF_P
        for reason in (*EQUIVALENT.values(), *EQUIVALENT_FAMILIES.values()):
            assert re.fullmatch(r"[A-Z][^.]*\.", reason), reason  # one sentence

    def test_bad_argument(self):
        with pytest.raises(ValueError, match=r"simulate='some': allowed values are 'unsettled', 'all' and 'none'"):
            next(run_mutants(simulate="some"))


@pytest.mark.slow
@pytest.mark.mutants
def test_all_mutants(request):
    """Judged, or known by their record: all settled, four in five by structure, every reason needed."""
    fates = Fates(request, "sm_100a", why_no_fault)
    outcomes = list(fates.judged(run_mutants(simulate="none", known=fates.known)))
    assert [o.id for o in outcomes if not o.is_settled] == []
    assert len({o.id for o in outcomes}) == len(outcomes) >= 60
    assert sum(o.caught_by == "structural" for o in outcomes) >= 0.8 * len(outcomes)
    passed = {(o.family, o.label, o.role) for o in outcomes if o.caught_by is None}
    assert set(EQUIVALENT) - passed == set()
    assert set(EQUIVALENT_FAMILIES) - {family for family, _, _ in passed} == set()
    assert all(o.equivalent is None for o in outcomes if o.caught_by)
    assert all(o.message for o in outcomes if o.caught_by and o.seconds)  # of those that were judged
    assert TABLE.search(DOCUMENT.read_text(encoding="utf-8"))[1] == to_markdown(outcomes)


def test_the_document_has_a_real_counterexample():
    """The quoted output is what the check says, but for line numbers, which move."""

    def without_lines(text: str) -> str:
        return re.sub(r"\.py:\d+", ".py:N", text)

    finding = judge("correction", "skip arrival with rescale").findings[0]
    assert without_lines(finding.message) in without_lines(DOCUMENT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def racecheck():
    """Judges a mutant of one task of two key blocks, by structure and on the simulator."""
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")
    verify.require_simulator()
    config = AttentionConfig(1, 256, 256, 1, 1, 128)
    base = build_kernel(verify.simulated_plan(make_plan(config, BASES["correction"])))
    arrays = RESCALE_PROBES["rescale_every"](config).arrays

    def judged(family: str, label: str):
        mutant = next(m for m in mutants(base) if (m.family, m.label) == (family, label))
        func = mutant.apply(base)
        return check(func), verify.racecheck(func, arrays, time_limit=600.0)

    return judged


@pytest.mark.simulator
@pytest.mark.slow
@pytest.mark.recorded("tirx_attn/verify/mutate.py", "tirx_attn/roles", unit="mutants on the simulator")
class TestSimulatorAgrees:
    def test_on_what_is_no_fault(self, racecheck):
        structural, simulated = racecheck("swap", "tile.gemm_async <-> p_ready_2")
        assert (structural.verdict, simulated.verdict) == ("clean", "clean")

    def test_on_a_fault(self, racecheck):
        structural, simulated = racecheck("drop fence", "fence_proxy")
        assert (structural.findings[0].kind, structural.findings[0].edge) == ("race", "o_staged.full")
        assert simulated.verdict == "error"
        assert "data_race" in {kind for kind, _ in simulated.findings}
