"""A cubin with the figures that another reader of SASS, written independently, found in it.

causal.cubin.xz is `build(AttentionConfig(1, 8192, 8192, 32, 32, 128, True))` by NVRTC 13.2.78 at some time: what the
generator makes today does not matter. causal.json has the figures: counts by kind, and each innermost loop.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from tirx_attn.analysis import CodeReport, code_report
from tirx_attn.runtime import Cubin

FOLDER = Path(__file__).parent


@cache
def image() -> bytes:
    return lzma.decompress((FOLDER / "causal.cubin.xz").read_bytes())


@cache
def report() -> CodeReport:
    return code_report(Cubin.of_image(image()))


@cache
def figures() -> dict[str, Any]:
    return json.loads((FOLDER / "causal.json").read_text())
