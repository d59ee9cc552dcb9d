"""The numbers of every study, one dict for each row of its table. Needs neither matplotlib nor torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.shapes import MHA_LENGTHS, TOKENS, mask_name
from benchmarks.studies.measured import Record
from tirx_attn.analysis.budget import enough_emulation, exp_to_mma, tile_budget
from tirx_attn.analysis.emulation import emulation
from tirx_attn.analysis.exp2 import polynomial_error
from tirx_attn.analysis.margin import margin
from tirx_attn.analysis.traffic import tiled_words_bound, traffic
from tirx_attn.analysis.waves import Waves, balance, list_schedule, static_stride
from tirx_attn.config import DTYPES, TILE_KEYS, TILE_ROWS, AttentionConfig
from tirx_attn.family import AnyPlan, plan_for
from tirx_attn.schedule.parts import ELEMENT_BYTES
from tirx_attn.schedule.tiles import TILES_PER_TASK
from tirx_attn.targets import B200, B300, H200, Target

HEADS = 16
LENGTHS = (1024, 4096, 16384, 65536)
WAVE_LENGTHS = (1024, 2048, 2560, 4096, 8192, 16384)
HEAD_DIMS = (32, 64, 96, 128, 192, 256)
TILES = (
    (B200, 1, 128),
    (B200, 2, 128),
    (B200, 1, 64),
    (B300, 1, 128),
    (B300, 1, 64),
    (H200, 1, 128),
    (H200, 1, 64),
)
"""GPU, query tiles of 128 rows, head size."""

EXAMPLE = [1, 2, 3, 4] * 2
EXAMPLE_SMS = 3
MARGIN_THRESHOLDS = (0, 4, 8, 12, 16)
MARGIN_KEYS = 1 << 20
DEGREES = (1, 2, 3, 4, 5, 6)

Row = dict[str, Any]


def plan_of(target: Target, config: AttentionConfig) -> AnyPlan:
    """The tuned plan of a problem on a GPU."""
    return plan_for(config, None, target.arch)


def square(s: int, causal: bool, heads: int = HEADS, batches: int | None = None) -> AttentionConfig:
    """The benchmark's problem of length `s`: 16 heads of 128, 16k tokens in all unless said."""
    return AttentionConfig(batches or TOKENS // s, s, s, heads, heads, 128, causal)


def traffic_rows(_: Record) -> list[Row]:
    """One head of N queries and keys, head size 128, fp16, in MB."""
    rows = []
    for n in LENGTHS:
        moved = traffic(plan_of(B200, square(n, False, 1, 1)))
        words = TILES_PER_TASK * TILE_ROWS * 128
        least = tiled_words_bound(n, 128, words) * ELEMENT_BYTES
        sizes = (moved.standard_bytes, moved.tiled_bytes, least, moved.single_bytes)
        named = zip(("standard", "tiled", "bound", "single"), (size / 1e6 for size in sizes), strict=True)
        rows.append({"n": n, **dict(named), **{f"{way}_flop": each for way, each in moved.intensities.items()}})
    return rows


def clock_rows(_: Record) -> list[Row]:
    """Clocks of a key block by unit, all exponentials on the MUFU."""
    rows = []
    for target, tiles, head_dim in TILES:
        made = tile_budget(target, tiles * TILE_ROWS, TILE_KEYS, head_dim)
        tile = f"{made.rows} x {made.keys}"
        rows.append({"gpu": target.name, "tile": tile, "d": head_dim, **made.units, "binds": ", ".join(made.binds)})
    return rows


def ratio_rows(_: Record) -> list[Row]:
    """exp : MMA by head size, and the share of emulated exponentials that is enough."""
    return [
        {
            "d": d,
            **{target.name: exp_to_mma(target, d) for target in (B200, B300, H200)},
            **{f"{target.name}_emulated": 100 * enough_emulation(target, d) for target in (B200, B300)},
        }
        for d in HEAD_DIMS
    ]


def wave_rows(_: Record) -> list[Row]:
    """One sequence of 16 heads, full, on B200 and H200."""
    rows = []
    for s in WAVE_LENGTHS:
        row: Row = {"s": s}
        for target in (B200, H200):
            tasks = plan_of(target, square(s, False, batches=1)).tasks
            assert tasks is not None
            made = Waves(tasks, target.sms)
            row |= {f"{target.name}_tasks": tasks, f"{target.name}_waves": made.waves}
            row[f"{target.name}_busy"] = 100 * made.efficiency
        rows.append(row)
    return rows


def order_rows(_: Record) -> list[Row]:
    """The course's example, and the benchmark's causal shapes on B200 and H200, in key blocks."""
    work = sorted(EXAMPLE, reverse=True)
    longest = list_schedule(work, EXAMPLE_SMS)
    rows: list[Row] = [
        {
            "gpu": f"{EXAMPLE_SMS} SMs",
            "shape": "1, 2, 3, 4 twice",
            "s": None,
            "least": sum(work) / EXAMPLE_SMS,
            "arrival": list_schedule(EXAMPLE, EXAMPLE_SMS),
            "strided": static_stride(work, EXAMPLE_SMS),
            "longest_first": longest,
            "launched": None,
            "busy": None,
        }
    ]
    for target in (B200, H200):
        for s in MHA_LENGTHS:
            made = balance(plan_of(target, square(s, True)))
            shape = {"gpu": target.name, "shape": f"S = {s:,}, B = {TOKENS // s}", "s": s}
            rows.append({**shape, **made.to_dict(), "busy": 100 * made.efficiency})
    return rows


def polynomial_rows(_: Record) -> list[Row]:
    """Errors by degree; shares in per cent."""
    rows = []
    for degree in DEGREES:
        made = polynomial_error(degree)
        same = {f"{name}_same": 100 * getattr(made, f"{name}_same") for name in ("fp16", "bf16")}
        rows.append({**made.to_dict(), **same})
    return rows


def margin_rows(_: Record) -> list[Row]:
    """Room by threshold and data type, for a million keys."""
    rows = []
    for dtype, short in DTYPES.items():
        for threshold in MARGIN_THRESHOLDS:
            made = margin(threshold, dtype, MARGIN_KEYS)
            rows.append({**made.to_dict(), "dtype": short, "fits": "yes" if made.fits else "no"})
    return rows


def gaussian_rows(record: Record) -> list[Row]:
    """Skipped rescales by the logits' standard deviation, in per cent."""
    return [{"deviation": row["logit_deviation"], **_skipped(row["counts"])} for row in record["gaussian"]["rows"]]


def model_rows(record: Record) -> list[Row]:
    """Skipped rescales by layer and head of the trained model, in per cent."""
    model = record["model"]
    rows = [
        {"head": f"{row['layer']}, {row['head']}", "deviation": row["logit_deviation"], **_skipped(row["counts"])}
        for row in model["rows"]
    ]
    return [*rows, {"head": "all", "deviation": None, **_skipped(model["all"])}]


def emulation_rows(_: Record) -> list[Row]:
    """Share of emulated exponentials of the benchmark's shapes on B200, in per cent."""
    rows = []
    for s in MHA_LENGTHS:
        made = {mask_name(c): emulation(plan_of(B200, c)) for c in (square(s, False), square(s, True))}
        steady = {f"{name}_steady": 100 * each.steady_blocks / each.blocks for name, each in made.items()}
        rows.append({"s": s, **steady, **{name: 100 * each.share for name, each in made.items()}})
    return rows


def _skipped(counts: Iterable[Record]) -> Row:
    made: Row = {}
    for one in counts:
        made |= {f"{who}_{one['threshold']}": 100 * one[f"{who}_skipped"] for who in ("rows", "warps")}
    return made
