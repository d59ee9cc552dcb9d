"""Shared libraries of one function that returns a number, sealed as exported kernels are. No GPU, no CUDA."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.runtime.artifacts import description
from tirx_attn.runtime.artifact import seal

SOURCE = """
#include <stdint.h>
typedef struct { int32_t type_index; uint32_t unused; int64_t value; } Any; /* TVMFFIAny; 1 is the type of int64 */
int __tvm_ffi_%s(void* self, const Any* arguments, int32_t count, Any* result) {
  result->type_index = 1;
  result->unused = 0;
  result->value = %d;
  return 0;
}
"""


def numbered(folder: Path, number: int, **changes: Any) -> bytes:
    """Content of the file of a kernel whose call returns a number."""
    made = description(**changes)
    source, library = folder / f"{number}.c", folder / f"{number}.so"
    source.write_text(SOURCE % (made.function, number))
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", source, "-o", library], check=True, timeout=600)
    return seal(library.read_bytes(), made.to_dict())
