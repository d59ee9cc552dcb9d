"""From a PrimFunc to machine code: CUDA source by TVM, a cubin by NVRTC, figures read back from the cubin.

Neither a GPU nor a CUDA toolkit is needed; everything comes from packages of the environment. Importing this
package loads neither TVM nor NVRTC.
"""

from __future__ import annotations

from tirx_attn.runtime.artifact import Description
from tirx_attn.runtime.builder import Build, build
from tirx_attn.runtime.cache import KernelCache
from tirx_attn.runtime.codegen import dynamic_smem_bytes, generate_cuda
from tirx_attn.runtime.cubin import Cubin, Resources
from tirx_attn.runtime.errors import ArtifactError, CompileError, ToolchainError
from tirx_attn.runtime.export import export
from tirx_attn.runtime.files import write_atomic
from tirx_attn.runtime.load import Kernel, load
from tirx_attn.runtime.nvrtc import compile_cubin

__all__ = [
    "ArtifactError",
    "Build",
    "CompileError",
    "Cubin",
    "Description",
    "Kernel",
    "KernelCache",
    "Resources",
    "ToolchainError",
    "build",
    "compile_cubin",
    "dynamic_smem_bytes",
    "export",
    "generate_cuda",
    "load",
    "write_atomic",
]
