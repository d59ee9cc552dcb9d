"""The documentation site: it builds without a warning, all its links lead somewhere, and it needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import tirx_attn

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BUILD_SECONDS = 1500

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the built site."""
    pytest.importorskip("sphinx", reason="needs sphinx, of the extra docs")
    pytest.importorskip("torch", reason="needs torch: the reference has functions on tensors")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-nqE", "-d", str(folder / "doctrees"), str(DOCS), str(folder / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


@cache
def soup(path: Path):
    from bs4 import BeautifulSoup

    return BeautifulSoup(path.read_text(), "html.parser")


def pages(site: Path) -> list[Path]:
    found = sorted(site.rglob("*.html"))
    assert len(found) > 200
    return found


@cache
def anchors(path: Path) -> frozenset[str]:
    return frozenset(tag["id"] for tag in soup(path).find_all(id=True)) | {
        tag["name"] for tag in soup(path).find_all("a", attrs={"name": True})
    }


def targets(path: Path) -> list[str]:
    """What a page leads to or loads."""
    tags = soup(path).find_all(True)
    return [tag[key] for tag in tags for key in ("href", "src") if tag.has_attr(key)]


def test_every_link_leads_to_a_file_and_an_anchor(site):
    checked, broken = 0, []
    for page in pages(site):
        for target in targets(page):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            checked += 1
            if not file.is_file() or not file.is_relative_to(site):
                broken.append(f"{page.relative_to(site)}: {target}")
            elif parts.fragment and file.suffix == ".html" and unquote(parts.fragment) not in anchors(file):
                broken.append(f"{page.relative_to(site)}: {target} (no such anchor)")
    assert broken == []
    assert checked > 5000


def test_pages_load_nothing_from_elsewhere(site):
    loading = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
    for page in pages(site):
        for tag in soup(page).find_all(list(loading)):
            target = tag.get(loading[tag.name]) or ""
            assert not urlsplit(target).netloc, f"{page.relative_to(site)}: {target}"
    for sheet in site.rglob("*.css"):
        for target in re.findall(r"url\(([^)]*)\)|@import\s+([^;]+)", sheet.read_text()):
            assert "//" not in "".join(target).removeprefix("data:").split(",")[0], f"{sheet.name}: {target}"


def test_links_to_other_sites_are_https(site):
    found = {target for page in pages(site) for target in targets(page) if urlsplit(target).scheme}
    written = {link for page in DOCS.rglob("*.md") for link in re.findall(r"\]\((\w+:[^)\s]+)\)", page.read_text())}
    assert written <= found
    for target in found:
        parts = urlsplit(target)
        assert parts.scheme == "https", target
        assert re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", parts.netloc), target


def test_every_page_is_in_the_table_of_contents(site):
    tree = soup(site / "index.html").find(class_="sidebar-tree")
    listed = {tag["href"].partition("#")[0] for tag in tree.find_all("a")}
    for page in DOCS.rglob("*.md"):
        if page != DOCS / "index.md":
            assert page.relative_to(DOCS).with_suffix(".html").as_posix() in listed


def test_the_start_page_is_the_readme(site):
    start = soup(site / "index.html")
    text = (ROOT / "README.md").read_text()
    titles = [tag.get_text().removesuffix("¶") for tag in start.find("article").find_all(["h1", "h2"])]
    assert titles == re.findall(r"^##? (.*)", text, re.MULTILINE)
    assert start.find("a", href="source/tirx_attn/kernel.py.html")


@pytest.mark.parametrize(
    ("page", "name", "signature", "first_line"),
    [
        ("tirx_attn", "tirx_attn.get_flash_attention4_kernel", "B, Sq, Skv, Hq, Hkv, D, is_causal", None),
        ("tirx_attn", "tirx_attn.Schedule", "pv_split", None),
        ("tirx_attn", "tirx_attn.flash_attention", "q, k, v", None),
        ("tirx_attn", "tirx_attn.export", "path", None),
        ("tirx_attn", "tirx_attn.load", "path, device=0, libraries=None", "The kernel of a file that export wrote."),
        ("barriers", "tirx_attn.barriers.check.check", "func, sizes=None", "Check the synchronisation of a PrimFunc."),
    ],
)
def test_the_reference_has_signature_and_docstring(site, page, name, signature, first_line):
    place = soup(site / "api" / f"{page}.html").find(id=name)
    parameters = [tag.find("span").get_text() for tag in place.find_all(class_="sig-param")]
    wanted = [word.partition("=")[0] for word in signature.split(", ")]
    assert [word for word in parameters if word in wanted] == wanted
    described = place.find_next_sibling("dd").find("p").get_text()
    owner, _, last = name.rpartition(".")
    found = getattr(__import__(owner, fromlist=[last]), last)
    assert described.split(".")[0] == found.__doc__.split(".")[0].replace("`", "").replace("\n    ", "\n").strip()
    assert first_line is None or described.startswith(first_line)


def test_the_reference_has_every_public_name(site):
    first = anchors(site / "api" / "tirx_attn.html")
    assert {f"tirx_attn.{name}" for name in tirx_attn.__all__} <= first


def test_source_links_lead_to_the_definition(site):
    page = site / "api" / "tirx_attn.html"
    links = {a.find_parent(class_="sig")["id"]: a["href"] for a in soup(page).select(".sig a.reference.external")}
    path, _, anchor = links["tirx_attn.export"].partition("#")
    line = int(anchor.removeprefix("L-"))
    assert path == "../source/tirx_attn/runtime/export.py.html"
    source = (ROOT / "tirx_attn" / "runtime" / "export.py").read_text().splitlines()
    assert source[line - 1].startswith("def export(")
