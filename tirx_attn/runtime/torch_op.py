"""Attention on torch tensors: `flash_attention`, and the custom op behind it under torch.compile.

An eager call goes to the kernel as directly as it can, since the host's time counts for short sequences. Whatever the
fast way does not know, or the kernel's launcher refuses, takes the way of the full checks, which name the argument.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from tirx_attn.config import DTYPES, RUNTIME, AttentionConfig, refuse_flags
from tirx_attn.runtime.cache import KernelCache
from tirx_attn.runtime.device import arch_name
from tirx_attn.runtime.load import Kernel, load
from tirx_attn.runtime.torch_inputs import problem_of, refuse_forward_mode, refuse_reverse_mode
from tirx_attn.targets import TARGETS

SIMULATOR = "simulator"

_NUMBERS = (float, int)

is_compiling = torch.compiler.is_compiling
is_grad_enabled = torch.is_grad_enabled
empty_like, contiguous_format = torch.empty_like, torch.contiguous_format
dispatch_modes = torch._C._len_torch_dispatch_stack
"""How many modes, such as that of fake tensors, want to see what is called."""
is_negated = Tensor.is_neg
"""Whether the values are those of the memory with the other sign."""
_has_levels = torch._C._are_functorch_transforms_active
"""Whether a transform of torch.func is on, whose tensors have no memory: the op takes them apart."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Ready:
    """A kernel that is loaded for one device.

    Attributes:
        function: what launches it.
        device: torch's number of it where there are others, so that the current device may have to be changed for a
            call and back; None where it is the only one.
    """

    function: Callable[..., None]
    device: int | None


