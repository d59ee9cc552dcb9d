"""The timeline model: one structural play of a kernel, replayed with the costs of its machine code and of an SM."""

from __future__ import annotations

from tirx_attn.analysis.timeline.constants import BLACKWELL, HOPPER, Constants, constants_for
from tirx_attn.analysis.timeline.figures import CodeFigures
from tirx_attn.analysis.timeline.model import Prediction, predict
from tirx_attn.analysis.timeline.tasks import Tasks

__all__ = ["BLACKWELL", "HOPPER", "CodeFigures", "Constants", "Prediction", "Tasks", "constants_for", "predict"]
