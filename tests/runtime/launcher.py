"""Calls the real host launcher of a kernel without a GPU and tells what it would have given to the CUDA driver."""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tests.runtime.launcher_child import FORMATS, TENSOR_MAP

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("cuda_stub.c")
STUBS = {"libcuda.so.1": "DRIVER", "libcudart.so.13": "RUNTIME"}
"""The libraries that libtvm_runtime_cuda.so needs, and the part of the source that makes each."""

CUDA, CPU = (2, 0), (1, 0)


@dataclass(frozen=True)
class Tensor:
    """A tensor as DLPack describes it. Nothing is allocated, so any strides and addresses do; strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = "float16"
    address: int = 1 << 40
    byte_offset: int = 0
    device: tuple[int, int] = CUDA


def compact(*shape: int, **more: Any) -> Tensor:
    return Tensor(shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))), **more)


def view(array: np.ndarray, **more: Any) -> Tensor:
    """The tensor with the shape, the strides and the offset into its storage of a NumPy view."""
    storage = array
    while isinstance(storage.base, np.ndarray):
        storage = storage.base
    offset = array.__array_interface__["data"][0] - storage.__array_interface__["data"][0]
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return Tensor(array.shape, strides, array.dtype.name, byte_offset=offset, **more)


@dataclass(frozen=True)
class Encode:
    """Arguments of one cuTensorMapEncodeTiled, innermost dimension first; strides in bytes, without the innermost."""

    number: int
    dtype: int
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int
    swizzle: int
    l2_promotion: int
    oob_fill: int
    allowed: bool


@dataclass(frozen=True)
class Launch:
    """One cuLaunchKernelEx. A parameter that is a tensor map stands as the Encode of the same call that made it."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...]
    smem: int
    stream: int
    parameters: dict[str, Encode | int | float]

    def descriptors(self, buffer: str) -> list[Encode]:
        """Those of a buffer of the PrimFunc; TVM makes one for each place in the kernel that copies it."""
        pattern = re.compile(rf"{buffer}_tensormap(_\d+)?")
        return [value for name, value in self.parameters.items() if pattern.fullmatch(name)]


@dataclass(frozen=True)
class Call:
    """What one call of the launcher did: `error` is "Type: text", or None."""

    error: str | None
    encodes: tuple[Encode, ...]
    launch: Launch | None


def build_stubs(folder: Path) -> Path:
    """Compile both stub libraries into `folder`."""
    for name, part in STUBS.items():
        # The TVM runtime asks for symbols of the version "libcudart.so.13".
        link = (f"-Wl,-soname,{name}", "-Wl,--default-symver")
        command = ("cc", "-std=c11", "-O1", "-shared", "-fPIC", f"-D{part}", SOURCE, "-o", folder / name, *link)
        subprocess.run(command, check=True, timeout=600)
    return folder


class Launcher:
    """A compiled kernel in a process of its own, to be called any number of times.

    Args:
        stubs: folder that `build_stubs` filled.
        builder: dotted name of a function that returns a PrimFunc.
        kwargs: its arguments; anything that pickles.
        arch: to compile for.
        seconds: limit of the compilation, and of each call.

    Attributes:
        source: the kernel's CUDA source.
    """

    def __init__(
        self,
        stubs: Path,
        builder: str,
        kwargs: dict[str, Any] | None = None,
        *,
        arch: str = "sm_100a",
        seconds: float = 60,
    ) -> None:
        self._seconds = seconds
        self._folder = tempfile.TemporaryDirectory(prefix="launcher-")
        self._stderr = (Path(self._folder.name) / "stderr").open("w+")
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tests.runtime.launcher_child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            cwd=ROOT,
            env={**os.environ, "CUDA_STUB_LOG": str(Path(self._folder.name) / "log")},
        )
        request = {"stubs": str(stubs), "builder": builder, "kwargs": pickle.dumps(kwargs or {}).hex(), "arch": arch}
        try:
            reply = self._ask(request)
        except BaseException:
            self.close()
            raise
        self._parameters: list[tuple[str, str]] = reply["parameters"]
        self.source: str = reply["source"]

    def __call__(self, *arguments: Tensor | int | float | None) -> Call:
        """Call the launcher with the PrimFunc's arguments in order."""
        reply = self._ask([asdict(value) if isinstance(value, Tensor) else value for value in arguments])
        records = [
            {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
            for record in reply["records"]
        ]
        encodes = {record["number"]: Encode(**record) for record in records if record.pop("call") == "encode"}
        launches = [self._launch(record, encodes) for record in records if "grid" in record]
        if len(launches) > 1:
            raise RuntimeError(f"{len(launches)} launches in one call")
        error = None if reply["error"] is None else ": ".join(reply["error"])
        return Call(error, tuple(encodes.values()), launches[0] if launches else None)

    def _launch(self, record: dict[str, Any], encodes: dict[int, Encode]) -> Launch:
        raw = (bytes.fromhex(text) for text in record.pop("parameters"))
        parameters: dict[str, Encode | int | float] = {}
        for (name, kind), data in zip(self._parameters, raw, strict=True):
            if kind == TENSOR_MAP:
                parameters[name] = encodes[struct.unpack_from("Q", data)[0]]
            else:
                (parameters[name],) = struct.unpack(FORMATS[kind], data)
        return Launch(**record, parameters=parameters)

    def _ask(self, question: Any) -> Any:
        timer = threading.Timer(self._seconds, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            reply = self._process.stdout.readline()
        except BrokenPipeError:
            reply = ""
        finally:
            timer.cancel()
        if not reply:
            status = self._process.wait(self._seconds)
            self._stderr.seek(0)
            raise RuntimeError(f"the launcher's process ended with {status}:\n{self._stderr.read()[-4000:]}")
        return json.loads(reply)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._stderr.close()
        self._folder.cleanup()

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