_ready: dict[Key, Ready] = {}
_loading = threading.Lock()


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    backend: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(q·kᵀ·scale)·v for each head, by the kernel for the GPU that holds the tensors.

    The kernel for the heads, head size, dtype and mask serves all lengths. It comes from what `preload` loaded, else
    from the cache on disk, else it is compiled (some ten seconds, once per machine). Nothing waits for the GPU; O and
    LSE are all that is allocated; the work goes to torch's current stream of the tensors' device.

    Args:
        q: [B, Sq, Hq, D] float16 or bfloat16, D 64 or 128; the last dimension contiguous, other strides and the address
            multiples of 16 bytes.
        k, v: [B, Skv, Hkv, D] in q's dtype on its device; Hq / Hkv an integer up to 128.
        causal: bottom-right aligned causal mask: query i sees keys up to i + Skv - Sq.
        scale: positive factor on the logits; 1/sqrt(D) unless given.
        return_lse: return LSE as well.
        backend: "simulator" takes CPU tensors and runs the Blackwell kernel on the CPU simulator, slowly.

    Returns:
        o [B, Sq, Hq, D] in q's dtype, contiguous; with `return_lse` also lse [B, Hq, Sq] in fp32, the natural logarithm
        of the sum of the exponentials of the scaled logits. A row that sees no key has o = 0 and lse = −inf.

    Raises:
        TypeError, ValueError: an argument that does not fit, by its name; a GPU for which there is no kernel; inputs
            that require a gradient while gradients are recorded.
        CompileError, ToolchainError, ArtifactError: a kernel cannot be compiled or loaded.
    """
    if is_grad_enabled():
        refuse_reverse_mode(q, k, v)
    # Nothing but the kernel wants to see the call: no graph is traced, no mode is on, no tensor is of a class of its
    # own, has a tangent, or holds its values with the other sign. True and False are told from 1 and 0, which would
    # find the same kernel.
    if (
        backend is None
        and type(q) is type(k) is type(v) is Tensor
        and (causal is False or causal is True)
        and (return_lse is False or return_lse is True)
        and (scale is None or type(scale) in _NUMBERS)
        and forward_ad._current_level < 0
        and not is_compiling()
        and not dispatch_modes()
        and not (is_negated(q) or is_negated(k) or is_negated(v))
    ):
        try:
            batches, sq, heads, head_size = q.shape
            ready = _ready[heads, head_size, k.shape[2], q.dtype, q.device, causal, scale is not None, return_lse]
        except (KeyError, ValueError, IndexError, TypeError, RuntimeError):
            pass
        else:
            try:
                o = empty_like(q) if q.is_contiguous() else empty_like(q, memory_format=contiguous_format)
                lse = q.new_empty((batches, heads, sq), dtype=torch.float32) if return_lse else None
                if ready.device is None and lse is None and scale is None:
                    ready.function(q, k, v, o)
                else:
                    _launch(ready, q, k, v, o, lse, scale)
            except Exception:
                problem_of(q, k, v, causal, scale, return_lse)  # says by its name what does not fit
                if 0 not in (*q.shape, *k.shape) and not _has_levels():
                    raise
            else:
                return o if lse is None else (o, lse)
    # The op's schema would take 1 for True, and say nothing of names. Where a graph is traced, its fake says them.
    if is_compiling():
        refuse_flags(is_causal=causal, return_lse=return_lse)
    else:
        problem_of(q, k, v, causal, scale, return_lse)
        scale = None if scale is None else float(scale)
    return _returned(op(q, k, v, causal, scale, return_lse, backend or ""), return_lse)


def preload(path: str | Path, *, device: int | None = None, libraries: str | Path | None = None) -> Kernel:
    """Load a kernel that `export` wrote, so that `flash_attention` uses it on one GPU and compiles nothing for it.

    Args:
        path: the file; its kernel has run-time B, Sq and Skv, and its scale is 1/sqrt(D) or a parameter.
        device: torch's number of the GPU; the current one unless given.
        libraries: as for `load`.

    Raises:
        ValueError: the kernel has baked-in lengths or scale.
        FileNotFoundError, ArtifactError, ToolchainError: as `load` raises them.
    """
    index = torch.cuda.current_device() if device is None else device
    kernel = load(path, device=index, libraries=libraries)
    config = kernel.description.config
    if config.run_time_names != ("B", "Sq", "Skv") or isinstance(config.scale, float):
        raise ValueError(
            f"{path}: the kernel has B={config.B}, Sq={config.Sq}, Skv={config.Skv}, scale={config.scale}: allowed are "
            f"run-time sizes (None), and scale None or {RUNTIME!r}"
        )
    place = torch.device("cuda", index)
    _ready[_key(config, place)] = _made_ready(kernel, place)
    return kernel


def compute(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, return_lse: bool, backend: str
) -> tuple[Tensor, Tensor]:
    """O and LSE (empty where it is not wanted), with all checks."""
    config = problem_of(q, k, v, causal, scale, return_lse)
    if backend not in ("", SIMULATOR):
        raise ValueError(f"backend={backend!r}: allowed are None and {SIMULATOR!r}")
    if (backend == SIMULATOR) != (q.device.type == "cpu") or q.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"q is on {q.device} with backend={backend or None!r}: allowed are CUDA tensors, and CPU tensors with "
            f"backend={SIMULATOR!r}"
        )
    o, lse = _outputs(q, return_lse)
    if 0 in (*q.shape, *k.shape):
        return o.zero_(), lse.fill_(float("-inf"))
    if q.device.type == "cpu":
        return _simulated(q, k, v, causal, scale, return_lse)
    ready = _find(replace(config, scale=None if scale is None else RUNTIME), q.device)
    _launch(ready, q, k, v, o, lse if return_lse else None, scale)
    return o, lse


_library = torch.library.Library("tirx_attn", "FRAGMENT")
_library.define(
    "flash_attention(Tensor q, Tensor k, Tensor v, bool causal, float? scale, bool return_lse, str backend)"
    " -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides),
)
for _place in ("CPU", "CUDA"):
    _library.impl("flash_attention", compute, _place)
op = torch.ops.tirx_attn.flash_attention.default
"""The custom op: `compute` below autograd, vmap and the rest of torch."""


def _no_derivative(
    keys: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, return_lse: bool, backend: str
) -> tuple[Tensor, Tensor]:
    """The op where torch would differentiate it."""
    refuse_reverse_mode(q, k, v)
    refuse_forward_mode(q, k, v)
    with torch._C._AutoDispatchBelowAutograd():
        below = keys & torch._C._after_autograd_keyset
        return op.redispatch(below, q, k, v, causal, scale, return_lse, backend)


_library.impl("flash_attention", _no_derivative, "Autograd", with_keyset=True)


@torch.library.register_fake("tirx_attn::flash_attention", lib=_library)
def _(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, return_lse: bool, backend: str
) -> tuple[Tensor, Tensor]:
    problem_of(q, k, v, causal, scale, return_lse)
    return _outputs(q, return_lse)


@torch.library.register_vmap("tirx_attn::flash_attention", lib=_library)
def _(
    info: Any, dims: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, return_lse: bool, b: str
) -> tuple[tuple[Tensor, Tensor], tuple[int, int | None]]:
    """One launch for all: the dimension of vmap and B become one."""
    n = info.batch_size
    moved = (
        x.expand(n, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip((q, k, v), dims, strict=False)
    )
    o, lse = op(*(x.flatten(0, 1) for x in moved), causal, scale, return_lse, b)
    return (o.unflatten(0, (n, -1)), lse.unflatten(0, (n, -1)) if return_lse else lse), (0, 0 if return_lse else None)


@register_flop_formula(torch.ops.tirx_attn.flash_attention)
def _flops(q_shape: Any, k_shape: Any, *_: Any, **__: Any) -> int:
    """Operations of the two products. As for torch's own attention, a mask takes nothing off."""
    b, sq, hq, d = q_shape
    return 4 * b * hq * sq * k_shape[1] * d


