"""A real browser without a window, and what a test asks it about a page."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
VARIABLE = "TIRX_ATTN_CHROMIUM"
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip
SIZES = ((1280, 800), (1920, 1080))
THEMES = ("light", "dark")
SCREENSHOTS = Path(__file__).parents[2] / "build" / "explore"


def chromium() -> str | None:
    """Path of a browser: what VARIABLE names, or the first of NAMES on PATH."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)


def no_browser() -> str:
    """Why no browser can be started; empty where one can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "needs playwright: pip install 'tirx-attn[browser]'"
    return "" if chromium() else f"needs one of {', '.join(NAMES)} on PATH, or {VARIABLE}"


@contextmanager
def started() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        yield browser
        browser.close()


class Opened:
    """A page that is drawn, with what it asked for and said on the way."""

    def __init__(self, browser: Any, path: Path, size: tuple[int, int] = SIZES[0], theme: str = "light"):
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_function("document.documentElement.dataset.drawn")

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    @property
    def document(self) -> dict[str, Any]:
        """The data that the page carries."""
        return json.loads(self.page.text_content("#data"))["document"]

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def cells(self, selector: str) -> list[list[str]]:
        """Texts of the rows of a table's body."""
        return self.page.eval_on_selector_all(
            f"{selector} tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
        )

    def values(self, selector: str) -> list[float]:
        """Unrounded values behind cells."""
        return [float(text) for text in self.page.eval_on_selector_all(selector, "x => x.map(e => e.dataset.value)")]

    def overlaps(self) -> list[str]:
        """Pairs of labels of one chart that lie over each other, and labels outside of the page."""
        return self.page.evaluate(OVERLAPS)

    def colour(self, variable: str) -> str:
        """Value of a CSS variable, as a colour that a browser computed."""
        return self.page.evaluate(
            """(name) => {
                const probe = document.body.appendChild(document.createElement("i"));
                probe.style.color = `var(${name})`;
                const found = getComputedStyle(probe).color;
                probe.remove();
                return found;
            }""",
            variable,
        )

    def contrasts(self) -> list[tuple[float, str]]:
        """Contrast of each text with what lies behind it, lowest first, by the formula of WCAG."""
        return sorted(map(tuple, self.page.evaluate(CONTRASTS)))


OVERLAPS = """() => {
  const found = [];
  for (const chart of document.querySelectorAll(".chart")) {
    const texts = [...chart.querySelectorAll("text")].filter((text) => text.textContent.trim());
    const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width);
    const right = document.documentElement.clientWidth;
    boxes.forEach(([name, a], i) => {
      if (a.left < 0 || a.right > right) found.push(`${chart.dataset.chart}: ${name} leaves the page`);
      for (const [other, b] of boxes.slice(i + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 0.5 && high > 1) found.push(`${chart.dataset.chart}: ${name} and ${other}`);
      }
    });
  }
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth) found.push("the page is too wide");
  for (const cell of document.querySelectorAll("th, td, dd, button, figcaption, li")) {
    if (cell.scrollWidth > cell.clientWidth + 1 && cell.clientWidth) found.push(`${cell.innerText} is cut off`);
  }
  return found;
}"""
"""The boxes of lines of text, which have empty pixels above and below their letters, may touch."""

CONTRASTS = """() => {
  const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const opaque = (colour) => numbers(colour).length < 4 || numbers(colour)[3] === 1;
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (opaque(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  const add = (front, back, text) => found.push([contrast(front, back), text.trim().slice(0, 60)]);
  for (const element of document.body.querySelectorAll("*")) {
    if (element.closest("svg, script")) continue;
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    add(getComputedStyle(element).color, behind(element), element.textContent);
  }
  for (const chart of document.querySelectorAll(".chart")) {
    const shapes = [...chart.querySelectorAll("path")];
    const bars = shapes.map((bar) => [bar.getBoundingClientRect(), getComputedStyle(bar).fill]);
    for (const text of chart.querySelectorAll("text")) {
      if (!text.textContent.trim()) continue;
      const box = text.getBoundingClientRect();
      const fill = getComputedStyle(text).fill;
      add(fill, behind(chart), text.textContent);
      for (const [bar, colour] of bars) {
        const wide = Math.min(box.right, bar.right) - Math.max(box.left, bar.left);
        const high = Math.min(box.bottom, bar.bottom) - Math.max(box.top, bar.top);
        const broad = bar.height > 15 && bar.width > 3; // no wire, no arrow
        if (broad && wide > 1 && high > 8 && /^rgb/.test(colour) && opaque(colour)) add(fill, colour, text.textContent);
      }
    }
  }
  return found;
}"""
