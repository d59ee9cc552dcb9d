"""The published recipe with this package's import: torch tensors in, one call, held against torch.

It needs torch and a Blackwell GPU (sm_100 or sm_103). Without them the kernel is compiled for sm_100a and not run.
"""

from tirx_attn import get_flash_attention4_kernel

B, S, Hq, Hkv, D = 1, 1024, 32, 8, 128


def why_not_here() -> str:
    """What keeps the recipe from running on this machine; empty if nothing does."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    if torch.cuda.get_device_capability() not in ((10, 0), (10, 3)):
        return f"{torch.cuda.get_device_name()} is neither sm_100 nor sm_103"
    return ""


def recipe() -> None:
    import torch
    import torch.nn.functional as F
    import tvm

    Q = torch.randn(B, S, Hq, D, dtype=torch.float16, device="cuda")
    K = torch.randn(B, S, Hkv, D, dtype=torch.float16, device="cuda")
    V = torch.randn(B, S, Hkv, D, dtype=torch.float16, device="cuda")
    O = torch.empty(B, S, Hq, D, dtype=torch.float16, device="cuda")

    kernel = get_flash_attention4_kernel(B, S, S, Hq, Hkv, D, is_causal=False)
    target = tvm.target.Target("cuda")
    with target:
        ex = tvm.compile(tvm.IRModule({"main": kernel}), target=target, tir_pipeline="tirx")

    ex.mod(Q, K, V, O)
    torch.cuda.synchronize()

    qt, kt, vt = (x.transpose(1, 2).float() for x in (Q, K, V))
    ref = F.scaled_dot_product_attention(qt, kt, vt, enable_gqa=True).transpose(1, 2).half()
    torch.testing.assert_close(O, ref, rtol=1e-2, atol=1e-2)
    print("the kernel ran and agrees with torch")


if why := why_not_here():
    from tirx_attn.runtime import compile_cubin, generate_cuda

    kernel = get_flash_attention4_kernel(B, S, S, Hq, Hkv, D, is_causal=False)
    cubin = compile_cubin(generate_cuda(kernel, "sm_100a"), "sm_100a")
    print(f"{why}: compiled for sm_100a ({len(cubin.image)} bytes of machine code), not run")
else:
    recipe()