def _launch(ready: Ready, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor | None, scale: float | None) -> None:
    arguments = (q, k, v, o) if lse is None else (q, k, v, o, lse)
    if scale is not None:
        arguments = (*arguments, scale)
    if ready.device is None or ready.device == torch.cuda.current_device():
        ready.function(*arguments)
    else:
        with torch.cuda.device(ready.device):
            ready.function(*arguments)


def _find(config: AttentionConfig, device: torch.device) -> Ready:
    key = _key(config, device)
    if key not in _ready:
        arch = arch_name(*torch.cuda.get_device_capability(device))
        if arch not in TARGETS:
            allowed = ", ".join(sorted(TARGETS))
            raise ValueError(f"q is on {device}, which is {arch}: allowed are GPUs of {allowed}")
        with _loading:
            if key not in _ready:
                _ready[key] = _made_ready(load(KernelCache().get(config, arch), device=device.index), device)
    return _ready[key]


def _made_ready(kernel: Kernel, device: torch.device) -> Ready:
    return Ready(kernel.function, device.index if torch.cuda.device_count() > 1 else None)


def _key(config: AttentionConfig, device: torch.device) -> Key:
    c = config
    return (c.Hq, c.D, c.Hkv, getattr(torch, c.dtype), device, c.is_causal, c.scale == RUNTIME, c.return_lse)


def _outputs(q: Tensor, return_lse: bool) -> tuple[Tensor, Tensor]:
    lengths = (q.shape[0], q.shape[2], q.shape[1]) if return_lse else (0,)
    return q.new_empty(q.shape), q.new_empty(lengths, dtype=torch.float32)


def _returned(outputs: tuple[Tensor, Tensor], return_lse: bool) -> Tensor | tuple[Tensor, Tensor]:
    return outputs if return_lse else outputs[0]


def _simulated(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None, return_lse: bool
) -> tuple[Tensor, Tensor]:
    import ml_dtypes  # noqa: F401  (makes np.dtype("bfloat16") a name)
    import numpy as np

    from tirx_attn.verify import simulate

    dtype = np.dtype(next(name for name in DTYPES if getattr(torch, name) is q.dtype))
    arrays = (x.detach().contiguous().view(torch.int16).numpy().view(dtype) for x in (q, k, v))
    o, lse = simulate(*arrays, causal=causal, scale=scale, return_lse=True)
    made = torch.from_numpy(o.view(np.int16)).view(q.dtype)
    return made, torch.from_numpy(lse) if return_lse else torch.empty(0, dtype=torch.float32)
