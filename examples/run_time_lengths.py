"""One kernel for all batches and lengths, and attention over keys in two parts, merged by their log-sum-exp."""

import numpy as np

from tirx_attn import get_flash_attention4_kernel, merge_states
from tirx_attn.verify import SimulatorUnavailable, judge, require_simulator, simulate

kernel = get_flash_attention4_kernel(B=None, Sq=None, Skv=None, Hq=6, Hkv=2, D=64, return_lse=True)
for parameter in kernel.params:  # sizes with a name are read from the tensors at each call
    sizes = ", ".join(getattr(size, "name", None) or str(int(size)) for size in parameter.shape)
    print(f"{parameter.name}: {parameter.dtype} [{sizes}]")


def two_lengths() -> None:
    """The same kernel twice, on the CPU: over the first 200 keys, and over the other 77."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((1, 50, 6, 64)).astype(np.float16)
    k, v = (rng.standard_normal((1, 277, 2, 64)).astype(np.float16) for _ in "kv")

    o1, lse1 = simulate(q, k[:, :200], v[:, :200], return_lse=True)
    o2, lse2 = simulate(q, k[:, 200:], v[:, 200:], return_lse=True)
    o, lse = merge_states(o1, lse1, o2, lse2)

    verdict = judge(o, q, k, v)  # against fp64 attention over all 277 keys
    print(f"largest error {verdict.error:.2e}, allowed {verdict.bound:.2e}")
    assert verdict.ok
    assert lse.shape == (1, 6, 50)


try:
    require_simulator()
except SimulatorUnavailable as reason:
    print(f"not run: {reason}")
else:
    two_lengths()
