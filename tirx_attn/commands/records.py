"""`tirx-attn records`: what was proved, what a key stands for, and which records no longer hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirx_attn.commands import output
from tirx_attn.commands.arguments import ArgumentError, JsonOption
from tirx_attn.commands.wrap import command

if TYPE_CHECKING:
    from tirx_attn.verify.records import RecordFile, Records

FOLDER = "proofs"
SHORTEST = 6
"""Digits of a key that --key needs at least."""

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="FOLDER", help="Where the records are; ./proofs, or that of the checkout."),
]
SubjectOption = Annotated[
    list[str] | None,
    typer.Option("--subject", metavar="NAME", help="Only records whose file's name holds this text. Repeatable."),
]
KeyOption = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Explain the record with this key.")]
StaleOption = Annotated[bool, typer.Option("--stale", help="Generate each kernel again and say what no longer holds.")]


@command
def records(
    folder: FolderOption = None,
    subject: SubjectOption = None,
    key: KeyOption = None,
    stale: StaleOption = False,
    as_json: JsonOption = False,
) -> bool:
    """List records of proofs, explain one, or say which are stale.

    A record is a proof by the simulator, the fate of a mutant, or a run on a GPU, kept in the repository's proofs/.
    `make prove` makes all of those by the simulator anew. Fails where --stale finds one that no longer holds.

    Example: tirx-attn records --subject sm_100a --stale
    """
    if key is not None and len(key) < SHORTEST:
        raise ArgumentError(f"--key {key}: must have at least {SHORTEST} digits")
    kept = _records(folder)
    files = _files(kept, subject or [])
    if key is not None:
        return _explain(files, key, as_json)
    rows = [_row(name, file) for name, file in files.items()]
    if stale:
        reporter = output.Reporter(total=len(rows))
        for row, file in zip(rows, files.values(), strict=True):
            with reporter.step(f"{row['subject']}: generated again"):
                row |= _state(file)
    fine = not any(row.get("stale") for row in rows)
    if as_json:
        output.print_json({"command": "records", "folder": str(kept.folder), "subjects": rows, "verdict": _word(fine)})
    else:
        _print(rows, stale)
    return fine


def _word(fine: bool) -> str:
    return "passed" if fine else "failed"


def _records(folder: Path | None) -> Records:
    from tirx_attn.verify.records import Records

    if folder is None:
        import tirx_attn

        places = [Path(FOLDER), Path(tirx_attn.__file__).parents[1] / FOLDER]
        folder = next((place for place in places if place.is_dir()), None)
        if folder is None:
            raise ArgumentError(f"--folder: must be given, since neither ./{FOLDER} nor a checkout's {FOLDER}/ is here")
    if not folder.is_dir():
        raise ArgumentError(f"--folder {folder}: must be a folder of records")
    return Records(folder)


def _files(kept: Records, words: list[str]) -> dict[str, RecordFile]:
    names = [name for name in kept.names() if not words or any(word in name for word in words)]
    if not names:
        asked = f"--subject {words[0]}" if words else f"--folder {kept.folder}"
        raise ArgumentError(f"{asked}: must name records; there are {', '.join(kept.names()) or 'none'}")
    try:
        return {name: file for name in names if (file := kept.file(name)) is not None}
    except ValueError as error:
        raise ArgumentError(f"--folder {kept.folder}: {error}") from None


def _row(name: str, file: RecordFile) -> dict[str, Any]:
    found = file.records.values()
    return {
        "subject": name,
        "records": len(file.records),
        "clean": sum(record.clean for record in found),
        "verdicts": sorted({record.verdict for record in found}),
        "seconds": round(sum(record.figures.get("seconds", 0.0) for record in found), 1),
        "gpus": sorted({record.figures["gpu"] for record in found if "gpu" in record.figures}),
    }


def _state(file: RecordFile) -> dict[str, Any]:
    from tirx_attn.verify.stale import state

    found = state(file)
    why = [*found.reasons, *(f"{name}: the input is another one" for name in found.inputs)]
    return {"stale": found.is_stale, "why": why or ([found.unknown] if found.unknown else [])}


def _explain(files: dict[str, RecordFile], key: str, as_json: bool) -> bool:
    found = [
        (name, file.subject, record)
        for name, file in files.items()
        for record in file.records.values()
        if record.key.startswith(key)
    ]
    if len(found) != 1:
        raise ArgumentError(f"--key {key}: must belong to one record, {len(found)} have it")
    ((name, about, record),) = found
    data = {"name": record.name, "key": record.key, "verdict": record.verdict, **record.figures}
    if as_json:
        output.print_json({"command": "records", "subject": name, "about": about, "record": data})
        return True
    console = output.stdout()
    made = output.table(f"{name}: {record.name}", "", "")
    for title, values in (("", data), ("of: ", about)):
        for field, value in values.items():
            made.add_row(f"{title}{field}", str(value))
    console.print(made)
    return True


def _print(rows: list[dict[str, Any]], stale: bool) -> None:
    console = output.stdout()
    made = output.table("Records of proofs", "subject", "records", "clean", "seconds", "verdicts", "GPU")
    for row in rows:
        counts = (str(row[name]) for name in ("records", "clean", "seconds"))
        made.add_row(row["subject"], *counts, ", ".join(row["verdicts"]), ", ".join(row["gpus"]))
    console.print(made)
    for row in rows if stale else ():
        for why in row["why"]:
            word = "stale" if row["stale"] else "not said"
            console.print(f"{word}: {row['subject']}: {why}", markup=False, soft_wrap=True)
    told = f"{sum(row['records'] for row in rows)} records of {len(rows)} subjects"
    if stale:
        told += f", {sum(row['stale'] for row in rows)} subjects with stale ones"
    console.print(told)
