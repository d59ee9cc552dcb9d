"""The page under hand: keyboard, mouse, and the window of the timelines."""

from __future__ import annotations

import pytest

from tirx_attn.explore.passing import merged

pytestmark = pytest.mark.slow


def window(found) -> tuple[float, float]:
    return tuple(float(found.page.evaluate(f"document.body.dataset.{name}")) for name in ("lo", "hi"))


def ticks(found, side: str = "A") -> list[float]:
    """Labels of a timeline's axis."""
    texts = found.page.locator(f"[data-chart=timeline-{side}] text").all_text_contents()
    return [float(text.replace(",", "")) for text in texts if text.replace(",", "").isdigit() and len(text) > 2]


def test_buttons_and_keys_move_both_timelines(compared):
    lo, hi = window(compared)
    compared.page.click("[data-go=whole]")
    compared.settle()
    end = max(side["time"]["end"] for side in compared.document["sides"])
    assert window(compared) == (0, pytest.approx(end))
    assert max(ticks(compared, "A")) > 0.8 * end
    assert ticks(compared, "A") == ticks(compared, "B")
    compared.page.click("[data-go=steady]")
    assert window(compared) == (pytest.approx(lo), pytest.approx(hi))
    compared.page.locator("[data-chart=timeline-B]").focus()
    for key, expected in {
        "+": (lo + (hi - lo) / 4, hi - (hi - lo) / 4),
        "ArrowRight": (lo + (hi - lo) / 2, hi),
        "ArrowLeft": (lo + (hi - lo) / 4, hi - (hi - lo) / 4),
        "-": (lo, hi),
        "Home": (0, end),
    }.items():
        compared.page.keyboard.press(key)
        assert window(compared) == pytest.approx(expected), key
    compared.settle()
    assert max(ticks(compared)) > 0.8 * end
    assert "0 to" in compared.page.inner_text("#window")


def test_the_mouse_moves_and_zooms(opened):
    chart = opened.page.locator(".timeline")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 30
    lo, hi = window(opened)
    opened.page.mouse.move(x, y)
    opened.page.mouse.down()
    opened.page.mouse.move(x - 200, y)
    opened.page.mouse.up()
    moved = window(opened)
    assert moved[0] > lo
    assert moved[1] - moved[0] == pytest.approx(hi - lo)
    opened.page.keyboard.down("Control")
    opened.page.mouse.wheel(0, -100)
    opened.page.keyboard.up("Control")
    opened.settle()
    zoomed = window(opened)
    assert moved[0] < zoomed[0] < zoomed[1] < moved[1]


def test_a_bar_says_what_it_is(opened):
    bars = opened.page.locator(".timeline .mark-rect path")
    bars.nth(3).scroll_into_view_if_needed()
    bars.nth(3).hover(force=True)
    text = opened.page.inner_text("#detail")
    (span,) = (
        span
        for span in merged(opened.document["sides"][0]["time"]["spans"])
        if text.startswith(span["lane"]) and f"{span['start']:,.0f} to {span['end']:,.0f}" in text
    )
    assert f"{span['end'] - span['start']:,.0f} cycles" in text
    opened.page.check("#arrows")
    opened.settle()
    lines = opened.page.locator(".timeline .mark-rule line").count()
    assert lines > 20


def test_every_control_is_reached_with_the_keyboard(opened):
    wanted = opened.page.eval_on_selector_all(
        "a[href], button, input:not([disabled]), [tabindex='0']",
        "all => { all.forEach((e, i) => e.dataset.stop = i); return all.map(e => e.dataset.stop); }",
    )
    reached = []
    for _ in wanted:
        opened.page.keyboard.press("Tab")
        stop, outline = opened.page.evaluate(
            "[document.activeElement.dataset.stop, parseFloat(getComputedStyle(document.activeElement).outlineWidth)]"
        )
        assert outline >= 2
        reached.append(stop)
    assert reached == wanted
    assert len(wanted) > 15
    named = opened.page.eval_on_selector_all(
        "button, input, [role=img], [role=group]",
        "all => all.map(e => e.getAttribute('aria-label') || e.innerText || e.labels?.[0]?.innerText)",
    )
    assert all(named)
