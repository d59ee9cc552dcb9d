"""The roofline of a plan as tables or as JSON: traffic, clocks of a tile, order of tasks, arithmetic. Loads no TVM."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from tirx_attn.analysis.budget import exp_to_mma, tile_budget
from tirx_attn.analysis.emulation import emulation
from tirx_attn.analysis.margin import margin
from tirx_attn.analysis.roofline import roofline
from tirx_attn.commands import output
from tirx_attn.commands.arguments import ArgumentError
from tirx_attn.config import TILE_KEYS
from tirx_attn.schedule.base import BasePlan

UNITS = {"mma": "tensor core", "exp": "MUFU", "smem": "shared memory", "fma": "FMA pipe", "hbm": "global memory"}
"""Names of what may bind."""

WAYS = {
    "standard": "S and P in global memory",
    "tiled": "tiles, no L2",
    "single": "every tensor once",
}
ORDERS = {
    "least": "no order ends before",
    "arrival": "arrival",
    "longest_first": "longest first",
    "strided": "longest first, fixed stride",
    "launched": "this plan",
}


def roofline_report(plan: BasePlan) -> dict[str, Any]:
    """Everything that `show` prints, as one JSON-able document. Bytes, clocks, seconds, TFLOP/s; shares from 0 to 1.

    Raises:
        ArgumentError: a length is known at run time only.
    """
    config = plan.config
    if config.run_time_names:
        names = ", ".join(config.run_time_names)
        raise ArgumentError(f"--roofline with {names} left to run time: allowed here are sizes that are known")
    found = roofline(plan)
    both = tile_budget(
        plan.target, plan.tiles.rows * plan.tiles.tiles_per_task, TILE_KEYS, config.D, found.tile.emulated
    )
    return {
        **found.to_dict(),
        "task_tile": both.to_dict(),
        "exp_to_mma": exp_to_mma(plan.target, config.D),
        "emulation": emulation(plan).to_dict(),
        "margin": margin(getattr(plan.schedule, "rescale_threshold", 0.0), config.dtype, config.lengths[2]).to_dict(),
    }


def show(plan: BasePlan, console: Console, as_json: bool = False) -> None:
    """Print the roofline of a plan: tables on the console, or one JSON document on stdout.

    Raises:
        ArgumentError: a length is known at run time only.
    """
    report = roofline_report(plan)
    if as_json:
        output.print_json({"command": "model --roofline", "config": asdict(plan.config), **report})
        return
    for made in (_bound(report), _traffic(report), _clocks(report), _orders(report), _arithmetic(report)):
        console.print(made)
        console.print()


def _bound(report: dict[str, Any]) -> Table:
    made = output.table(f"Roofline on {report['target']}, boost clock", "what", "value")
    peak = report["mma_tflops"]
    made.add_row("peak", f"{peak:,.0f} TFLOP/s, {report['machine_balance']:,.0f} flop per byte of global memory")
    made.add_row("work", f"{report['traffic']['flops'] / 1e9:,.3f} Gflop")
    for name, key in (("global memory", "memory_seconds"), ("SMs, evenly loaded", "compute_seconds")):
        made.add_row(name, f"{report[key] * 1e6:,.1f} µs at least")
    made.add_row("bound", f"{report['bound_tflops']:,.0f} TFLOP/s, by the {_names(report['binds'])}")
    share = report["launched_tflops"] / peak
    made.add_row("in this plan's order", f"{report['launched_tflops']:,.0f} TFLOP/s, {share:.1%} of the peak")
    return made


def _traffic(report: dict[str, Any]) -> Table:
    made = _numbers("Global memory", "attention with", "MB", "flop per byte", "bound by")
    for way, name in WAYS.items():
        intensity = report["traffic"]["flop_per_byte"][way]
        moved = f"{report['traffic'][f'{way}_bytes'] / 1e6:,.1f}"
        made.add_row(
            name, moved, f"{intensity:,.1f}", "memory" if intensity < report["machine_balance"] else "tensor core"
        )
    return made


def _clocks(report: dict[str, Any]) -> Table:
    one, both = report["tile"], report["task_tile"]
    same = one["rows"] == both["rows"]
    tiles = [one] if same else [one, both]
    made = _numbers("Clocks of a key block, unmasked", "unit", *(f"{tile['rows']} x {tile['keys']}" for tile in tiles))
    for unit in ("mma", "exp", "smem", "fma"):
        made.add_row(UNITS[unit], *(f"{tile[unit]:,.0f}" for tile in tiles))
    made.caption = f"the {_names(one['binds'])} sets the pace" if len(one["binds"]) == 1 else "the slowest two tie"
    return made


def _orders(report: dict[str, Any]) -> Table:
    balance = report["balance"]
    made = _numbers(f"Tasks on {balance['sms']} SMs", "order", "ends after, key blocks", "SMs busy")
    for key, name in ORDERS.items():
        busy = balance["work"] / (balance["sms"] * balance[key])
        made.add_row(name, f"{balance[key]:,.1f}" if key == "least" else f"{balance[key]:,}", f"{busy:.1%}")
    return made


def _arithmetic(report: dict[str, Any]) -> Table:
    made = output.table("Arithmetic", "what", "value")
    emulated, room = report["emulation"], report["margin"]
    made.add_row("exponentials : products", f"{report['exp_to_mma']:.2f} in clocks, all on the MUFU")
    steady = f"{emulated['emulated_columns']} of {TILE_KEYS} in steady blocks"
    made.add_row("emulated exponentials", f"{steady}, {emulated['share']:.1%} of all")
    weight = f"a weight of P is at most {room['largest_p']:,.0f}"
    made.add_row("rescale threshold", f"{room['threshold']:g}: {weight}, {room['p_bits']:.1f} bits below the largest")
    return made


def _numbers(title: str, first: str, *others: str) -> Table:
    made = output.table(title, first, *others)
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def _names(units: list[str]) -> str:
    return " and ".join(UNITS[unit] for unit in units)
