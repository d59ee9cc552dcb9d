"""The softmax role's steady loop in machine code."""

from __future__ import annotations

import re

from tirx_attn.runtime import Cubin

INSTRUCTION = re.compile(r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<text>[^;]+);")
LABEL = re.compile(r"^(?P<label>\.L_x_\d+):")
BRANCH = re.compile(r"\bBRA(?:\.\w+)*\s.*?\(?(?P<label>\.L_x_\d+)")


def steady_loop(cubin: Cubin) -> list[str]:
    """Instructions of the shortest loop that holds the exponentials of a row: one thread, one key tile."""
    code: list[tuple[int, str]] = []
    labels: dict[str, int] = {}
    for line in cubin.sass().splitlines():
        if found := LABEL.match(line.strip()):
            labels[found["label"]] = len(code)
        elif found := INSTRUCTION.match(line):
            code.append((int(found["address"], 16), found["text"]))
    loops = []
    for end, (_, text) in enumerate(code):
        branch = BRANCH.search(text)
        if branch and labels.get(branch["label"], end + 1) <= end:
            body = [text for _, text in code[labels[branch["label"]] : end + 1]]
            if sum("MUFU.EX2" in text for text in body) >= 64:
                loops.append(body)
    return min(loops, key=len)
