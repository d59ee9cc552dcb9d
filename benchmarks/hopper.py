"""Compares our sm_90a attention kernel with its peers on one H200, in one process.

Each group of shapes is one run of a few minutes; runs into the same folder add up with --resume.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import document as results
from benchmarks import report
from benchmarks.kernels import export_all, needed
from benchmarks.measure import Settings
from benchmarks.peers import LABELS, OURS, PEERS, make_peers
from benchmarks.session import DeviceLost, run
from benchmarks.shapes import GROUPS, Shape, all_shapes, select
from tirx_attn.runtime.files import write_atomic


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns 0 when every shape was measured, 1 when some are left, 2 for a wrong argument."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        shapes = select(all_shapes(), options.group, options.shapes)
        if options.list:
            print(listing(shapes))
            return 0
        if options.output is None:
            parser.error("-o FOLDER: needed to measure, to merge and to export")
        options.output.mkdir(parents=True, exist_ok=True)
        if options.export:
            for path in export_all(shapes, options.output, options.schedule):
                print(path, flush=True)
            return 0
        if options.merge:
            write_report(results.merge([results.read(path) for path in options.merge]), options.output)
            return 0
        settings = Settings(options.seconds, options.warmup, options.passes, options.idle, options.cool_samples)
        document = opened(options.output, options.resume, options.commit)
    except (ValueError, OSError) as error:
        print(f"hopper: {error}", file=sys.stderr)
        return 2
    return measure(document, shapes, settings, options, argv)


def measure(
    document: results.Document, shapes: Sequence[Shape], settings: Settings, options: Any, argv: Sequence[str] | None
) -> int:
    """Measure `shapes` into the document and the output folder; an interrupt keeps what there is."""
    # Before JAX is imported: it would take most of the memory at once.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from benchmarks.gpu import CudaClock, Sampler, torch_uuid, versions

    before = signal.signal(signal.SIGTERM, _interrupt)
    peers = make_peers(options.peers, options.libraries)
    complete = False
    with Sampler(torch_uuid()) as sampler:
        document["runs"].append(
            {
                "gpu": sampler.facts(),
                "versions": versions(),
                "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "commit": options.commit,
                "command": ["python", "-m", "benchmarks.hopper", *(sys.argv[1:] if argv is None else argv)],
                "settings": vars(settings),
            }
        )
        try:
            complete = run(
                shapes,
                peers,
                document,
                CudaClock(),
                sampler,
                settings,
                save=lambda: results.write(document, options.output),
                say=lambda line: print(line, flush=True),
                budget=options.budget,
            )
        except (KeyboardInterrupt, DeviceLost) as error:
            print(f"hopper: stopped, {str(error) or 'interrupted'}; --resume goes on from here", file=sys.stderr)
        finally:
            signal.signal(signal.SIGTERM, before)
            write_report(document, options.output)
    print(report.text(document))
    return 0 if complete else 1


def opened(folder: Path, resume: bool, commit: str) -> results.Document:
    """The document to add to: the one in `folder`, or a new one.

    Raises:
        ValueError: there is one but `resume` is false, or its runs are of another commit.
    """
    path = folder / results.FILE
    if not path.exists():
        return results.new()
    if not resume:
        raise ValueError(f"{folder}: has results already; take --resume or another folder")
    document = results.read(path)
    others = sorted({one["commit"] for one in document["runs"]} - {commit})
    if others:
        raise ValueError(f"--commit {commit}: the results in {folder} are of commit {', '.join(others)}")
    return document


def write_report(document: results.Document, folder: Path) -> None:
    """Write results.json, table.txt, table.md and, where matplotlib is installed, a picture per group."""
    results.write(document, folder)
    write_atomic(folder / "table.txt", report.text(document))
    write_atomic(folder / "table.md", report.markdown(document))
    try:
        from benchmarks.plot import write_plots

        write_plots(document, folder)
    except ImportError as error:
        print(f"hopper: no pictures, {error}", file=sys.stderr)


def listing(shapes: Sequence[Shape]) -> str:
    """The shapes with their GFLOP, and the kernel libraries that they need."""
    lines = [f"{shape.group:14} {shape.name:36} {shape.flops / 1e9:10.1f} GFLOP" for shape in shapes]
    libraries = [f"{name}  {config}" for name, config in needed(shapes).items()]
    return "\n".join([*lines, "", *libraries])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hopper", description=__doc__)
    add = parser.add_argument
    usual = Settings()
    add("-o", "--output", type=Path, metavar="FOLDER", help="where results.json, the tables and the pictures go")
    add("--group", action="append", default=[], choices=GROUPS, help="group of shapes; can be repeated (all)")
    add("--shapes", type=_names, default=[], metavar="PATTERN,...", help="names of shapes, with * and ?")
    add("--peers", type=_peers, default=[OURS, *PEERS], metavar="NAME,...", help=f"of {', '.join(LABELS)}")
    add("--libraries", type=Path, default=Path(), metavar="FOLDER", help="our kernels as shared libraries")
    add("--commit", default="unknown", help="commit that our kernels were generated from; it is recorded")
    add("--export", action="store_true", help="write our kernels as shared libraries into -o; needs no GPU")
    add("--schedule", action="append", default=[], metavar="KEY=VALUE", help="with --export: a knob; can be repeated")
    add("--resume", action="store_true", help="add to the results in the folder")
    add("--merge", type=Path, nargs="+", metavar="FILE", help="join results files into -o; needs no GPU")
    add("--list", action="store_true", help="print the shapes and the libraries they need")
    add("--seconds", type=float, default=usual.seconds, help="steady state per implementation and pass (%(default)s)")
    add("--warmup", type=float, default=usual.warmup, help="seconds of calls before it (%(default)s)")
    add("--passes", type=int, default=usual.passes, help="passes of steady state (%(default)s)")
    add("--idle", type=float, default=usual.idle, help="seconds of rest before a sample from cool (%(default)s)")
    add("--cool-samples", type=int, default=usual.cool_samples, help="samples from cool; 0 for none (%(default)s)")
    add("--budget", type=float, metavar="SECONDS", help="start no shape after this time")
    return parser


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _peers(text: str) -> list[str]:
    names = _names(text)
    unknown = [name for name in names if name not in LABELS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed are {', '.join(LABELS)}")
    return [name for name in LABELS if name in names]


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


if __name__ == "__main__":
    sys.exit(main())
