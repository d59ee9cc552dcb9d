"""What the parser sees of the stack while a kernel is parsed, and what all others see."""

from __future__ import annotations

import inspect
import threading

import pytest

pytest.importorskip("tvm")

from tirx_attn.tracing import turn


def places():
    return [(info.filename, info.lineno, info.function, info.code_context) for info in inspect.stack()[:2]]


def test_the_parsing_thread_sees_the_same_places():
    complete = places()
    with turn():
        quick = places()
    (file, _, function, context), caller = complete[0], complete[1]
    assert (quick[0][0], quick[0][2], quick[0][3]) == (file, function, context)
    assert (quick[1][0], quick[1][2]) == (caller[0], caller[2])
    assert quick[1][3] == ["        quick = places()\n"]


def test_other_threads_see_what_they_always_do():
    found = []
    with turn():
        other = threading.Thread(target=lambda: found.extend(inspect.stack()))
        other.start()
        other.join()
    # Places of the columns come from the standard library alone; Python 3.10 has none.
    assert found[0].function == "<lambda>"
    assert getattr(found[0], "positions", True)


def test_nothing_stays_changed_where_parsing_fails():
    before = inspect.getouterframes
    with pytest.raises(RuntimeError), turn():
        raise RuntimeError
    assert inspect.getouterframes is before
