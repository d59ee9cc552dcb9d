"""Run the Blackwell kernel on the CPU: NumPy arrays in, NumPy array out, held against an fp64 reference.

The first run on a machine builds the simulator (minutes), later ones build the kernel only.
"""

import numpy as np

from tirx_attn.verify import attention_reference, error_rule, same_dtype_attention, simulate

rng = np.random.default_rng(0)
q = rng.standard_normal((1, 100, 6, 128)).astype(np.float16)  # [B, Sq, Hq, D]
k = rng.standard_normal((1, 100, 2, 128)).astype(np.float16)  # [B, Skv, Hkv, D]
v = rng.standard_normal((1, 100, 2, 128)).astype(np.float16)

o = simulate(q, k, v, causal=True)

reference, _ = attention_reference(q, k, v, causal=True)
# Allowed: twice the error of a plain fp16 implementation, plus one rounding step.
verdict = error_rule(o, reference, same_dtype_attention(q, k, v, causal=True))
print(f"largest error {verdict.error:.2e}, allowed {verdict.bound:.2e}")
assert verdict.ok
