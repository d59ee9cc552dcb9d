"""Proofs as records, on small kernels: what a key holds, what an edit proves again, how a false record is found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import proofs as side
from tests.verify import kernels
from tirx_attn import AttentionConfig
from tirx_attn.schedule import Schedule
from tirx_attn.verify import fates, proofs
from tirx_attn.verify.mutation import Outcome
from tirx_attn.verify.proofs import Kernel, Launch, find, proof_key, prove
from tirx_attn.verify.records import Records
from tirx_attn.verify.reference import ErrorVerdict

LAUNCHES = [Launch("run", "counted", (1, 64, 64))]
X = np.arange(64 * 4, dtype=np.float32).reshape(64, 4)


@dataclass(frozen=True)
class Small:
    """A kernel of two roles, named as functions of tests/verify/kernels.py."""

    name: str
    upper: str
    lower: str

    @property
    def file(self) -> str:
        return f"small/{self.name}"

    def func(self) -> Any:
        return kernels.role_kernel(getattr(kernels, self.upper), getattr(kernels, self.lower))

    def source(self) -> str:
        return proofs.source_hash(self.func())

    def about(self) -> dict[str, Any]:
        return {"kernel": self.name}

    def arrays(self, launch: Launch) -> dict[str, Any]:
        return {"X": X}

    def answer(self, launch: Launch) -> Any:
        factor = {"copy_role": 1, "double_role": 2, "triple_role": 3}
        return np.concatenate([X[:32] * factor[self.upper], X[32:] * factor[self.lower]])

    def judged(self, launch: Launch, outputs: Any) -> list[ErrorVerdict]:
        return [ErrorVerdict(float(np.abs(outputs["O"] - self.answer(launch)).max()), 0.0)]


TWO = (Small("one", "copy_role", "double_role"), Small("other", "double_role", "double_role"))


def request(prove_all: bool = False) -> Any:
    """What a test hands over: where a proof is noted, and the run's options."""
    config = SimpleNamespace(getoption=lambda _: "all" if prove_all else "sample")
    return SimpleNamespace(node=SimpleNamespace(user_properties=[]), config=config)


def proved(asked: Any, kept: Records, subjects: Any) -> list[tuple[str, str]]:
    """What a run of these subjects makes, and keeps."""
    for subject in subjects:
        for launch in LAUNCHES:
            side.demand(asked, subject, launch, kept)
    made = [data for _, data in asked.node.user_properties if data["how"] != side.RECORDED]
    side.keep(kept, made)
    return [(data["file"], data["name"]) for data in made]


@pytest.mark.simulator
@pytest.mark.slow
@pytest.mark.recorded(
    "tirx_attn/verify/proofs.py",
    "tirx_attn/verify/records.py",
    "tests/proofs.py",
    "tests/verify/kernels.py",
    unit="records",
)
class TestOnTheSimulator:
    @pytest.fixture(autouse=True)
    def nothing_is_drawn(self, monkeypatch):
        pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")
        monkeypatch.setattr(side, "is_drawn", lambda unit, seed: False)

    def test_an_edited_role_proves_exactly_its_kernels_again(self, tmp_path, monkeypatch):
        kept = Records(tmp_path)
        every = [(subject.file, launch.name) for subject in TWO for launch in LAUNCHES]
        assert proved(request(), kept, TWO) == every
        assert proved(request(), Records(tmp_path), TWO) == []
        monkeypatch.setattr(kernels, "copy_role", kernels.triple_role)
        monkeypatch.setattr(Small, "answer", lambda self, launch: np.concatenate(
            [X[:32] * (3 if self.name == "one" else 2), X[32:] * 2]
        ))  # fmt: skip
        assert proved(request(), Records(tmp_path), TWO) == every[:1]
        assert proved(request(), Records(tmp_path), TWO) == []

    @pytest.mark.parametrize("kind", ["drawn", "make prove"])
    def test_a_record_edited_by_hand_is_found(self, tmp_path, monkeypatch, kind):
        proved(request(), Records(tmp_path), TWO[:1])
        (path,) = tmp_path.rglob("*.jsonl")
        path.write_text(path.read_text().replace('"error": 0.0', '"error": 0.5'))
        drawn = request(kind == "make prove")
        if kind == "drawn":
            monkeypatch.setattr(side, "is_drawn", lambda unit, seed: unit == "small/one run")
        with pytest.raises(AssertionError, match=r"run counted 1,64,64: the record is contradicted: error 0"):
            proved(drawn, Records(tmp_path), TWO[:1])
        assert [data["how"] for _, data in drawn.node.user_properties] == [side.DRAWN]

    def test_a_fault_has_no_clean_record(self, tmp_path, monkeypatch):
        monkeypatch.setattr(kernels, "copy_role", kernels.double_role)  # not what the answer says
        (checked,) = (replace(launch, kind="racecheck") for launch in LAUNCHES)
        with pytest.raises(AssertionError, match="wrong"):
            proved(request(), Records(tmp_path), TWO[:1])
        record = prove(TWO[0], LAUNCHES[0], time_limit=600)
        assert (record.verdict, record.figures["error"], record.clean) == ("wrong", float(X[31, 3]), False)
        assert prove(TWO[0], checked, time_limit=600).clean  # wrong, and no race


