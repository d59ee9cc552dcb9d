"""Records of proofs: what was proved, kept in text files that a repository can hold.

A file is a subject, such as a kernel: its first line says what was proved, every further line is one proof, sorted by
name. A record counts for as long as its key is that of the proof one would make today.
"""

from __future__ import annotations

import hashlib
import io
import json
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tirx_attn.runtime.files import write_atomic

SUFFIX = ".jsonl"
SHARES = 7
"""Parts into which proofs are dealt, one of which a tree draws: 7 (1 + 1/2 + ... + 1/7), about 18, trees draw all."""

TOLERANCE = 1e-6
"""By how much an error may differ from its record, relatively: the simulator computes alike on every machine."""


@dataclass(frozen=True)
class Record:
    """One proof.

    Attributes:
        name: what was run, unique in its file.
        key: `key_of` everything that the verdict depends on.
        verdict: "clean", or what was found.
        figures: JSON-able numbers and texts beside the verdict, such as error, bound, seconds, GPU.
    """

    name: str
    key: str
    verdict: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return self.verdict == "clean"

    def contradicts(self, other: Record) -> str:
        """Where the results of two proofs of one key differ, in words; "" where they agree. Times may differ."""
        if self.verdict != other.verdict:
            return f"verdict {self.verdict}, recorded {other.verdict}"
        for name in ("error", "bound"):
            mine, theirs = self.figures.get(name), other.figures.get(name)
            if (mine is None) != (theirs is None):
                return f"{name} {mine}, recorded {theirs}"
            if mine is not None and theirs is not None and abs(mine - theirs) > TOLERANCE * max(abs(mine), abs(theirs)):
                return f"{name} {mine:.6e}, recorded {theirs:.6e}"
        return ""


@dataclass
class RecordFile:
    """The records of one subject.

    Attributes:
        subject: JSON-able description of what was proved, enough to prove it again.
        records: by name.
    """

    subject: dict[str, Any]
    records: dict[str, Record] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> RecordFile:
        """The file's content.

        Raises:
            ValueError: a line is no record.
            OSError: it cannot be read.
        """
        made: RecordFile | None = None
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                data = json.loads(line)
                if made is None:
                    made = cls(dict(data))
                else:
                    record = Record(data.pop("name"), data.pop("key"), data.pop("verdict"), data)
                    made.records[record.name] = record
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"{path.name}:{number}: must be one record as `make prove` writes it ({error!r})"
                ) from None
        if made is None:
            raise ValueError(f"{path.name}: must hold a subject in its first line")
        return made

    def text(self) -> str:
        """What is written: one line for the subject, one for each record."""
        lines = [json.dumps(self.subject)]
        for _, record in sorted(self.records.items()):
            head = {"name": record.name, "key": record.key, "verdict": record.verdict}
            lines.append(json.dumps({**head, **record.figures}))
        return "\n".join(lines) + "\n"


class Records:
    """A folder of record files, which may lie in folders of their own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._files: dict[str, RecordFile] = {}

    def names(self) -> list[str]:
        """Names of all subjects: paths below the folder, without their suffix."""
        return sorted(str(path.relative_to(self.folder).with_suffix("")) for path in self.folder.glob(f"**/*{SUFFIX}"))

    def path(self, subject: str) -> Path:
        """The file of a subject."""
        return self.folder / f"{subject}{SUFFIX}"

    def file(self, subject: str) -> RecordFile | None:
        """What a subject's file holds; None where there is none. Errors as `RecordFile.read`."""
        if subject not in self._files and self.path(subject).exists():
            self._files[subject] = RecordFile.read(self.path(subject))
        return self._files.get(subject)

    def find(self, subject: str, name: str, key: str) -> Record | None:
        """The record of a proof, where there is one with this key."""
        file = self.file(subject)
        record = file.records.get(name) if file else None
        return record if record is not None and record.key == key else None

    def put(self, subject: str, about: Mapping[str, Any], record: Record) -> None:
        """Keep a record in place of one of the same name; `write` makes it last."""
        file = self.file(subject)
        if file is None:
            file = self._files[subject] = RecordFile({})
        file.subject = dict(about)
        file.records[record.name] = record

    def keep_only(self, subject: str, names: set[str]) -> None:
        """Drop the records of a subject that are not among these names."""
        file = self.file(subject)
        if file is not None:
            file.records = {name: record for name, record in file.records.items() if name in names}

    def write(self) -> list[Path]:
        """Write the files that changed, each at once, and say which."""
        written = []
        for subject, file in self._files.items():
            path, text = self.path(subject), file.text()
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                written.append(write_atomic(path, text))
        return written


def key_of(**parts: Any) -> str:
    """Hash of named JSON-able parts: 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def is_drawn(unit: str, seed: str) -> bool:
    """Whether the tree of that seed proves a unit again. What shares a build is one unit."""
    return _number(unit) % SHARES == _number(seed) % SHARES


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def tree_hash(*roots: Path) -> str:
    """Hash of the Python files below some folders, by path and content."""
    made = hashlib.sha256()
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            made.update(f"{root.name}/{path.relative_to(root).as_posix()}\0".encode())
            made.update(hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()[:32]


def code_hash(*paths: Path) -> str:
    """Hash of what Python files do: their tokens without comments, docstrings and empty lines.

    A folder stands for the files in and below it.
    """
    made = hashlib.sha256()
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    for file in files:
        for token in _tokens(file.read_text(encoding="utf-8")):
            made.update(token.encode() + b"\0")
    return made.hexdigest()[:32]


_LAYOUT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


def _tokens(text: str) -> Iterator[str]:
    before = tokenize.ENCODING
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL):
            continue
        starts_statement = before in _LAYOUT
        before = token.type
        if token.type == tokenize.STRING and starts_statement:
            continue  # a docstring
        yield tokenize.tok_name[token.type] if token.type in _LAYOUT else token.string
