"""How a test proves: by a record, or anew where there is none or the tree draws it. Also pytest's side of records.

    --prove sample|all   what is proved beside what has no record: a seventh, drawn by the hash of the tree, or all
    --keep-records       write what was proved into proofs/

A test of the simulator that is no plain launch has a record too: `recorded` marks it.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.launches import LIMIT
from tirx_attn.runtime.artifact import unseal
from tirx_attn.verify import proofs
from tirx_attn.verify.fates import Base
from tirx_attn.verify.mutation import Outcome
from tirx_attn.verify.proofs import Launch, Subject, inputs_hash
from tirx_attn.verify.records import Record, Records, code_hash, is_drawn, key_of, tree_hash

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "proofs"
TESTS, GPU_TESTS = "tests", "sm_90a/tests"
"""Record files of the tests that are no plain launches."""
PROPERTY = "proof"
RECORDED, DRAWN, NEW = "recorded", "drawn", "new"
NO_GPU_RECORD = "no GPU record"


@cache
def records() -> Records:
    """What the repository holds."""
    return Records(FOLDER)


@cache
def seed() -> str:
    """Hash of what decides over proofs and tests."""
    return tree_hash(ROOT / "tirx_attn", ROOT / "tests")


def demand(request: pytest.FixtureRequest, subject: Subject, launch: Launch, kept: Records | None = None) -> None:
    """A clean record of a launch; a proof where there is none, or where it is drawn, which must agree with it."""
    kept = records() if kept is None else kept
    record = proofs.find(kept, subject, launch)
    if record is not None and not wanted(request.config, f"{subject.file} {launch.kind}"):
        _note(request, RECORDED, subject.file, {}, record)
        assert record.clean, record
        return
    made = proofs.prove(subject, launch, time_limit=LIMIT)
    _note(request, NEW if record is None else DRAWN, subject.file, subject.about(), made)
    assert made.clean, made
    if record is not None:
        why = made.contradicts(record)
        assert not why, f"{subject.file}: {launch.name}: the record is contradicted: {why}"


def wanted(config: pytest.Config, unit: str) -> bool:
    """Whether a unit is proved although it has a record."""
    return config.getoption("--prove") == "all" or is_drawn(unit, seed())


def _note(request: pytest.FixtureRequest, how: str, file: str, about: dict[str, Any], record: Record) -> None:
    data = {"how": how, "file": file, "about": about, "name": record.name, "key": record.key}
    data |= {"verdict": record.verdict, "figures": dict(record.figures)}
    # Plain types: a process of a run hands them to another one, and TVM has strings of its own.
    request.node.user_properties.append((PROPERTY, json.loads(json.dumps(data))))


def note_gpu(request: pytest.FixtureRequest, name: str, launch: Launch, subject: Subject, verdict: Any) -> None:
    """A launch on this machine's GPU that was judged right."""
    from tests.engines import library

    made = library(name).description
    about = {"kernel": name, "arch": made.arch, "config": asdict(made.config), "schedule": asdict(made.schedule)}
    about |= {"source": made.source_sha256, "code": made.cubin_sha256, "reference": proofs.judges()["reference"]}
    inputs = inputs_hash(subject.arrays(launch), subject.answer(launch))
    key = key_of(code=made.cubin_sha256, launch=launch.name, inputs=inputs, reference=about["reference"])
    figures = {"error": verdict.error, "bound": verdict.bound, **gpu_facts()}
    _note(request, NEW, f"{made.arch}/{name}", about, Record(launch.name, key, "clean", figures))


def demand_gpu(request: pytest.FixtureRequest, name: str, source: str, kept: Records | None = None) -> None:
    """Clean records of a kernel that was run on a GPU; where there are none for this source, the run's end says so."""
    file = (records() if kept is None else kept).file(f"sm_90a/{name}")
    if file is None or file.subject["source"] != source:
        data = {"how": NO_GPU_RECORD, "name": name, "file": f"sm_90a/{name}"}
        request.node.user_properties.append((PROPERTY, data))
        return
    assert file.records
    assert all(record.clean and record.figures["gpu"] for record in file.records.values())


