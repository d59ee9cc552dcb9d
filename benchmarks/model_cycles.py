"""Measures, in clock cycles, the changes to the sm_90a kernel that the model predicted.

    python -m benchmarks.model_cycles --export -o variants            # where TVM is; no GPU needed
    python -m benchmarks.model_cycles --measure variants -o cycles.json     # where an H200 and Nsight Compute are
    python -m benchmarks.model_cycles --table cycles.json             # beside the predictions of docs/model.md

The tuned and the changed kernel take turns in one process under `ncu`, which reads the SMs' cycle counter and leaves
the clocks alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.model_variants import PREDICTED, Shape, words
from tirx_attn.runtime.files import write_atomic

METRIC = "sm__cycles_elapsed.max"
TURNS = 7
"""Launches of each of the two kernels that count, after one of each that does not."""
TIME_LIMIT = 120.0
"""Seconds for one pair."""
PAGE = Path(__file__).parents[1] / "docs" / "model.md"
FACTOR = 1.5
"""The model is right where the sign is, and the size within this factor."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--export", action="store_true", help="write a library of each kernel into the folder -o")
    what.add_argument("--measure", type=Path, metavar="FOLDER", help="measure a folder's libraries into the file -o")
    what.add_argument("--table", type=Path, metavar="FILE", help="print what was measured beside what was predicted")
    what.add_argument("--launch", nargs=2, metavar=("FOLDER", "ROW"), help="only launch the two kernels of a row")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH")
    parser.add_argument("--ncu", default="ncu", help="Nsight Compute (%(default)s)")
    options = parser.parse_args(argv)
    if options.output is None and (options.export or options.measure):
        parser.error("-o PATH: needed to export and to measure")
    if options.measure and not options.measure.is_dir():
        parser.error(f"--measure {options.measure}: allowed is a folder that --export wrote")
    if options.measure and shutil.which(options.ncu) is None:
        parser.error(f"--ncu {options.ncu}: there is no such program; it comes with Nsight Compute")
    if options.launch and options.launch[1] not in map(str, range(len(PREDICTED))):
        parser.error(f"--launch row {options.launch[1]}: allowed are 0 to {len(PREDICTED) - 1}")
    if options.export:
        export_all(options.output)
    elif options.measure:
        measure(options.measure, options.output, options.ncu)
    elif options.launch:
        launch(Path(options.launch[0]), int(options.launch[1]))
    else:
        try:
            lines = list(table(json.loads(options.table.read_text()), predictions(PAGE.read_text())))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            parser.error(f"--table {options.table}: allowed is a file that --measure wrote ({error!r})")
        print("\n".join(lines))
    return 0


def title(row: int) -> str:
    """A row's name, as in docs/model.md."""
    shape, changes = PREDICTED[row]
    return f"{shape}: {words(changes)}"


def library(shape: Shape, changes: dict[str, Any]) -> str:
    """File name of a variant; one library serves all lengths."""
    knobs = "_".join(f"{name}{value}" for name, value in sorted(changes.items())) or "tuned"
    heads = "x".join(map(str, shape.heads))
    return f"d{shape.d}_h{heads}_{'causal' if shape.causal else 'full'}_{knobs}.so"


def export_all(folder: Path) -> None:
    """Write the libraries of all rows."""
    from tirx_attn.analysis.timeline.tasks import Tasks
    from tirx_attn.runtime.export import export

    folder.mkdir(parents=True, exist_ok=True)
    for shape, changes in PREDICTED:
        for knobs in ({}, changes):
            path = folder / library(shape, knobs)
            if not path.exists():
                kernel = Tasks(shape.plan(knobs)).open_plan()
                export(kernel.config, path, ("sm_90a",), schedule=kernel.schedule)
                print(path, flush=True)


def launch(folder: Path, row: int) -> None:
    """Launch the tuned and the changed kernel of a row by turns, and nothing else that computes attention."""
    import torch

    from benchmarks.inputs import Problem
    from benchmarks.kernels import load

    shape, changes = PREDICTED[row]
    problem = Problem.random(shape.plan().config)
    kernels = [load(folder / library(shape, knobs)) for knobs in ({}, changes)]
    out = torch.empty_like(problem.q)
    for _ in range(1 + TURNS):
        for kernel in kernels:
            kernel(problem.q, problem.k, problem.v, out)
    torch.cuda.synchronize()


def measure(folder: Path, output: Path, ncu: str) -> None:
    """Cycles of each row into a JSON file, which is written after each of them."""
    found: dict[str, dict[str, Any]] = {}
    for row in range(len(PREDICTED)):
        command = [
            ncu, "--csv", "--page", "raw", "--clock-control", "none", "--cache-control", "none", "--metrics", METRIC,
            "-k", "regex:flash_attention", sys.executable, "-m", "benchmarks.model_cycles", "--launch", str(folder),
            str(row),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False, env=os.environ)
        if done.returncode:
            printed = f"{done.stdout[-800:]}{done.stderr[-800:]}"
            raise RuntimeError(f"{title(row)}: ncu ended with {done.returncode}\n{printed}")
        cycles = list(read_cycles(done.stdout.splitlines()))
        if len(cycles) != 2 * (1 + TURNS):
            raise RuntimeError(f"{title(row)}: ncu saw {len(cycles)} launches, expected {2 * (1 + TURNS)}")
        tuned, changed = cycles[2::2], cycles[3::2]
        found[title(row)] = {
            "tuned": tuned,
            "changed": changed,
            "percent": 100 * (median(changed) / median(tuned) - 1),
        }
        write_atomic(output, json.dumps(found, indent=1).encode())
        print(f"{title(row)}: {found[title(row)]['percent']:+.1f} %", flush=True)


def read_cycles(lines: Iterable[str]) -> Iterator[float]:
    """The counter of each launch in ncu's raw page, whose second line has the units."""
    start = [line for line in lines if line.startswith('"')]
    for record in csv.DictReader(start):
        value = (record.get(METRIC) or "").replace(",", "")
        if re.fullmatch(r"\d+(\.\d+)?", value):
            yield float(value)


def predictions(page: str) -> dict[str, float]:
    """Row -> predicted change in %, as docs/model.md has them on record."""
    start = page.index("| change to the tuned kernel |")
    rows = re.findall(r"^\| (D = .*?) \| ([+-]\d+\.\d) % \|", page[start:], re.M)
    return {name: float(value) for name, value in rows}


def is_right(predicted: float, measured: float) -> bool:
    """Sign right, and size within the factor, of figures as they are printed: with one decimal place."""
    predicted, measured = round(predicted, 1), round(measured, 1)
    small, large = sorted((abs(predicted), abs(measured)))
    return predicted * measured > 0 and large <= FACTOR * small + 1e-9


def table(found: dict[str, dict[str, Any]], predicted: dict[str, float]) -> Iterator[str]:
    """Markdown: predicted and measured."""
    yield "| change to the tuned kernel | cycles, model | cycles, measured afterwards | right |"
    yield "|---|---:|---:|---|"
    for name, row in found.items():
        right = "yes" if is_right(predicted[name], row["percent"]) else "no"
        yield f"| {name} | {predicted[name]:+.1f} % | {row['percent']:+.1f} % | {right} |"


if __name__ == "__main__":
    raise SystemExit(main())
