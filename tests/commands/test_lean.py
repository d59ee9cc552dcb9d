"""No command imports torch, which costs seconds, unless it runs on a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tirx_attn.commands.lean import hide_torch_from_tvm

SHAPE = "--shape 1,256,384,2,1,128"
COMMANDS = (
    f"plan {SHAPE}",
    f"build {SHAPE} -o {{folder}}/build",
    f"export {SHAPE} -o {{folder}}/kernel.so",
    f"check {SHAPE} --simulate none",
    f"check {SHAPE} --arch sm_90a --simulate none",
    f"code {SHAPE}",
    f"model {SHAPE}",
    f"explore {SHAPE} -o {{folder}}/page",
    f"tune {SHAPE} --knob kv_stages",
    "variants --variant statistics-tmem --no-simulate",
    "mutants --simulate none",
    "cache --folder {folder}/cache",
)
PROGRAM = """
import sys
from itertools import islice
from tirx_attn import cli

for words in sys.argv[1:]:
    if words.startswith("mutants"):  # some are enough to import all that judges them
        from tirx_attn.verify import mutate

        every = mutate.mutants
        mutate.mutants = lambda func: list(islice(every(func), 2))
    try:
        sys.argv = ["tirx-attn", *words.split()]
        cli.main()
    except SystemExit as ended:
        assert not ended.code, (words, ended.code)
    assert "torch" not in sys.modules, f"{words}: imported torch"
    print("done:", words.split()[0], file=sys.stderr)
assert "tvm" in sys.modules
import torch, tvm
print("torch", torch.ones(3).sum().item(), file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.torch
def test_no_command_imports_torch_and_it_can_be_imported_afterwards(tmp_path):
    pytest.importorskip("torch")
    words = [command.format(folder=tmp_path) for command in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = [line.removeprefix("done: ") for line in done.stderr.splitlines() if line.startswith("done: ")]
    assert said == [command.split()[0] for command in COMMANDS]
    assert done.stderr.splitlines()[-1] == "torch 3.0"


def test_it_is_hidden_once_and_from_tvm_alone(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = len(sys.meta_path)
    hide_torch_from_tvm()
    hide_torch_from_tvm()
    assert len(sys.meta_path) == before + 1
    finder = sys.meta_path[0]
    assert finder.find_spec("torch") is None  # TVM is not starting here
    monkeypatch.setitem(sys.modules, "tvm", type(sys)("tvm"))
    sys.modules["tvm"].__spec__ = type("Spec", (), {"_initializing": True})()
    assert finder.find_spec("numpy") is None
    for name in ("torch", "torch.utils.dlpack"):
        with pytest.raises(ModuleNotFoundError, match="torch is hidden"):
            finder.find_spec(name)
