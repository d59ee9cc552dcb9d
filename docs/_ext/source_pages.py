"""Pages of source code, so that a link such as ../tirx_attn/kernel.py works on a code host and in the site.

A Markdown link to a file or folder outside docs/ leads to a page with that file's text, or with the folder's files.
The [source] links of the API reference lead to the same pages. Data and logs stay downloads.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
FOLDERS = ("tirx_attn", "benchmarks", "examples", "scripts")
LISTED = ("tests",)
"""Folders of which the site shows the names of the files only."""

LEXERS = {".py": "python", ".cpp": "cpp", ".c": "c", ".h": "cpp", ".txt": "cmake", ".sh": "sh", ".md": "markdown"}


def has_page(path: Path) -> bool:
    """Whether a file or folder is shown by a page of its own."""
    inside = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ()
    if inside in [(name,) for name in LISTED]:
        return True
    if not inside or inside[0] not in FOLDERS or not _is_source(path):
        return False
    return path.is_dir() or path.suffix in LEXERS


def _is_source(path: Path) -> bool:
    return "__pycache__" not in path.parts and not path.name.startswith(".")


def page_name(path: Path) -> str:
    """Name of the page of a file or folder."""
    name = f"source/{path.relative_to(ROOT).as_posix()}"
    return f"{name}/index" if path.is_dir() else name


def lead_to_pages(app: Sphinx, doctree: nodes.document) -> None:
    """Turn the links of a document that leave docs/ into links to pages.

    A link is relative to the file that it was written in, which is README.md where index.md includes it.
    """
    docname = app.env.docname
    for node in list(doctree.findall(lambda n: isinstance(n, (addnodes.pending_xref, addnodes.download_reference)))):
        if node.get("reftype") != "myst" or node.get("refdomain") == "doc":
            continue
        written_in = Path(node.source or app.env.doc2path(docname)).parent
        target, _, anchor = node["reftarget"].partition("#")
        path = Path(os.path.normpath(written_in / target))
        if has_page(path):
            uri = app.builder.get_relative_uri(docname, page_name(path))
            node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))
            continue
        document = app.env.path2doc(path / "index.md" if path.is_dir() else path)
        if document in app.env.found_docs:
            node.attributes.update({"refdomain": "doc", "reftarget": document, "reftargetid": anchor or None})
        elif path.is_file():
            target = os.path.relpath(path, Path(app.env.doc2path(docname)).parent)
            node.replace_self(addnodes.download_reference("", "", *node.children, reftarget=target, refdoc=docname))


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """One page for each file and folder of FOLDERS, one for each of LISTED."""
    for folder in (ROOT / name for name in (*FOLDERS, *LISTED)):
        for path in (folder, *sorted(folder.rglob("*"))):
            if has_page(path):
                name = page_name(path)
                title = path.relative_to(ROOT).as_posix()
                body = listing(app, path) if path.is_dir() else text(app, path)
                yield name, {"title": title, "body": f"<h1>{escape(title)}</h1>\n{body}"}, "page.html"


def text(app: Sphinx, path: Path) -> str:
    """A file's text with an anchor L12 for line 12."""
    options = {"linenos": "inline", "lineanchors": "L", "anchorlinenos": False}
    return app.builder.highlighter.highlight_block(path.read_text(), LEXERS[path.suffix], **options)


def listing(app: Sphinx, folder: Path) -> str:
    """The folder's entries."""
    here = page_name(folder)
    lines = []
    for path in filter(_is_source, sorted(folder.iterdir())):
        name = escape(path.name + "/" * path.is_dir())
        uri = app.builder.get_relative_uri(here, page_name(path)) if has_page(path) else None
        lines.append(f'<li><a href="{uri}">{name}</a></li>' if uri else f"<li>{name}</li>")
    return "<ul>\n" + "\n".join(lines) + "\n</ul>"


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Where the source of a documented object is shown, relative to the pages of docs/api."""
    found: Any = sys.modules.get(info["module"])
    try:
        for part in info["fullname"].split("."):
            found = getattr(found, part)
        found = inspect.unwrap(found.fget if isinstance(found, property) else found)
        path, (_, line) = Path(inspect.getsourcefile(found) or ""), inspect.getsourcelines(found)
    except (AttributeError, OSError, TypeError):
        return None  # a constant, or an attribute of instances
    return f"../{page_name(path)}.html#L-{line}" if has_page(path) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this."""
    app.config.linkcode_resolve = linkcode_resolve
    app.connect("doctree-read", lead_to_pages, priority=100)  # before titles are collected
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
