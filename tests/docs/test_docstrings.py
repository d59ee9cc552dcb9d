"""Every public name of the API reference has a docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

API = Path(__file__).parents[2] / "docs" / "api"
MODULES = sorted({name for page in API.glob("*.md") for name in re.findall(r"automodule:: (\S+)", page.read_text())})
NEEDS = {"tirx_attn.integrations.transformers": "transformers", "tirx_attn": "torch"}


def public(module: ModuleType) -> dict[str, Any]:
    """Functions and classes that a module gives away, with the methods and properties of the classes."""
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__
    ]
    values = {name: getattr(module, name) for name in names if not name.startswith("_")}
    found = {name: value for name, value in values.items() if inspect.isclass(value) or inspect.isfunction(value)}
    for owner, value in list(found.items()):
        for name, member in vars(value).items() if inspect.isclass(value) else ():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, (property, classmethod))):
                found[f"{owner}.{name}"] = member
    return found


def has_docstring(name: str, value: Any) -> bool:
    """A dataclass without one is given its signature, which does not count."""
    return bool(value.__doc__) and not value.__doc__.startswith(f"{name}(")


def test_the_reference_covers_the_package():
    assert {"tirx_attn.barriers.check", "tirx_attn.runtime", "tirx_attn.schedule.plan"} <= set(MODULES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tirx_attn", *MODULES])
def test_every_public_name_has_a_docstring(name):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"needs {NEEDS[name]}")
    module = importlib.import_module(name)
    names = public(module)
    assert names
    assert module.__doc__
    assert [key for key, value in names.items() if not has_docstring(key, value)] == []
