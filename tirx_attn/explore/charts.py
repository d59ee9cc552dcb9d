"""The charts of the page as Vega specifications, made with Altair. Colours are CSS variables, of which page.css has two
themes."""

from __future__ import annotations

from typing import Any

import altair as alt

from tirx_attn.analysis.timeline.moments import LOAD
from tirx_attn.explore.palette import BUSY, KINDS, Colours
from tirx_attn.explore.passing import WAIT

ROW = 58
"""Pixels of an edge's row, where no table stands beside it."""
PAD = 6
"""Pixels above the first row."""
LANE = 44
"""Pixels of a lane of the timeline."""
LETTER = 6.6
"""Pixels of a letter of a label, at most on average."""

INK, SOFT, LINE, PAPER = "var(--ink)", "var(--soft)", "var(--line)", "var(--paper)"
FONT = "system-ui, sans-serif"


def vega(chart: Any) -> dict[str, Any]:
    """The Vega specification of a chart, as wide as the element that holds it."""
    axis = {"labelColor": INK, "titleColor": INK, "domainColor": LINE, "tickColor": LINE, "gridColor": LINE}
    chart = chart.properties(width="container", background="transparent").configure(
        font=FONT, axis={**axis, "labelFontSize": 12, "titleFontSize": 12}, view={"stroke": None}
    )
    return chart.to_dict(format="vega")


# -- protocol --------------------------------------------------------------------------------------------------------


def protocol(facts: dict[str, Any], numbers: dict[str, int]) -> Any:
    """Roles as lanes, edges as rows: dots are who arrives, the triangle is who waits.

    Args:
        facts: of one kernel's protocol.
        numbers: edge -> number of its row, from 1. A row that the protocol lacks says so.
    """
    roles = [role["name"] for role in facts["roles"]]
    wires, ends = [], []
    present = {edge["name"] for edge in facts["edges"]}
    absent = [name for name in numbers if name not in present]
    middle = (len(roles) - 1) / 2
    labels = [
        {"row": numbers[name] - 1, "x": middle, "align": "center", "text": f"{name}: not here"} for name in absent
    ]
    for edge in facts["edges"]:
        row, kind = numbers[edge["name"]] - 1, edge["kind"]
        arriving = [roles.index(p["role"]) for p in edge["producers"]]
        for waiting in (roles.index(role) for role in edge["consumers"]):
            by_itself = arriving == [waiting]
            places = [waiting - 0.22] if by_itself else [place + 0.0 for place in arriving]
            target = waiting + (0.22 if by_itself else 0.0)
            right = sum(places) / len(places) < target
            shape = "triangle-right" if right else "triangle-left"
            ends.append({"row": row, "x": target, "kind": kind, "shape": shape, "size": 150})
            ends += [{"row": row, "x": place, "kind": kind, "shape": "circle", "size": 60} for place in places]
            # One wire on either side, from the producer that is furthest away: dashes on dashes would be a line.
            for far in sorted({min(places), max(places)}):
                if far == min(places) < target or far == max(places) > target:
                    wires.append({"row": row, "x": far, "x2": target, "kind": kind})
        labels.append(_edge_label(row, edge, roles))
    numbered = [{"row": number - 1, "x": -0.5, "text": str(number)} for number in numbers.values()]
    centres = [ROW * (row + 0.5) + PAD for row in range(len(numbers))]
    x = alt.X(
        "x:Q",
        scale=alt.Scale(domain=[-0.6, len(roles) - 0.5], nice=False),
        axis=alt.Axis(
            orient="top", title=None, values=list(range(len(roles))), grid=True, domain=False, ticks=False,
            labelExpr=f"{[[role['name'], role['where']] for role in facts['roles']]}[datum.value]",
            labelLimit=160, labelPadding=10,
        ),
    )  # fmt: skip
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, 1], domainMax={"expr": "height"}, reverse=True, nice=False), axis=None)
    kinds = list(KINDS)
    colour = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[KINDS[k][0] for k in kinds]), legend=None)
    dash = alt.StrokeDash("kind:N", scale=alt.Scale(domain=kinds, range=[KINDS[k][1] for k in kinds]), legend=None)
    wire = _rows(wires).mark_rule(strokeWidth=2, yOffset=9).encode(x=x, x2="x2:Q", y=y, color=colour, strokeDash=dash)
    end = _rows(ends).mark_point(filled=True, opacity=1, yOffset=9).encode(
        x=x, y=y, color=colour, shape=alt.Shape("shape:N", scale=None), size=alt.Size("size:Q", scale=None)
    )  # fmt: skip
    texts = [_rows(numbered).mark_text(align="left", fontWeight="bold", fontSize=12, color=INK)]
    texts += [
        _rows([label for label in labels if label["align"] == align])
        .mark_text(align=align, yOffset=-9, fontSize=12, color=INK)
        for align in ("left", "center", "right")
        if any(label["align"] == align for label in labels)
    ]  # fmt: skip
    made = alt.layer(wire, end, *(text.encode(x=x, y=y, text="text:N") for text in texts))
    return made.add_params(alt.param("centres", value=centres)).properties(height=ROW * len(numbers) + PAD)


