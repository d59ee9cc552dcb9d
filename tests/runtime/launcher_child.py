"""The process behind `tests.runtime.launcher`: compiles one kernel over the stubs and calls its host launcher.

JSON lines in, JSON lines out: first the request for the kernel, then one list of arguments per call.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pickle
import re
import struct
import sys
from pathlib import Path
from typing import Any

TENSOR_MAP = "CUtensorMap"
FORMATS = {"int": "i", "uint": "I", "int64_t": "q", "uint64_t": "Q", "float": "f", "double": "d", "pointer": "Q"}
"""How `struct` reads a kernel parameter of a C type; tensor maps aside, which are 128 opaque bytes."""


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TVM prints is no reply
    request = json.loads(sys.stdin.readline())
    log = Path(os.environ["CUDA_STUB_LOG"])
    driver = load_stubs(Path(request["stubs"]))
    kernel, source = compile_kernel(request["builder"], pickle.loads(bytes.fromhex(request["kwargs"])), request["arch"])
    parameters = kernel_parameters(source)
    sizes = [128 if kind == TENSOR_MAP else struct.calcsize(FORMATS[kind]) for _, kind in parameters]
    if driver.stub_parameters((ctypes.c_int * len(sizes))(*sizes), len(sizes)) != 0:
        raise ValueError(f"{len(sizes)} kernel parameters are more than the stub can record")
    print(json.dumps({"parameters": parameters, "source": source}), file=replies, flush=True)
    for line in sys.stdin:
        log.write_text("")
        error = None
        try:
            kernel(*[dlpack_tensor(**value) if isinstance(value, dict) else value for value in json.loads(line)])
        except Exception as raised:
            error = [type(raised).__name__, str(raised)]
        records = [json.loads(record) for record in log.read_text().splitlines()]
        print(json.dumps({"error": error, "records": records}), file=replies, flush=True)


def load_stubs(folder: Path) -> ctypes.CDLL:
    """Make the stubs the process's CUDA: a library that needs these sonames later gets what is loaded already."""
    sys.modules["torch"] = None  # tvm_ffi would import it, and it brings a CUDA of its own
    driver, _ = (ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in ("libcuda.so.1", "libcudart.so.13"))
    return driver


def compile_kernel(builder: str, kwargs: dict[str, Any], arch: str) -> tuple[Any, str]:
    """The host launcher of what `builder` makes, and the kernel's CUDA source."""
    import tvm
    import tvm_ffi

    sources: list[str] = []

    # No machine code: the stub's driver loads anything.
    @tvm_ffi.register_global_func("tvm_callback_cuda_compile", override=True)
    def keep_source(source: str) -> bytes:
        sources.append(source)
        return b"\x7fELF"

    module, function = builder.rsplit(".", 1)
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    with target:
        func = getattr(importlib.import_module(module), function)(**kwargs)
        executable = tvm.compile(tvm.IRModule({"main": func}), target=target, tir_pipeline="tirx")
    (source,) = sources
    return executable[str(func.attrs["global_symbol"])], source


def kernel_parameters(source: str) -> list[tuple[str, str]]:
    """(name, C type) of each parameter of the one kernel in `source`."""
    (text,) = re.findall(r"__global__[^;{]*_kernel\s*\(([^;{]*)\)\s*{", source)
    parameters = []
    for declaration in text.split(","):
        *words, name = re.sub(r"__grid_constant__|__restrict__|\bconst\b|\*", " ", declaration).split()
        parameters.append((name, "pointer" if "*" in declaration else " ".join(words)))
    return parameters


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_owned: list[DLManagedTensor] = []
"""No tensor has a deleter, so they live as long as the process."""


def dlpack_tensor(
    shape: list[int], strides: list[int], dtype: str, address: int, byte_offset: int, device: list[int]
) -> Any:
    """A tensor at an address that nobody reads; made by hand because frameworks make only what they can store."""
    import tvm_ffi

    kind, bits = re.fullmatch(r"([a-z]+)(\d+)", dtype).groups()
    managed = DLManagedTensor(
        DLTensor(
            data=address,
            device_type=device[0],
            device_id=device[1],
            ndim=len(shape),
            code={"int": 0, "uint": 1, "float": 2, "bfloat": 4}[kind],
            bits=int(bits),
            lanes=1,
            shape=(ctypes.c_int64 * len(shape))(*shape),
            strides=(ctypes.c_int64 * len(strides))(*strides),
            byte_offset=byte_offset,
        )
    )
    _owned.append(managed)
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return tvm_ffi.from_dlpack(Exporter(new_capsule(ctypes.addressof(managed), b"dltensor", None), device))


class Exporter:
    """What `from_dlpack` asks for."""

    def __init__(self, capsule: object, device: list[int]) -> None:
        self._capsule, self._device = capsule, tuple(device)

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, ...]:
        return self._device


if __name__ == "__main__":
    main()
