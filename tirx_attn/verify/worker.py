"""The simulator's process: keeps compiled kernels loaded and answers requests from `simulator.py`.

Run as a file with the number of an inherited connection. It imports nothing of this package, so it needs no
search path, and it alone carries the simulator's environment variables. One request at a time:

    (kind, key, json or None, arrays, limit)   kind is "run", "synccheck", "racecheck" or "build:" + one of
    them

Answers: any number of ("note", text), then ("ok", payload) or ("error", type name, message).
"""

from __future__ import annotations

import math
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

_GRACE_SECONDS = 30
"""The parent ends this process at the limit; past this grace it ends itself, should the parent be gone."""


class Worker:
    """Compiled kernels by (key of the PrimFunc, kind), and what to do with them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._functions: dict[str, Any] = {}
        self._modules: dict[tuple[str, str], Any] = {}

    def serve(self) -> None:
        while True:
            try:
                kind, key, source, arrays, limit = self._connection.recv()
            except EOFError:
                return
            signal.alarm(math.ceil(limit) + _GRACE_SECONDS)
            answer: tuple[Any, ...]
            try:
                answer = ("ok", self._answer(kind, key, source, arrays))
            except Exception as error:
                answer = ("error", type(error).__name__, str(error))
            signal.alarm(0)
            self._connection.send(answer)

    def _answer(self, kind: str, key: str, source: str | None, arrays: dict[str, Any]) -> dict[str, Any]:
        import tvm

        if key not in self._functions:
            self._functions[key] = tvm.ir.load_json(source)
        task = kind.removeprefix("build:")
        known = (key, task) in self._modules
        started = time.monotonic()
        module = self._module(task, key)
        built = time.monotonic()
        result: dict[str, Any] = {"build_seconds": 0.0 if known else built - started}
        if kind == task:
            self._connection.send(("note", "running"))
            result |= self._run(module, arrays) if task == "run" else self._check(task, key, arrays)
        result["seconds"] = time.monotonic() - built
        return result

    def _module(self, task: str, key: str) -> Any:
        """The compiled module; built, or loaded from the simulator's disk cache, on first use."""
        from tirx_harness.numsim import api
        from tirx_harness.numsim.checker_runner import transpile_native_checker_artifact

        if (key, task) not in self._modules:
            self._connection.send(("note", "building"))
            function = self._functions[key]
            self._modules[key, task] = (
                api.transpile(function) if task == "run" else transpile_native_checker_artifact(task, function)
            )
        return self._modules[key, task]

    def _run(self, module: Any, arrays: dict[str, Any]) -> dict[str, Any]:
        from tirx_harness.numsim import api

        result = api.Engine("auto").run(module, arrays)
        findings = [(str(item.get("kind", "")), str(item.get("message", item))) for item in result.diagnostics]
        return {"outputs": dict(result.outputs), "verdict": result.verdict, "findings": findings}

    def _check(self, checker: str, key: str, arrays: dict[str, Any]) -> dict[str, Any]:
        import tirx_harness

        report = getattr(tirx_harness, checker)(self._functions[key], arrays)
        return {
            "verdict": report.verdict,
            "findings": [(item.kind, item.message) for item in report.findings],
        }


if __name__ == "__main__":
    import ml_dtypes  # noqa: F401  (arrays may be bfloat16)

    Worker(Connection(int(sys.argv[1]))).serve()
