"""Branches and loops of a PrimFunc as those of the skeleton, which counts where they went."""

from __future__ import annotations

import re
from typing import Any

from tirx_attn.barriers.checker.tir import WARP, DataDependent, Unsupported, key, where_of

_EVENT = re.compile(r"\bm\.(?!use|set|pin|choose|went|loop)")
_TURN = re.compile(rf"{_EVENT.pattern}|\bbreak$")
"""What a branch or a loop does besides moving cursors."""


def loop(t: Any, node: Any, lanes: int) -> None:
    """Translate a `For`."""
    name = t.names[key(node.loop_var)] = t.fresh(node.loop_var.name)
    first, extent = t.expression(node.min), t.expression(node.extent)
    end = extent if first == "0" else f"{first} + {extent}"
    if t.is_same(f"{first} {end}"):
        t.same.add(name)
        turns = f"range({first}, {end})"
    else:
        turns = f"m.loop(warp, {t.site('loop', node)}, {first}, {end})"
    start = len(t.lines)
    t.block(f"for {name} in {turns}:", lambda: t.statement(node.body, lanes))
    _count_if_eventful(t, start, turns, f"range({first}, {end})")


def _count_if_eventful(t: Any, start: int, counted: str, plain: str) -> None:
    """Leave a branch or a loop uncounted that only moves cursors: the slots show where those have been."""
    if not any(_TURN.search(line) for line in t.lines[start:]):
        t.lines[start:] = [line.replace(counted, plain) for line in t.lines[start:]]


def branch(t: Any, node: Any, lanes: int) -> None:
    """Translate an `IfThenElse`."""
    condition = node.condition
    kind = type(condition).__name__
    if "elect_sync" in str(condition):
        if kind != "Call" or node.else_case is not None:
            raise Unsupported(f"elect_sync in a larger branch at {where_of(node)}: no translation")
        t.statement(node.then_case, 1)
        return
    if "thread_rank" in str(condition):
        if kind != "EQ" or str(condition.b) != "0" or node.else_case is not None:
            raise Unsupported(f"branch on {condition} at {where_of(node)}: allowed is thread_rank() == 0")
        t.block("if warp == 0:", lambda: t.statement(node.then_case, 1))
        return
    if kind == "EQ" and key(condition.a) in t.warp_lanes and type(condition.b).__name__ == "IntImm":
        if lanes != WARP or node.else_case is not None or not 0 <= int(condition.b) < WARP:
            raise Unsupported(f"branch on {condition} at {where_of(node)}: allowed is one lane of a whole warp")
        t.statement(node.then_case, 1)
        return
    t.uses(node, condition)
    on_lane, plain = False, ""
    try:
        text = plain = t.expression(condition)
        on_lane = t.is_lane_dependent(text)
        if on_lane:
            raise DataDependent(text)
        if not t.is_same(text):
            text = f"m.went(warp, {t.site('branch', node)}, {text})"
    except DataDependent:
        text = f"m.choose(warp, {t.site('branch on data', node)})"
    start = len(t.lines)
    took = t.block(f"if {text}:", lambda: t.statement(node.then_case, lanes))
    if node.else_case is not None:
        header = "else:" if took else f"if not ({text}):"
        t.block(header, lambda: t.statement(node.else_case, lanes))
    if text.startswith("m.went("):
        _count_if_eventful(t, start, text, plain)
    if on_lane and any(_EVENT.search(line) for line in t.lines[start:]):
        raise Unsupported(f"branch on {condition} at {where_of(node)}: what it guards is not for a whole warp")