def _rows(values: list[dict[str, Any]]) -> Any:
    """Data whose rows lie at `centres`, in pixels: the page puts them beside the rows of its table."""
    return _data(values).transform_calculate(y="centres[datum.row]")


def _edge_label(row: int, edge: dict[str, Any], roles: list[str]) -> dict[str, Any]:
    """A label at that end of the row to which the arrow is nearer, so that it never leaves the chart."""
    touched = [roles.index(role) for role in (*(p["role"] for p in edge["producers"]), *edge["consumers"])]
    low, high, last = min(touched), max(touched), len(roles) - 1
    align = "left" if low < last - high else "right" if low > last - high else "center"
    x = {"left": low - 0.25, "right": high + 0.25, "center": (low + high) / 2}[align]
    text = f"{edge['name']} · {edge['count']}"
    text += f" = {edge['counts']}" if "+" in edge["counts"] and not edge["tx_bytes"] else ""
    text += f" + {edge['tx_bytes'] // 1024} KiB" if edge["tx_bytes"] else ""
    return {"row": row, "x": x, "align": align, "text": text}


# -- memory ----------------------------------------------------------------------------------------------------------


TICKS = {
    "bytes": (32 * 1024, "format(datum.value / 1024, 'd')", "KiB"),
    "columns": (64, "format(datum.value, 'd')", "columns"),
    "registers": (16 * 1024, "format(datum.value, ',d')", "registers"),
}
"""Unit of a memory -> distance of its ticks, their labels and what they count."""


def memory(facts: dict[str, Any]) -> Any:
    """A bar of a memory's regions, each with its name where that fits; what lies over another is a bar below."""
    limit, regions = facts["limit"], facts["regions"]
    used = max(region["start"] + region["size"] for region in regions)
    free = [{"name": "free", "start": used, "size": limit - used, "layer": 0, "slots": 1}] if used < limit else []
    rows = []
    for number, region in enumerate([*regions, *free]):
        step = region["size"] / region["slots"]
        fill = "transparent" if region["name"] == "free" else f"var(--area-{number % 2})"
        for slot in range(region["slots"]):
            start = region["start"] + slot * step
            name = region["name"] + (f"[{slot}]" if region["slots"] > 1 else "")
            rows.append({"layer": region["layer"], "start": start, "end": start + step, "name": name, "fill": fill})
    layers = max(row["layer"] for row in rows) + 1
    step, label, unit = TICKS[facts["unit"]]
    x = alt.X(
        "start:Q",
        scale=alt.Scale(domain=[0, limit], nice=False),
        axis=alt.Axis(title=unit, values=list(range(0, limit + 1, step)), labelExpr=label, grid=False),
    )
    base = _data(rows).encode(y=alt.Y("layer:O", axis=None, scale=alt.Scale(paddingInner=0.1, paddingOuter=0)))
    bars = base.mark_bar(stroke=SOFT, strokeWidth=1).encode(x=x, x2="end:Q", color=alt.Color("fill:N", scale=None))
    middle = alt.datum.start + (alt.datum.end - alt.datum.start) / 2
    text = (
        base.transform_calculate(middle=middle)
        .transform_filter(f"(datum.end - datum.start) * width / {limit} > {LETTER} * length(datum.name) + 4")
        .mark_text(fontSize=12, color=INK)
        .encode(x=alt.X("middle:Q"), text="name:N")
    )
    return alt.layer(bars, text).properties(height=34 * layers)


