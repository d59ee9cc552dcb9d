"""Write the numbers and the pictures of docs/studies.md, and the tables into the page itself if it is given.

The measured study trains a small model, for some minutes, and needs torch; it is made with --measure only, and read
from the folder otherwise. The pictures need matplotlib.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.studies.measured import Record, measure
from benchmarks.studies.tables import STUDIES, markdown
from tirx_attn.runtime.files import write_atomic

RECORD = "rescales.json"
NUMBERS = "numbers.json"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the files go")
    parser.add_argument("--measure", action="store_true", help=f"make {RECORD} anew")
    parser.add_argument("--page", type=Path, metavar="FILE", help="Markdown page whose tables are written anew")
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        if options.measure:
            write_json(measure(say), options.output / RECORD)
        record = read_record(options.output)
        write_json(numbers(record), options.output / NUMBERS)
        if options.page:
            write_atomic(options.page, with_tables(options.page.read_text(), record))
        from benchmarks.studies.pictures import write_pictures

        write_pictures(record, options.output)
    except (ImportError, OSError, ValueError) as error:
        say(f"python -m benchmarks.studies: {error}")
        return 1
    return 0


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def read_record(folder: Path) -> Record:
    """The measured study in a folder.

    Raises:
        ValueError: there is none.
    """
    path = folder / RECORD
    if not path.exists():
        raise ValueError(f"{path} is missing: --measure makes it")
    return json.loads(path.read_text())


def write_json(document: Record, path: Path) -> Path:
    """Write a document that ends with a line break."""
    return write_atomic(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def numbers(record: Record) -> Record:
    """The rows of every table, unrounded."""
    return {study.name: study.rows(record) for study in STUDIES}


def with_tables(page: str, record: Record) -> str:
    """The page with every table between `<!-- table NAME -->` and the next empty line written anew.

    Raises:
        ValueError: a study has no place, or two.
    """
    for study in STUDIES:
        page, places = re.subn(
            rf"(<!-- table {study.name} -->\n).*?(?=\n\n|\Z)",
            partial(_replace, markdown(study, record)),
            page,
            flags=re.DOTALL,
        )
        if places != 1:
            raise ValueError(f"table {study.name}: {places} places, allowed is one")
    return page


def _replace(table: str, found: re.Match[str]) -> str:
    return found[1] + table


if __name__ == "__main__":
    sys.exit(main())
