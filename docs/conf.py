"""Sphinx settings of the documentation site: `make docs` builds it into build/docs. The pages are Markdown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent / "_ext")]

project = "tirx_attn"
html_title = project
copyright = "the authors of tirx_attn, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.linkcode"]
extensions += ["docstrings", "source_pages"]  # of _ext
exclude_patterns = ["_ext", "_static"]

# Headings have the anchors that a code host gives them.
myst_heading_anchors = 4
smartquotes = False  # scale="runtime" is code wherever it stands

# Docstrings are Google style; what stands in backticks is code. Several names may share a description.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_param = False
napoleon_custom_sections = [("Attributes", "params_style")]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
maximum_signature_line_length = 100
python_use_unqualified_type_names = True

nitpicky = True
nitpick_ignore_regex = [
    # Other projects' types: their inventories would have to be fetched.
    (r"py:.*", r"(collections|contextlib|enum|numpy|np|os|pathlib|simpy|subprocess|torch|tvm|types|typing)\..*"),
    # The same, and aliases and type variables of ours, by their bare names.
    (r"py:class", r"(.*\.)?(PrimFunc|Path|AnyPlan|AnySchedule|Array|Outcome|A)"),
    # Parts of the checker and of the timeline model that their functions pass on.
    (r"py:class", r"tirx_attn\.(barriers\.checker|analysis\.timeline\.(figures|machine|durations))\..*"),
]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.add_lexer("mermaid", TextLexer)  # a code host draws these
