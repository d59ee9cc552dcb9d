"""The page in a browser: it draws at once, says the model's and the plan's own figures, and can be read and worked.

Screenshots lie in build/explore afterwards.
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.explore import browser as web
from tests.explore.pages import CHANGE, DOCUMENTS, problem
from tirx_attn.explore.palette import EDGES, KINDS

pytestmark = pytest.mark.slow

TEXT, SHAPES = 4.5, 3.0
"""Contrast that WCAG 2 asks for (AA): of text, and of what else must be told from what is behind it."""

VIEWS = [(name, size, theme) for name in DOCUMENTS for size in web.SIZES for theme in web.THEMES]
SOME_VIEWS = [
    pytest.param(name, size, theme, id=f"{name}-{size[0]}x{size[1]}-{theme}")
    for name, size, theme in VIEWS
    if not name.startswith("toy") or (size == web.SIZES[0]) == (theme == web.THEMES[0])
]
"""Pages of built kernels in both sizes and themes, the others in both sizes."""


@pytest.mark.parametrize(("name", "size", "theme"), SOME_VIEWS)
def test_it_can_be_read(browser, page_of, name, size, theme):
    """No label lies over another one, none is cut off, and all have contrast, wherever the timeline is looked at."""
    with web.Opened(browser, page_of(name), size, theme) as found:
        web.SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        file = web.SCREENSHOTS / f"{name}_{size[0]}_{theme}.png"
        found.page.screenshot(path=file, full_page=True)
        assert found.overlaps() == []
        contrasts = found.contrasts()
        assert len(contrasts) > 200
        assert contrasts[0][0] >= TEXT, contrasts[:5]
        for button in ("whole", "start", "end"):
            found.page.click(f"[data-go={button}]")
            found.settle()
            assert found.overlaps() == [], button
        assert found.messages == []


def luminance(colour: str) -> float:
    parts = [float(value) / 255 for value in re.findall(r"[0-9.]+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", web.THEMES)
def test_waits_and_arrows_can_be_told_from_the_paper(browser, page_of, theme):
    with web.Opened(browser, page_of("toy"), theme=theme) as found:
        paper = luminance(found.colour("--paper"))
        edges = [f"--edge-{rank}" for rank in (*range(EDGES), "other")]
        for name in (*edges, *(f"--kind-{rank}" for rank in range(len(KINDS)))):
            low, high = sorted((paper, luminance(found.colour(name))))
            assert (high + 0.05) / (low + 0.05) >= SHAPES, name
        assert (paper > 0.5) == (theme == "light")


def test_the_checks_of_this_file_can_fail(browser, page_of):
    with web.Opened(browser, page_of("toy")) as found:
        assert found.overlaps() == []
        found.page.evaluate(
            """() => {
            const [a, b] = document.querySelectorAll("[data-chart=protocol-A] text");
            b.setAttribute("transform", a.getAttribute("transform"));
            a.closest(".chart").querySelector("text:last-child").style.fill = "#eeeeee";
            document.querySelector("h2").style.color = "#999999";
            }"""
        )
        assert any(line.startswith("protocol-A: ") for line in found.overlaps())
        low = [text for contrast, text in found.contrasts() if contrast < TEXT]
        assert "Figures" in low
        assert len(low) >= 2
        found.page.evaluate("document.querySelector('h1').style.width = '3000px'")
        assert "the page is too wide" in found.overlaps()


def test_it_asks_the_network_for_nothing(opened):
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []
    assert opened.messages == []
    policy = opened.page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    assert policy.startswith("default-src 'none'")


def test_every_chart_draws(compared):
    drawn = compared.page.eval_on_selector_all(
        "[data-chart]", "all => all.map(e => [e.dataset.chart, e.querySelectorAll('svg path').length])"
    )
    charts = dict(drawn)
    assert len(charts) == 2 * 5
    edges = [len(side["protocol"]["edges"]) for side in compared.document["sides"]]
    for side, count in zip("AB", edges, strict=True):
        assert charts[f"protocol-{side}"] >= 2 * count
        assert charts[f"timeline-{side}"] > 50
        assert charts[f"smem-{side}"] >= 6


def test_figures_are_the_models(opened):
    """What `tirx-attn model` would print, predicted here once more."""
    from tirx_attn.commands.model import build_for_model, predict_plan

    asked = problem("")
    func, figures = build_for_model(asked.plan, asked.arch)
    found, _ = predict_plan(asked.plan, figures, func)
    shown = dict(
        opened.page.eval_on_selector_all(
            "[data-figure]", "all => all.map(e => [e.dataset.figure, e.querySelector('dd').innerText])"
        )
    )
    assert shown["time_us"] == f"{found.time_us:,.1f} µs at {found.clock_ghz:.2f} GHz"
    assert shown["tflops"] == f"{found.tflops:,.0f} TFLOP/s"
    assert shown["task_cycles"] == f"{found.task_cycles:,.0f}"
    assert shown["block_cycles"] == f"{found.block_cycles:,.0f}"
    assert (shown["critical"], shown["first_stall"]) == (found.critical, found.first_stall)
    assert shown["smem"] == f"{asked.plan.smem.size:,} of {asked.plan.target.smem_bytes:,} bytes"
    assert opened.values("[data-waits] [data-value]") == pytest.approx([row.cycles for row in found.stalls])
    assert [row[:2] for row in opened.cells("[data-waits]")] == [
        [row.role, f"{asked_number(asked, row.edge)} {row.edge}"] for row in found.stalls
    ]
    units = {row[0]: row[1] for row in opened.cells("[data-units]")}
    assert units == {unit: f"{100 * share:.1f} %" for unit, share in found.use.items()}
    per_role = len(opened.page.query_selector_all("[data-roles] tr[data-role]"))
    cycles = opened.values("[data-roles] [data-value]")
    width = len(cycles) // per_role
    for first in range(0, len(cycles), width):
        assert sum(cycles[first : first + width]) == pytest.approx(found.block_cycles)


def asked_number(asked, edge: str) -> int:
    return [each.name for each in asked.table.edges].index(edge) + 1


def test_edges_and_memory_are_the_plans(opened):
    asked = problem("")
    rows = opened.cells(".edges")
    assert [row[0] for row in rows] == [str(i + 1) for i in range(len(asked.table.edges))]
    for row, edge in zip(rows, asked.table.edges, strict=True):
        assert row[1].startswith(edge.name)
        assert row[3] == edge.protects
    labels = set(opened.page.locator("[data-chart=protocol-A] text").all_text_contents())
    for edge in asked.table.edges:
        assert any(label.startswith(f"{edge.name} · {edge.count}") for label in labels), edge.name
    for key, regions in {"smem": asked.plan.smem.regions, "tmem": asked.plan.tmem.regions}.items():
        shown = opened.page.eval_on_selector_all(
            f"table[data-memory={key}] tr[data-region]", "x => x.map(e => [e.dataset.region, +e.dataset.size])"
        )
        assert sorted(map(tuple, shown)) == sorted((region.name, region.size) for region in regions)


def test_rows_of_the_graph_lie_beside_those_of_the_table(opened):
    centres = opened.page.eval_on_selector_all(
        ".edges tbody tr", "x => x.map(e => e.getBoundingClientRect()).map(b => b.top + b.height / 2)"
    )
    numbers = opened.page.evaluate(
        """[...document.querySelectorAll('[data-chart=protocol-A] text')]
        .filter(t => /^[0-9]+$/.test(t.textContent)).map(t => t.getBoundingClientRect())
        .map(b => b.top + b.height / 2)"""
    )
    assert numbers == pytest.approx(centres, abs=8)


def test_what_changed(compared):
    knob, value = CHANGE.split("=")
    assert compared.page.eval_on_selector_all("[data-knob]", "x => x.map(e => e.innerText.split(/\\s+/))") == [
        [knob, "3", value]
    ]
    sides = compared.document["sides"]
    changed = {row["name"] for row in compared.document["differences"]["edges"]}
    assert changed == {"kv_load.full", "kv_load.empty"}
    times = compared.page.eval_on_selector("[data-figure=time_us]", "e => [...e.cells].map(c => c.innerText)")
    assert times[1:3] == [side["figures"][0]["text"] for side in sides]
    change = sides[1]["figures"][0]["value"] / sides[0]["figures"][0]["value"] - 1
    assert times[3] == f"{100 * change:+.1f} %"


def test_two_kernels_stand_side_by_side(compared):
    for chart in ("protocol", "smem", "registers"):
        a, b = (compared.page.locator(f"[data-chart={chart}-{side}]").bounding_box() for side in "AB")
        assert a["y"] == b["y"]
        assert a["x"] + a["width"] < b["x"]
    # time is compared along one axis, so the timelines stand one above the other
    a, b = (compared.page.locator(f"[data-chart=timeline-{side}]").bounding_box() for side in "AB")
    assert (a["x"], a["width"]) == (b["x"], b["width"])


def test_headings_are_in_order_and_sections_named(compared):
    levels = compared.page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(e => +e.tagName[1])")
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    targets = compared.page.eval_on_selector_all("nav a", "all => all.map(a => a.getAttribute('href').slice(1))")
    ids = compared.page.eval_on_selector_all("section", "all => all.map(e => e.id)")
    assert targets == ids
