"""results.json: what was measured, shape by shape, and in which run. It is written after every shape."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.shapes import GROUPS, Shape, all_shapes
from tirx_attn.runtime.files import write_atomic

FORMAT = 1
FILE = "results.json"

Document = dict[str, Any]
"""`format`, `runs` (GPU, versions, date, commit, command, settings) and `shapes` (each with its number in `runs`)."""


def new() -> Document:
    """A document without results."""
    return {"format": FORMAT, "runs": [], "shapes": []}


def read(path: Path) -> Document:
    """The document in the file `path`.

    Raises:
        ValueError: it is not such a document.
    """
    document = json.loads(path.read_text())
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"{path.name}: allowed is a results file of format {FORMAT}")
    return document


def write(document: Document, folder: Path) -> Path:
    """Write the document into `folder`; the file is whole at every moment."""
    return write_atomic(folder / FILE, json.dumps(document, indent=1) + "\n")


def record(shape: Shape, run: int, results: dict[str, Any]) -> dict[str, Any]:
    """One entry of `shapes`. `results` has one item per implementation."""
    return {
        "name": shape.name,
        "group": shape.group,
        "config": asdict(shape.config),
        "flops": shape.flops,
        "run": run,
        "results": results,
    }


def is_done(document: Document, shape: Shape, peers: Iterable[str]) -> bool:
    """Whether the document has a result or a failure of each of `peers` for `shape`."""
    return any(one["name"] == shape.name and set(peers) <= one["results"].keys() for one in document["shapes"])


def put(document: Document, entry: dict[str, Any]) -> None:
    """Add `entry`, in place of an earlier one of the same shape, in the order of the shape list."""
    order = {shape.name: index for index, shape in enumerate(all_shapes())}
    kept = [one for one in document["shapes"] if one["name"] != entry["name"]]
    document["shapes"] = sorted([*kept, entry], key=lambda one: order.get(one["name"], len(order)))


def merge(documents: Sequence[Document]) -> Document:
    """One document of several; of a shape that is in two, the later one counts."""
    merged = new()
    for document in documents:
        first = len(merged["runs"])
        merged["runs"] += document["runs"]
        for entry in document["shapes"]:
            put(merged, {**entry, "run": entry["run"] + first})
    return merged


def groups_in(document: Document) -> list[str]:
    """Groups of which the document has shapes, in the order of GROUPS."""
    found = {one["group"] for one in document["shapes"]}
    return [group for group in GROUPS if group in found]


def peers_in(document: Document, order: Iterable[str]) -> list[str]:
    """Names of implementations that the document has results of, in the given order."""
    found = {name for one in document["shapes"] for name in one["results"]}
    return [name for name in order if name in found]
