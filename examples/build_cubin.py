"""Machine code on a machine without a GPU: build_cubin.py [FOLDER]. One cubin per architecture, and what it needs."""

import sys
import tempfile

from tirx_attn import AttentionConfig
from tirx_attn.runtime import build
from tirx_attn.targets import TARGETS

config = AttentionConfig(B=1, Sq=8192, Skv=8192, Hq=32, Hkv=8, D=128, is_causal=True)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tirx-attn-")

for arch in TARGETS:
    built = build(config, arch=arch)
    needs = built.cubin.resources()
    (path,) = built.save(folder, "attention")
    print(f"{path}")
    print(f"  {needs.registers} registers at launch, then {needs.register_requests} by setmaxnreg")
    print(f"  {needs.spill_instructions} spill instructions, {needs.dynamic_smem} bytes of shared memory")
    print(f"  NVRTC {needs.nvrtc_version}, seconds: {built.seconds}")
