"""Files of exported kernels without a compiler: their library is a few bytes, what describes it is real."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from tirx_attn import AttentionConfig
from tirx_attn.family import family_of, plan_for
from tirx_attn.runtime.artifact import Description, seal
from tirx_attn.runtime.origin import installed, origin

LOADER = import_module("tirx_attn.runtime.load")
"""The module: in its package, the function has its name."""

CONFIG = AttentionConfig(None, None, None, 4, 2, 128, True)
LIBRARY = b"\x7fELF" + bytes(range(256)) * 4


def description(arch: str = "sm_90a", **changes: Any) -> Description:
    plan = plan_for(CONFIG, arch=arch)
    made = Description(
        config=CONFIG,
        schedule=plan.schedule,
        arch=arch,
        function=family_of(plan.target).stem,
        versions={**installed("tirx-attn"), **origin().versions},
        generator_sha256=origin().source,
        cubin_sha256="0" * 64,
        source_sha256="1" * 64,
    )
    return replace(made, **changes)


def content(**changes: Any) -> bytes:
    """A whole file."""
    return seal(LIBRARY, description(**changes).to_dict())