class Fates:
    """Fates of mutants: by their record, or judged where there is none or the tree draws it; they must agree."""

    def __init__(
        self,
        request: pytest.FixtureRequest,
        arch: str,
        why: Callable[[str, str, str], str | None],
        kept: Records | None = None,
    ):
        self._request, self._arch, self._why = request, arch, why
        self._kept = records() if kept is None else kept
        self._bases: dict[str, Base] = {}
        self._drawn: dict[str, Record] = {}

    def known(self, base: str, func: Any, mutant: Any) -> Outcome | None:
        """The outcome of a mutant that need not be judged."""
        if base not in self._bases:
            self._bases[base] = Base(base, func, self._arch)
        of = self._bases[base]
        record = self._kept.find(of.file, mutant.id, of.key(mutant.id))
        if record is None:
            return None
        if wanted(self._request.config, f"{of.file} {mutant.id}"):
            self._drawn[f"{base}/{mutant.id}"] = record
            return None
        _note(self._request, RECORDED, of.file, {}, record)
        return of.outcome(record, self._why)

    def judged(self, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """Note those that were judged, and hold them against their records."""
        for outcome in outcomes:
            yield outcome
            of = self._bases[outcome.id.partition("/")[0]]
            if outcome.seconds:  # a record has none
                record, before = of.record(outcome), self._drawn.get(outcome.id)
                _note(self._request, DRAWN if before else NEW, of.file, of.about, record)
                why = record.contradicts(before) if before else ""
                assert not why, f"{of.file}: {record.name}: the record is contradicted: {why}"


@cache
def gpu_facts() -> dict[str, str]:
    """The GPU of this machine, and its driver."""
    import torch

    driver = re.search(r"(\d+\.[\d.]+) ", Path("/proc/driver/nvidia/version").read_text(encoding="utf-8"))
    return {"gpu": torch.cuda.get_device_name(), "driver": driver[1] if driver else "unknown"}


@cache
def gpu_kernels() -> str:
    """Hash of all kernels that the tests on a GPU were given."""
    folder = Path(os.environ["TIRX_ATTN_KERNELS"])
    return key_of(**{path.stem: unseal(path.read_bytes(), path.name).cubin_sha256 for path in folder.glob("*.so")})


# Tests that are no plain launches -------------------------------------------------------------------------------


def key_of_test(item: pytest.Item) -> str:
    """Hash of what a marked test depends on: itself, what its mark names, and the judges."""
    mark = item.get_closest_marker("recorded")
    assert mark is not None
    parts = [one() if callable(one) else code_hash_of(ROOT / one) for one in mark.args]
    return key_of(test=item.nodeid, source=code_hash(item.path), parts=parts, **proofs.judges())


def code_hash_of(path: Path) -> str:
    """Hash of Python code, or of a text as it stands."""
    return code_hash(path) if path.is_dir() or path.suffix == ".py" else key_of(text=path.read_text(encoding="utf-8"))


def source_of(name: str) -> Callable[[], str]:
    """For `recorded`: the device source of a run-time kernel."""

    def source() -> str:
        from tests.run_time import KERNELS

        return KERNELS[name].subject.source()

    return source


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("proofs")
    group.addoption("--prove", choices=("sample", "all"), default="sample", help="what is proved although recorded")
    group.addoption("--keep-records", action="store_true", help="write new records into proofs/")


def pytest_report_header() -> str:
    return f"proofs: those that seed {seed()} draws are made again"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        if not item.get_closest_marker("skip"):
            _note_gpu_test(item)
        return
    mark = item.get_closest_marker("recorded")
    if mark is None:
        return
    key = key_of_test(item)
    record = records().find(TESTS, item.nodeid, key)
    if record is not None and not wanted(item.config, mark.kwargs.get("unit", item.nodeid)):
        item.user_properties.append((PROPERTY, {"how": RECORDED, "file": TESTS, "name": item.nodeid}))
        pytest.skip("has a record, and this tree does not draw it: see docs/proofs.md")
    data = {"how": DRAWN if record else NEW, "file": TESTS, "about": {"tests": "of the simulator"}}
    data |= {"name": item.nodeid, "key": key, "verdict": "clean", "figures": {}}
    item.user_properties.append((PROPERTY, data))


def _note_gpu_test(item: pytest.Item) -> None:
    key = key_of(test=item.nodeid, source=code_hash(item.path), kernels=gpu_kernels())
    about = {"tests": "on a GPU"}
    data = {"how": NEW, "file": GPU_TESTS, "about": about, "name": item.nodeid, "key": key, "verdict": "clean"}
    item.user_properties.append((PROPERTY, data | {"figures": gpu_facts()}))


class Recorder:
    """Collects the proofs of a run, of all its processes; keeps them as they come, and tells them at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.how: Counter[str] = Counter()
        self.seen: dict[str, set[str]] = {}
        self.never_on_a_gpu: list[str] = []
        self.kept = Records(FOLDER) if config.getoption("--keep-records") else None
        self.whole = config.getoption("--prove") == "all"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ended = report.when == "call" or (report.when == "setup" and report.skipped)
        made = []
        for name, data in report.user_properties if ended else ():
            if name == PROPERTY:
                self.how[data["how"]] += 1
                if data["how"] == NO_GPU_RECORD:
                    self.never_on_a_gpu.append(data["name"])
                    continue
                self.seen.setdefault(data["file"], set()).add(data["name"])
                if report.passed and (data["how"] == NEW or (data["how"] == DRAWN and self.whole)):
                    if data["file"] in (TESTS, GPU_TESTS):
                        data["figures"] = {**data["figures"], "seconds": round(report.duration, 1)}
                    made.append(data)
        if made and self.kept is not None:
            keep(self.kept, made)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.how:
            return
        told = f"{self.how[RECORDED]} by their record, {self.how[DRAWN]} again (seed {seed()}), {self.how[NEW]} new"
        terminalreporter.write_line(f"proofs: {told}")
        if self.never_on_a_gpu:
            terminalreporter.write_line(f"proofs: without a GPU record: {', '.join(sorted(self.never_on_a_gpu))}")
        if self.kept is None and self.how[NEW]:
            terminalreporter.write_line("proofs: `make records` keeps the new ones in proofs/")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """After all was proved, what nobody asks for any more goes."""
        if self.kept is not None and self.whole and exitstatus == 0:
            for file, names in self.seen.items():
                self.kept.keep_only(file, names)
            self.kept.write()


def keep(kept: Records, made: list[dict[str, Any]]) -> None:
    """Write proofs of a run."""
    for data in made:
        record = Record(data["name"], data["key"], data["verdict"], data["figures"])
        kept.put(data["file"], data["about"], record)
    kept.write()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config), "tirx-attn-recorder")
