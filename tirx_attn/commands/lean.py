"""TVM without torch in a process of our own: TVM imports torch wherever it is installed, and that takes seconds."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _NoTorchForTvm(MetaPathFinder):
    """Hides torch while TVM and tvm-ffi are being imported, and from nobody else."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == "torch" and (_is_starting("tvm_ffi") or _is_starting("tvm")):
            raise ModuleNotFoundError("torch is hidden while TVM starts", name=name)


def _is_starting(module: str) -> bool:
    spec: Any = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def hide_torch_from_tvm() -> None:
    """From now on TVM starts without torch in this process, unless torch was imported before it.

    For processes that are ours alone. What TVM loses is its own way of taking tensors; they still come by DLPack.
    """
    if not any(isinstance(finder, _NoTorchForTvm) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoTorchForTvm())
