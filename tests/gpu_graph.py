"""A captured CUDA graph that holds the first call of a kernel; a process of its own for tests/test_gpu_op.py."""

from __future__ import annotations

import torch

from tests.engines import library_file, runtime_libraries
from tests.torch_reference import attention, close
from tirx_attn import flash_attention, preload


def main() -> None:
    preload(library_file("op_full"), libraries=runtime_libraries())
    q = torch.zeros(2, 1, 8, 128, device="cuda", dtype=torch.float16)
    k, v = (torch.zeros(2, 512, 2, 128, device="cuda", dtype=torch.float16) for _ in "kv")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = flash_attention(q, k, v)
    for seed in range(10):
        torch.manual_seed(seed)
        for x in (q, k, v):
            x.copy_(torch.randn_like(x))
        o.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert close(o, attention(q, k, v)[0])
    print("10 replays right")


if __name__ == "__main__":
    main()
