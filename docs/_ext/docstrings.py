"""Docstrings as the package writes them: Google style, but the docstring of a variable is a sentence.

Its handlers stand around Napoleon, which would take what stands before a colon in such a sentence for a type.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

BAR = re.compile(r"(`[^`]*`)|\|")
VARIABLES = ("attribute", "data", "property")

_written: dict[str, list[str]] = {}


def before(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep what is written. A bar outside of code is a bar, no substitution of reStructuredText."""
    lines[:] = [BAR.sub(lambda found: found[1] or r"\|", line) for line in lines]
    _written[name] = list(lines)


def behind(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Give variables their sentences back."""
    written = _written.pop(name, None)
    if what in VARIABLES and written is not None:
        lines[:] = written


def made_defaults(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """A default that a factory makes is printed as <factory>, which no parser of signatures takes."""
    return signature and signature.replace("<factory>", "..."), returns


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("autodoc-process-docstring", before, priority=100)
    app.connect("autodoc-process-docstring", behind, priority=900)
    app.connect("autodoc-process-signature", made_defaults)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