# -- time ------------------------------------------------------------------------------------------------------------


def timeline(time: dict[str, Any], colours: Colours, window: tuple[float, float]) -> Any:
    """Lanes of roles and units. Work is a broad bar with its name on it, a wait a thin one with its edge above it.

    Parameters `lo` and `hi` are the window in cycles; where `arrows` is true a line leads from the last to arrive to
    the end of the wait. The page changes them.
    """
    rows = [_row(number, span, colours) for number, span in enumerate(time["spans"])]
    rows = [row for row in rows if row["lane"] in time["lanes"]]
    lo, hi = alt.param("lo", value=window[0]), alt.param("hi", value=window[1])
    x = alt.X(
        "start:Q",
        scale=alt.Scale(
            domain=[0, 1], domainMin={"expr": "lo"}, domainMax={"expr": "hi"}, nice=False, zero=False, clamp=True
        ),
        axis=alt.Axis(title="cycles since the task's first instruction", format=",d", tickCount=8),
    )
    y = alt.Y(
        "lane:N",
        sort=time["lanes"],
        scale=alt.Scale(domain=time["lanes"], paddingInner=0.0, paddingOuter=0.0),
        axis=alt.Axis(title=None, domain=False, ticks=False, labelLimit=120, grid=True, bandPosition=0.0),
    )
    base = _data(rows).transform_filter("datum.end > lo && datum.start < hi").encode(
        x=x, x2="end:Q", y=y, color=alt.Color("fill:N", scale=None)
    )  # fmt: skip
    work = base.transform_filter("!datum.wait").mark_bar(height=22, stroke=PAPER, strokeWidth=0.5)
    wait = base.transform_filter("datum.wait").mark_bar(height=8, yOffset=10)
    pixels = "(min(datum.end, hi) - max(datum.start, lo)) * width / (hi - lo)"
    fits = f"datum.pixels > {LETTER} * length(datum.name) + 6"
    label = (
        _data(rows)
        .transform_filter("datum.end > lo && datum.start < hi")
        .transform_calculate(pixels=pixels, at="max(datum.start, lo)")
        .transform_calculate(label=f"{fits} ? datum.name : datum.pixels > {LETTER} * length(datum.short) + 6 ? "
                                   "datum.short : ''")
        .transform_filter("datum.label != ''")
        .encode(x=alt.X("at:Q"), y=y, text="label:N")
    )  # fmt: skip
    released = [
        {
            "lane": span["by"],
            "to": span["lane"],
            "start": span["released"],
            "end": span["end"],
            "n": number,
            "fill": colours.of(span["edge"]),
        }
        for number, span in enumerate(time["spans"])
        if span["what"] == WAIT and {span["by"], span["lane"]} <= set(time["lanes"]) and span["by"] != span["lane"]
    ]
    release = (
        _data(released)
        .transform_filter("arrows && datum.end > lo && datum.start < hi")
        .mark_rule(strokeWidth=1.5)
        .encode(x=x, x2="end:Q", y=y, y2="to:N", color=alt.Color("fill:N", scale=None))
    )
    style = {"align": "left", "dx": 3, "fontSize": 11, "color": INK}
    on_work = label.transform_filter("!datum.wait").mark_text(**style)
    on_wait = label.transform_filter("datum.wait").mark_text(**style, yOffset=-5)
    return (
        alt.layer(work, wait, release, on_work, on_wait)
        .add_params(lo, hi, alt.param("arrows", value=False))
        .properties(height=LANE * len(time["lanes"]))
        .resolve_scale(color="independent")
    )


def _row(number: int, span: dict[str, Any], colours: Colours) -> dict[str, Any]:
    is_wait = span["what"] == WAIT
    made = {"n": number, "lane": span["lane"], "start": span["start"], "end": span["end"], "wait": is_wait}
    if is_wait:
        return {**made, "name": span["edge"], "short": colours.short(span["edge"]), "fill": colours.of(span["edge"])}
    fill, short = BUSY.get(span["what"], BUSY["instructions"])
    name = span["detail"] if span["what"] == LOAD else span["what"]
    return {**made, "name": name, "short": short, "fill": fill}


def _data(rows: list[dict[str, Any]]) -> Any:
    return alt.Chart(alt.Data(values=rows))