class TestKeys:
    KERNEL = Kernel("small", AttentionConfig(None, None, None, 2, 1, 64, return_lse=True), Schedule(), 64)
    LAUNCH = Launch("run", "random", (1, 5, 9))

    def test_every_part_counts(self, monkeypatch):
        monkeypatch.setattr(proofs, "_source", lambda kernel: "source")
        keys = {
            proof_key(self.KERNEL, launch)
            for launch in (
                self.LAUNCH,
                replace(self.LAUNCH, kind="racecheck"),
                replace(self.LAUNCH, probe="idx"),
                replace(self.LAUNCH, lengths=(1, 5, 10)),
            )
        }
        monkeypatch.setattr(proofs, "_source", lambda kernel: "another source")
        keys.add(proof_key(self.KERNEL, self.LAUNCH))
        monkeypatch.setattr(proofs, "judges", lambda: {"versions": {"tirx-harness": "0"}})
        keys.add(proof_key(self.KERNEL, self.LAUNCH))
        assert len(keys) == 6

    def test_the_judges_are_releases_and_the_references_code(self):
        found = proofs.judges()
        assert set(found["versions"]) <= {"apache-tvm", "tirx-harness"}
        assert len(found["reference"]) == 32

    @pytest.mark.slow
    def test_a_name_does_not_count_and_a_schedule_does(self):
        assert self.KERNEL.source() == replace(self.KERNEL, name="other").source()
        assert self.KERNEL.source() != replace(self.KERNEL, schedule=Schedule(kv_stages=2)).source()

    def test_no_record_no_find(self, tmp_path, monkeypatch):
        monkeypatch.setattr(proofs, "_source", lambda kernel: "source")
        assert find(Records(tmp_path), self.KERNEL, self.LAUNCH) is None


class TestFates:
    """Records of mutants, over outcomes that stand for those of a checker."""

    WHY = staticmethod(lambda family, label, role: "It is slower, not wrong." if family == "swap" else None)

    @pytest.fixture
    def judged(self, tmp_path, monkeypatch):
        """What a run judges: two mutants of a base, the second of which is no fault."""
        monkeypatch.setattr(side, "is_drawn", lambda unit, seed: False)

        def run(asked, caught="structural"):
            held = side.Fates(asked, "sm_100a", self.WHY, Records(tmp_path))
            judged = []

            def outcomes():
                for name, family, by in (("a", "drop wait", caught), ("b", "swap", None)):
                    mutant = SimpleNamespace(id=name)
                    known = held.known("base", kernels.sum_kernel(), mutant)
                    if known is None:
                        judged.append(name)
                        why = None if by else self.WHY(family, "", "")
                        known = Outcome(f"base/{name}", family, "l", "mma", "e", by, why, 0.1, "text")
                    yield known

            found = list(held.judged(outcomes()))
            made = [data for _, data in asked.node.user_properties if data["how"] != side.RECORDED]
            side.keep(Records(tmp_path), made)
            return judged, found

        return run

    def test_what_has_a_record_is_not_judged(self, judged):
        assert judged(request())[0] == ["a", "b"]
        names, found = judged(request())
        assert names == []
        assert [(one.id, one.caught_by, one.equivalent) for one in found] == [
            ("base/a", "structural", None),
            ("base/b", None, "It is slower, not wrong."),
        ]

    def test_another_checker_judges_anew(self, judged, monkeypatch):
        judged(request())
        monkeypatch.setattr(fates, "code_hash", lambda *paths: "another")
        assert judged(request())[0] == ["a", "b"]

    def test_a_record_that_is_contradicted_is_found(self, judged):
        judged(request())
        with pytest.raises(AssertionError, match=r"mutants/sm_100a/base: a: the record is contradicted: verdict not"):
            judged(request(prove_all=True), caught=None)
