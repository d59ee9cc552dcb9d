"""How a kernel is parsed, one thread at a time since TVM's parser has shared state; and the PrimFunc of a problem."""

from __future__ import annotations

import inspect
import linecache
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tvm.tirx import PrimFunc

from tirx_attn.barriers import PROTOCOL_ATTRIBUTE
from tirx_attn.config import RUNTIME, AttentionConfig

_TURN = threading.Lock()


@contextmanager
def turn() -> Iterator[None]:
    """Hold the parser, and let it look at the stack in less time.

    It asks `inspect.getouterframes` for the stack at each function that it inlines, some hundred frames deep, and uses
    the frames' variables and places. The standard library also looks up the module and the source file of each frame,
    which is most of the time of a trace. Meanwhile this thread gets the places alone; all others get what they ask for.
    """
    with _TURN:
        complete, parsing = inspect.getouterframes, threading.get_ident()

        def getouterframes(frame: Any, context: int = 1) -> list[inspect.FrameInfo]:
            return list(_places(frame)) if threading.get_ident() == parsing else complete(frame, context)

        inspect.getouterframes = getouterframes
        try:
            yield
        finally:
            inspect.getouterframes = complete


def _places(frame: FrameType | None) -> Iterator[inspect.FrameInfo]:
    """A frame and those that it was called from: file, line, function, and the text of the line."""
    while frame is not None:
        code, line = frame.f_code, frame.f_lineno
        text = [linecache.getline(code.co_filename, line)]
        yield inspect.FrameInfo(frame, code.co_filename, line, code.co_name, text, 0)
        frame = frame.f_back


def finish(func: PrimFunc, config: AttentionConfig, declared: str) -> PrimFunc:
    """The function without the parameters that the problem does not ask for, carrying its declared protocol."""
    present = {"LSE": config.return_lse, "scale": config.scale == RUNTIME}
    params = [param for param in func.params if present.get(param.name, True)]
    return PrimFunc(params, func.body, func.ret_type, func.attrs).with_attr(PROTOCOL_ATTRIBUTE, declared)
