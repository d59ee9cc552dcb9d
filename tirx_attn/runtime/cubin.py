"""Machine code of one kernel, and what it needs of an SM."""

from __future__ import annotations

import re
import threading
from dataclasses import asdict, dataclass, field

from tirx_attn.runtime import elf, sass
from tirx_attn.runtime.errors import CompileError
from tirx_attn.runtime.files import scratch_folder
from tirx_attn.runtime.toolchain import run_nvdisasm


@dataclass(frozen=True)
class Resources:
    """What one kernel needs, read from its machine code. Sizes in bytes.

    Attributes:
        kernel: name of the `__global__` function.
        registers: registers per thread at launch.
        register_requests: registers per thread that each setmaxnreg asks for, in address order; empty where
            ptxas ignored them.
        spill_instructions: STL and LDL instructions, i.e. accesses to local memory.
        spill_bytes: bytes stored and loaded by register spills, by ptxas' own count; None without its log.
        local_bytes: local memory (stack frame) per thread.
        static_smem: shared memory declared in the source, without the 1024 bytes that the system keeps.
        dynamic_smem: shared memory that the launch adds; None where the caller did not say.
        barriers: hardware barriers per CTA, barrier 0 included.
        code_bytes: size of the code.
        instructions: machine instructions, padding included.
        nvrtc_version: NVRTC package that compiled it.
        assembler_version: assembler release as the machine code names it.
    """

    kernel: str
    registers: int
    register_requests: tuple[int, ...]
    spill_instructions: int
    spill_bytes: int | None
    local_bytes: int
    static_smem: int
    dynamic_smem: int | None
    barriers: int
    code_bytes: int
    instructions: int
    nvrtc_version: str
    assembler_version: str

    def to_dict(self) -> dict[str, object]:
        """The fields as a JSON-able dict."""
        return {**asdict(self), "register_requests": list(self.register_requests)}


@dataclass(frozen=True)
class Cubin:
    """Machine code as NVRTC returned it.

    Attributes:
        arch: real architecture it was compiled for.
        image: the ELF file.
        source_hash: SHA-256 of the source, in hex.
        nvrtc_version: version of the NVRTC package.
        log: what NVRTC and ptxas printed; ptxas reports its figures there on success too.
        seconds: time the compilation took.
        dynamic_smem: bytes of dynamic shared memory a launch adds; None if unknown.
    """

    arch: str
    image: bytes = field(repr=False)
    source_hash: str
    nvrtc_version: str
    log: str = field(repr=False)
    seconds: float
    dynamic_smem: int | None = None
    _memo: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    @classmethod
    def of_image(cls, image: bytes) -> Cubin:
        """Machine code that was compiled elsewhere: no log, no NVRTC version; the architecture as the file tells.

        Raises:
            CompileError: `image` is no ELF file of a GPU or is cut short.
        """
        return cls(elf.architecture(image), image, "", "", "", 0.0)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the `__global__` functions in it."""
        return tuple(kernel.name for kernel in elf.kernels(self.image))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the log, one line each."""
        return tuple(line.strip() for line in self.log.splitlines() if re.search(r"\bwarning\b", line))

    @property
    def slow_code(self) -> tuple[str, ...]:
        """What ptxas says it could not do for speed, one line each: it serialised WGMMAs, ignored setmaxnreg, spilled.

        It says so in its log only, and compiles all the same.
        """
        spilled = re.compile(r"\b[1-9]\d* bytes spill (stores|loads)")
        return tuple(line.strip() for line in self.log.splitlines() if "(C75" in line or spilled.search(line))

    def refuse_slow_code(self) -> None:
        """For architectures on which none of it is meant to happen.

        Raises:
            CompileError: there is some; `log` has the lines.
        """
        if self.slow_code:
            raise CompileError(f"ptxas made slow machine code for {self.arch}", "\n".join(self.slow_code))

    def sass(self) -> str:
        """Disassembly of the code.

        Raises:
            ToolchainError: nvdisasm is not installed or fails, or $TMPDIR cannot be used.
        """
        with self._lock:
            if "sass" not in self._memo:
                with scratch_folder() as folder:
                    file = folder / "kernel.cubin"
                    file.write_bytes(self.image)
                    self._memo["sass"] = run_nvdisasm(file)
            return self._memo["sass"]

    def resources(self, kernel: str | None = None) -> Resources:
        """What `kernel` needs; the name may be left out where the cubin holds one kernel.

        Raises:
            ValueError: the cubin holds no such kernel, or several and none was named.
            ToolchainError: nvdisasm is not installed or fails.
        """
        facts = self._pick(kernel)
        code = sass.instructions(self.sass(), facts.name)
        if not code:
            raise CompileError(f"the disassembly holds no instruction of {facts.name}")
        return Resources(
            kernel=facts.name,
            registers=facts.registers,
            register_requests=sass.register_requests(code),
            spill_instructions=sass.spill_instructions(code),
            spill_bytes=_spill_bytes(self.log, facts.name),
            local_bytes=facts.frame,
            static_smem=facts.static_smem,
            dynamic_smem=self.dynamic_smem,
            barriers=facts.barriers,
            code_bytes=facts.code,
            instructions=len(code),
            nvrtc_version=self.nvrtc_version,
            assembler_version=elf.assembler_version(self.image),
        )

    def _pick(self, kernel: str | None) -> elf.KernelFacts:
        found = {facts.name: facts for facts in elf.kernels(self.image)}
        if kernel is None and len(found) == 1:
            return next(iter(found.values()))
        if kernel is None or kernel not in found:
            raise ValueError(f"kernel={kernel!r}: allowed values are {', '.join(found) or '(none: no kernel)'}")
        return found[kernel]


def _spill_bytes(log: str, kernel: str) -> int | None:
    """Spill stores plus spill loads in ptxas' report on `kernel`."""
    report = log.partition(f"Function properties for {kernel}\n")[2]
    match = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    return int(match[1]) + int(match[2]) if match else None
