"""Steady-state time of the tuned sm_90a kernel and of one with changed knobs, by turns in one process.

    python -m benchmarks.versus --export -o variants --schedule ping_pong=false           # where TVM is; no GPU needed
    python -m benchmarks.versus --measure variants --schedule ping_pong=false -o FILE     # where a Hopper GPU is

Rows are the shapes of `python -m benchmarks.hopper`, or those of its groups that --group names.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.inputs import Problem
from benchmarks.kernels import ARCH, load, open_config
from benchmarks.measure import Clock, Implementation, calls_for, rotation, time_calls
from benchmarks.shapes import GROUPS, Shape, all_shapes, mask_name, select
from tirx_attn.commands.arguments import parse_changes
from tirx_attn.config import AttentionConfig
from tirx_attn.hopper.plan import make_hopper_plan
from tirx_attn.hopper.schedule import HopperSchedule
from tirx_attn.runtime.files import write_atomic

ROUNDS = 6
SECONDS = 0.3
"""Time of back-to-back calls of one kernel in one round."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--export", action="store_true", help="write the libraries into the folder -o")
    what.add_argument("--measure", type=Path, metavar="FOLDER", help="measure a folder's libraries into the file -o")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", required=True)
    parser.add_argument("--schedule", action="append", required=True, metavar="KEY=VALUE", help="a changed knob")
    parser.add_argument("--group", action="append", choices=sorted(GROUPS), help="shapes; repeatable")
    options = parser.parse_args(argv)
    shapes = select(all_shapes(), options.group or ())
    try:
        changes = {shape.name: schedules(shape.config, options.schedule) for shape in shapes}
    except ValueError as error:
        parser.error(str(error))
    # What a shape has anyway is not compared with itself.
    shapes = [shape for shape in shapes if len(set(changes[shape.name])) == 2]
    if not shapes:
        parser.error(f"--schedule {' '.join(options.schedule)}: the tuned kernels of all shapes have that")
    if options.measure:
        missing = {
            str(path)
            for shape in shapes
            for path in files(options.measure, shape.config, options.schedule)
            if not path.exists()
        }
        if missing:
            parser.error(f"--measure: {min(missing)} is missing ({len(missing)} in all); --export makes them")
    if options.export:
        export_all(shapes, options.schedule, options.output)
    else:
        measure(shapes, options.schedule, options.measure, options.output)
    return 0


def schedules(config: AttentionConfig, changes: Sequence[str]) -> tuple[HopperSchedule, HopperSchedule]:
    """The tuned schedule of a problem, and the changed one.

    Raises:
        ValueError: a change is none, or the kernel cannot be made so.
    """
    tuned = make_hopper_plan(open_config(config)).schedule
    changed = replace(tuned, **parse_changes(changes, HopperSchedule))
    return tuned, make_hopper_plan(open_config(config), changed).schedule


def files(folder: Path, config: AttentionConfig, changes: Sequence[str]) -> tuple[Path, Path]:
    """Files of the tuned and of the changed kernel of a problem; one serves all lengths."""
    knobs = "_".join(f"{name}{value}" for name, value in sorted(parse_changes(changes, HopperSchedule).items()))
    stem = f"{config.dtype}_{mask_name(config)}_h{config.Hq}x{config.Hkv}_d{config.D}"
    return folder / f"{stem}_tuned.so", folder / f"{stem}_{knobs}.so"


def export_all(shapes: Sequence[Shape], changes: Sequence[str], folder: Path) -> None:
    """Write the libraries of all shapes; one that is there is kept."""
    from tirx_attn.runtime.export import export

    folder.mkdir(parents=True, exist_ok=True)
    for shape in shapes:
        made = zip(files(folder, shape.config, changes), schedules(shape.config, changes), strict=True)
        for path, schedule in made:
            if not path.exists():
                export(open_config(shape.config), path, (ARCH,), schedule=schedule)
                print(path, flush=True)


def measure(shapes: Sequence[Shape], changes: Sequence[str], folder: Path, output: Path) -> None:
    """Milliseconds of both kernels for each shape into a JSON file, which is written after each of them."""
    from benchmarks.gpu import CudaClock

    found: dict[str, Any] = {}
    for shape in shapes:
        problem = Problem.random(shape.config)
        paths = files(folder, shape.config, changes)
        kernels = {name: ready(problem, path) for name, path in zip(("tuned", "changed"), paths, strict=True)}
        times = by_turns(kernels, CudaClock())
        percent = 100 * (median(times["changed"]) / median(times["tuned"]) - 1)
        found[shape.name] = {**times, "percent": percent}
        write_atomic(output, json.dumps(found, indent=1).encode())
        print(f"{shape.name}: {median(times['tuned']):.4f} ms, {' '.join(changes)} {percent:+.1f} %", flush=True)


def ready(problem: Problem, path: Path) -> Implementation:
    """The kernel of a file, ready to run a problem."""
    import torch

    kernel, out = load(path), torch.empty_like(problem.q)
    return Implementation(lambda: kernel(problem.q, problem.k, problem.v, out), lambda: out)


def by_turns(kernels: dict[str, Implementation], clock: Clock) -> dict[str, list[float]]:
    """Milliseconds a call of each kernel in each round; every second round runs backwards."""
    for kernel in kernels.values():
        first = time_calls(kernel, clock, 3)
    calls = calls_for(first, SECONDS)
    times: dict[str, list[float]] = {name: [] for name in kernels}
    for turn in range(ROUNDS):
        for name in rotation(list(kernels), turn):
            times[name].append(time_calls(kernels[name], clock, calls))
    return times


if __name__ == "__main__":
    raise SystemExit(main())
