"""The page: one HTML file with its charts, their data and the library that draws them. It needs no network."""

from __future__ import annotations

import importlib.util
import json
from importlib import resources
from typing import Any

from tirx_attn.explore.palette import BUSY, KINDS, colours
from tirx_attn.explore.passing import WAIT, merged

NEEDED = ("altair", "vl_convert", "jinja2")
HINT = "pip install 'tirx_attn[explore]'"

WINDOW_BLOCKS = 3
"""Key blocks of the steady state that the timeline shows at first."""


def missing() -> str:
    """What to install before a page can be made; empty where nothing is missing."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    return f"the page needs {', '.join(absent)}: {HINT}" if absent else ""


def page(document: dict[str, Any]) -> str:
    """The page of a document (`facts.document`).

    Raises:
        ImportError: Altair, vl-convert or Jinja is not installed.
    """
    import jinja2

    document = {**document, "sides": [_with_merged_spans(side) for side in document["sides"]]}
    specs = charts(document)
    here = resources.files("tirx_attn.explore")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"cycles": _cycles, "percent": _percent, "signed": _signed}
    template = environment.from_string((here / "page.html.jinja").read_text("utf-8"))
    return template.render(
        doc=document,
        sides=document["sides"],
        differences=document.get("differences"),
        edges=edge_rows(document),
        colours=colours(document["sides"], document["edges"]),
        waited=_waited(document),
        busy={name: fill for name, (fill, _) in BUSY.items()},
        kinds={name: fill for name, (fill, _) in KINDS.items()},
        css=(here / "page.css").read_text("utf-8"),
        script=(here / "page.js").read_text("utf-8"),
        library=_library(),
        data=_json({"charts": specs, "timeline": _timeline(document), "document": document}),
    )


def charts(document: dict[str, Any]) -> dict[str, Any]:
    """Name of a chart -> its Vega specification."""
    from tirx_attn.explore import charts as made

    found, colour = {}, colours(document["sides"], document["edges"])
    shown = _timeline(document)
    for side in document["sides"]:
        name = side["name"]
        found[f"protocol-{name}"] = made.vega(made.protocol(side["protocol"], document["edges"]))
        for memory in side["memory"]:
            found[f"{memory['key']}-{name}"] = made.vega(made.memory(memory))
        found[f"timeline-{name}"] = made.vega(made.timeline(side["time"], colour, (shown["lo"], shown["hi"])))
    return found


def edge_rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Edges of all kernels in the order of their numbers; of one that several have, the first one's text."""
    found: dict[str, dict[str, Any]] = {}
    for side in document["sides"]:
        for edge in side["protocol"]["edges"]:
            found.setdefault(edge["name"], {**edge, "sides": []})["sides"].append(side["name"])
    return list(found.values())


def _with_merged_spans(side: dict[str, Any]) -> dict[str, Any]:
    return {**side, "time": {**side["time"], "spans": merged(side["time"]["spans"])}}


def _waited(document: dict[str, Any]) -> list[str]:
    """What the timelines show waits for, by number; what has none comes last."""
    found = {span["edge"] for side in document["sides"] for span in side["time"]["spans"] if span["what"] == WAIT}
    return sorted(found, key=lambda edge: (document["edges"].get(edge, len(document["edges"]) + 1), edge))


def _timeline(document: dict[str, Any]) -> dict[str, Any]:
    """Windows of the timeline, in cycles, that buttons lead to."""
    times = [side["time"] for side in document["sides"]]
    end, steady = max(time["end"] for time in times), times[0]["steady"]
    block = (steady["end"] - steady["start"]) / steady["blocks"]
    width = min(WINDOW_BLOCKS * block, end)
    start = min(steady["start"], end - width)
    windows = {"start": [0, width], "steady": [start, start + width], "end": [end - width, end], "whole": [0, end]}
    return {"end": end, "block": block, "lo": start, "hi": start + width, "windows": windows}


def _library() -> str:
    """Vega and what embeds it, as vl-convert bundles them."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def _json(data: Any) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _cycles(value: float) -> str:
    return f"{value:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(value: float) -> str:
    return f"{value:+.1f} %"
