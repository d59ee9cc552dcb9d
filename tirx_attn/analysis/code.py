"""The machine-code report of one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tirx_attn.analysis import kinds, roles
from tirx_attn.analysis.listing import listing
from tirx_attn.analysis.loop import RoleLoop, measure
from tirx_attn.analysis.roles import role_bodies
from tirx_attn.config import HEAD_DIMS, TILE_KEYS
from tirx_attn.runtime import elf
from tirx_attn.runtime.cubin import Cubin, Resources
from tirx_attn.targets import TARGETS

# Elements of P that a thread computes for a tile: its row of 128 keys, or its share of a WGMMA's 64 rows.
_ELEMENTS = {roles.SOFTMAX: TILE_KEYS, roles.CONSUMER: TILE_KEYS // 2}


@dataclass(frozen=True)
class CodeReport:
    """Figures of one kernel.

    Attributes:
        kernel: name of the `__global__` function.
        arch: architecture of the machine code; empty where the file does not tell.
        head_size: D of the kernel, by which tiles are counted in mma and correction.
        instructions: machine instructions without the padding at the end.
        kinds: kind -> instructions of the whole kernel.
        loops: all innermost loops by address, and the code around the steady loop where "masked" is that.
        resources: registers, setmaxnreg, spills, barriers, sizes, assembler.
    """

    kernel: str
    arch: str
    head_size: int
    instructions: int
    kinds: dict[str, int]
    loops: tuple[RoleLoop, ...]
    resources: Resources

    def role(self, name: str) -> RoleLoop | None:
        """The loop that is shown for a role, None where the kernel has none.

        Of several: the one with the fewest instructions a tile; for correction, mma and load the one with the most
        TMEM columns loaded, UTC*MMA or UTMALDG.

        Raises:
            ValueError: no role is called so.
        """
        if name not in roles.ROLES:
            raise ValueError(f"name={name!r}: allowed values are {', '.join(roles.ROLES)}")
        weights: dict[str, Callable[[RoleLoop], float]] = {
            roles.CORRECTION: lambda loop: loop.ldtm_columns,
            roles.MMA: lambda loop: loop.kinds[kinds.MMA],
            roles.LOAD: lambda loop: loop.kinds["UTMALDG"],
        }
        weight = weights.get(name, lambda loop: -loop.per_tile(loop.instructions))
        return max((loop for loop in self.loops if loop.role == name), key=weight, default=None)

    @property
    def shown(self) -> tuple[RoleLoop, ...]:
        """The loop of each role that the kernel has, in the order of the tables."""
        found = (self.role(name) for name in roles.ROLES)
        return tuple(loop for loop in found if loop is not None)

    def mufu_share(self, loop: RoleLoop) -> float | None:
        """Part of a loop's stall sum in which one warp keeps its partition's MUFU busy; None for an unknown GPU."""
        target = TARGETS.get(self.arch)
        if target is None or not loop.stalls:
            return None
        return loop.mufu * target.mufu_cycles / loop.stalls

    def to_dict(self) -> dict[str, object]:
        """The fields as a JSON-able dict; `roles` has the index in `loops` of the loop that is shown for each role."""
        return {
            "kernel": self.kernel,
            "arch": self.arch,
            "head_size": self.head_size,
            "instructions": self.instructions,
            "kinds": self.kinds,
            "roles": {loop.role: self.loops.index(loop) for loop in self.shown},
            "loops": [{**loop.to_dict(), "mufu_share": self.mufu_share(loop)} for loop in self.loops],
            "resources": self.resources.to_dict(),
        }


def code_report(cubin: Cubin, kernel: str | None = None, *, head_size: int = 128) -> CodeReport:
    """Report on one kernel's machine code.

    Args:
        cubin: the machine code; of this package's kernels or of others with the same roles.
        kernel: its name; may be left out where the cubin holds one kernel.
        head_size: D. The machine code does not tell; it counts the tiles of the mma and correction loops.

    Raises:
        ValueError: `head_size` is not allowed, or the cubin holds no such kernel, or several and none was named.
        CompileError: the cubin cannot be read.
        ToolchainError: nvdisasm is not installed or fails.
    """
    if head_size not in HEAD_DIMS:
        raise ValueError(f"head_size={head_size!r}: allowed values are {', '.join(map(str, HEAD_DIMS))}")
    resources = cubin.resources(kernel)
    lines = listing(cubin.sass(), resources.kernel, elf.code(cubin.image, resources.kernel))
    bodies = role_bodies(lines)
    # Masked code does not tell rows of 128 keys from WGMMA fragments by itself: the steady loop does.
    steady = roles.CONSUMER if any(body.role == roles.CONSUMER for body in bodies) else roles.SOFTMAX
    return CodeReport(
        kernel=resources.kernel,
        arch=cubin.arch,
        head_size=head_size,
        instructions=len(lines),
        kinds=kinds.count(line.instruction for line in lines),
        loops=tuple(measure(body, head_size=head_size, elements_per_tile=_ELEMENTS[steady]) for body in bodies),
        resources=resources,
    )
