"""Facts of the GPUs that kernels are generated for. The only place where such numbers stand."""

from __future__ import annotations

from dataclasses import dataclass

TMA_ALIGNMENT = 16
"""Bytes that the base address and the strides of a TMA descriptor are multiples of."""

TMA_MAX_STRIDE = 2**40
"""Strides of a TMA descriptor are smaller, in bytes."""


WARP_THREADS = 32
PARTITIONS = 4
"""Parts of an SM, each with a quarter of its function units and one warp's instruction a cycle."""


@dataclass(frozen=True)
class Target:
    """What one GPU offers to a kernel.

    Attributes:
        name: product name.
        arch: NVRTC and TVM architecture name.
        mma: its tensor cores' instructions, "tcgen05" or "wgmma".
        sms: streaming multiprocessors.
        smem_bytes: dynamic shared memory one CTA may take, in bytes.
        tmem_columns: tensor-memory columns of 128 lanes x 32 bit per SM; 0 without tensor memory.
        registers: 32-bit registers per SM.
        mbarrier_bytes: size of one mbarrier, in bytes.
        named_barriers: hardware named barriers per CTA; barrier 0 belongs to the CTA-wide sync.
        mma_flop_per_clock: dense fp16 floating-point operations per clock and SM.
        exp2_per_clock: MUFU.EX2 results per clock and SM.
        fma_per_clock: fp32 fused multiply-adds per clock and SM; an addition or a multiplication counts as one.
        smem_bytes_per_clock: bytes that shared memory moves per clock and SM.
        hbm_tb_per_second: bandwidth of the global memory, in 10**12 bytes per second.
        clock_ghz: boost clock.
    """

    name: str
    arch: str
    mma: str
    sms: int
    smem_bytes: int
    tmem_columns: int
    registers: int
    mbarrier_bytes: int
    named_barriers: int
    mma_flop_per_clock: int
    exp2_per_clock: int
    fma_per_clock: int
    smem_bytes_per_clock: int
    hbm_tb_per_second: float
    clock_ghz: float

    @property
    def mma_tflops(self) -> float:
        """Dense fp16 peak of the tensor cores at the boost clock, in 10**12 floating-point operations per second."""
        return self.sms * self.mma_flop_per_clock * self.clock_ghz / 1e3

    @property
    def mufu_cycles(self) -> float:
        """Cycles for which one warp's MUFU.EX2 holds the unit of its partition."""
        return WARP_THREADS * PARTITIONS / self.exp2_per_clock

    @property
    def balance(self) -> float:
        """Floating-point operations per byte of global memory from which on the tensor cores are the limit."""
        return self.mma_tflops / self.hbm_tb_per_second


B200 = Target(
    name="B200",
    arch="sm_100a",
    mma="tcgen05",
    sms=148,
    smem_bytes=227 * 1024,
    tmem_columns=512,
    registers=64 * 1024,
    mbarrier_bytes=8,
    named_barriers=16,
    mma_flop_per_clock=8192,
    exp2_per_clock=16,
    fma_per_clock=128,
    smem_bytes_per_clock=128,
    hbm_tb_per_second=8.0,
    clock_ghz=1.85,
)

B300 = Target(
    name="B300",
    arch="sm_103a",
    mma="tcgen05",
    sms=148,
    smem_bytes=227 * 1024,
    tmem_columns=512,
    registers=64 * 1024,
    mbarrier_bytes=8,
    named_barriers=16,
    mma_flop_per_clock=8192,
    exp2_per_clock=32,
    fma_per_clock=128,
    smem_bytes_per_clock=128,
    hbm_tb_per_second=8.0,
    clock_ghz=1.85,
)

H200 = Target(
    name="H200",
    arch="sm_90a",
    mma="wgmma",
    sms=132,
    smem_bytes=227 * 1024,
    tmem_columns=0,
    registers=64 * 1024,
    mbarrier_bytes=8,
    named_barriers=16,
    mma_flop_per_clock=4096,
    exp2_per_clock=16,
    fma_per_clock=128,
    smem_bytes_per_clock=128,
    hbm_tb_per_second=4.8,
    clock_ghz=1.98,
)

TARGETS = {target.arch: target for target in (B200, B300, H200)}


def target_for(arch: str) -> Target:
    """The target of an architecture name.

    Raises:
        ValueError: naming the architecture and the ones that exist.
    """
    try:
        return TARGETS[arch]
    except KeyError:
        raise ValueError(f"arch={arch!r}: allowed values are {', '.join(sorted(TARGETS))}") from None
