"""CUDA source -> cubin, by the NVRTC of the environment."""

from __future__ import annotations

import ctypes
import hashlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tirx_attn.runtime.cubin import Cubin
from tirx_attn.runtime.errors import CompileError
from tirx_attn.runtime.toolchain import Nvrtc, nvrtc

DEFAULT_SECONDS = 300.0
"""How long one compilation may take before it is cancelled."""

OPTIONS = (
    "-default-device",
    "--device-int128",
    "--use_fast_math",
    "--diag-suppress=177,550",  # unused names, of which every generated file is full
    "--ptxas-options=-v",
    "--ptxas-options=--register-usage-level=10",
    "--ptxas-options=--warn-on-local-memory-usage",
)
"""What decides the machine code besides source and architecture: the choices of TVM's own NVRTC helper."""

_PRELUDE_NAME = "tirx_attn_prelude.h"
_PRELUDE = """\
// Host headers that generated code relies on do not exist for NVRTC.
struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };
typedef struct CUtensorMap_st CUtensorMap;
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
"""


def compile_cubin(
    source: str,
    arch: str = "sm_100a",
    *,
    options: tuple[str, ...] = (),
    dynamic_smem: int | None = None,
    timeout: float = DEFAULT_SECONDS,
) -> Cubin:
    """Compile CUDA source to machine code. No GPU, no toolkit, no environment variable takes part.

    Threads may compile at the same time.

    Args:
        source: CUDA C++ with at least one `__global__` function.
        arch: real architecture, such as sm_100a or sm_103a.
        options: further NVRTC options, after `OPTIONS`.
        dynamic_smem: bytes of dynamic shared memory that the launch will ask for; kept for `Cubin.resources`.
        timeout: seconds after which the compilation is cancelled.

    Raises:
        ValueError: `arch` does not look like sm_NN, sm_NNa or sm_NNf, or `timeout` is not positive.
        CompileError: NVRTC refuses the source (its log is in `log`) or the time is over.
        ToolchainError: NVRTC or its headers are not installed.
    """
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise ValueError(f"arch={arch!r}: allowed values are real architectures such as sm_100a")
    if not timeout > 0:
        raise ValueError(f"timeout={timeout!r}: allowed values are positive seconds")
    tools = nvrtc()
    arguments = [f"--gpu-architecture={arch}", *OPTIONS, f"--pre-include={_PRELUDE_NAME}"]
    arguments += [f"--include-path={folder}" for folder in tools.include_dirs]
    arguments += options
    started = time.perf_counter()
    image, log = _Compilation(tools, source).run(arguments, arch, timeout)
    return Cubin(
        arch=arch,
        image=image,
        source_hash=hashlib.sha256(source.encode()).hexdigest(),
        nvrtc_version=tools.version,
        log=log,
        seconds=time.perf_counter() - started,
        dynamic_smem=dynamic_smem,
    )


class _Compilation:
    """One NVRTC program, from creation to destruction."""

    def __init__(self, tools: Nvrtc, source: str) -> None:
        self._api: Any = tools.api
        self._source = source
        self._program: Any = None
        self._deadline = 0.0
        self._abandoned = False
        # NVRTC calls it again and again while it works; any answer but 0 cancels the compilation.
        self._watch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self._cancelled)

    def run(self, arguments: list[str], arch: str, timeout: float) -> tuple[bytes, str]:
        """Cubin and log."""
        # A second thread does the work: Ctrl-C interrupts the waiting one, and never the callback, through whose C
        # caller an exception could not pass.
        with ThreadPoolExecutor(1, thread_name_prefix="nvrtc") as pool:
            try:
                return pool.submit(self._compile, arguments, arch, timeout).result()
            except BaseException:
                self._abandoned = True
                raise

    def _compile(self, arguments: list[str], arch: str, timeout: float) -> tuple[bytes, str]:
        self._program = self._call(
            self._api.nvrtcCreateProgram,
            self._source.encode(),
            b"kernel.cu",
            1,
            [_PRELUDE.encode()],
            [_PRELUDE_NAME.encode()],
        )
        try:
            self._deadline = time.monotonic() + timeout
            watch = ctypes.cast(self._watch, ctypes.c_void_p).value
            self._call(self._api.nvrtcSetFlowCallback, self._program, watch, 0)
            encoded = [argument.encode() for argument in arguments]
            (status,) = self._api.nvrtcCompileProgram(self._program, len(encoded), encoded)
            log = self._text(self._api.nvrtcGetProgramLogSize, self._api.nvrtcGetProgramLog)
            if status == self._api.nvrtcResult.NVRTC_ERROR_CANCELLED:
                raise CompileError(f"NVRTC took longer than {timeout:g} s for {arch} and was cancelled", log)
            if int(status) != 0:
                raise CompileError(f"NVRTC cannot compile the source for {arch} ({status.name})", log)
            image = self._bytes(self._api.nvrtcGetCUBINSize, self._api.nvrtcGetCUBIN)
            if not image:
                raise CompileError(f"NVRTC returned no machine code for {arch}", log)
            return image, log
        finally:
            self._api.nvrtcDestroyProgram(self._program)

    def _cancelled(self, _payload: object, _reserved: object) -> int:
        return int(self._abandoned or time.monotonic() > self._deadline)

    def _call(self, function: Any, *arguments: Any) -> Any:
        """Result of an API function that answers (status, result) or (status,)."""
        status, *result = function(*arguments)
        if int(status) != 0:
            raise CompileError(f"{function.__name__} failed ({status.name})")
        return result[0] if result else None

    def _bytes(self, size_of: Any, read: Any) -> bytes:
        buffer = bytearray(self._call(size_of, self._program))
        if buffer:
            self._call(read, self._program, buffer)
        return bytes(buffer)

    def _text(self, size_of: Any, read: Any) -> str:
        return self._bytes(size_of, read).rstrip(b"\0").decode(errors="replace").strip()
