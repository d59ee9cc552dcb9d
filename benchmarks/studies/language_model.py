"""A small causal language model, trained here on the standard library's sources, and its queries and keys.

Real inputs for a kernel without a download: bytes of text, rotary positions, heads of 64. Needs torch.
"""

from __future__ import annotations

import hashlib
import platform
import sysconfig
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

BYTE_VALUES = 256
HEAD_DIM = 64
HELD_OUT = 16
"""One file of so many is kept for the evaluation."""


@dataclass(frozen=True)
class Recipe:
    """How the model is made. All of it is fixed, so that a run can be repeated.

    Attributes:
        layers, heads: of the transformer; its width is heads x 64.
        phases: (steps, length in bytes, sequences in a batch), one after the other.
        learning_rate: peak of AdamW's; rises for the first 5 % of the steps and falls to a tenth along a cosine.
        seed: of weights and batches.
    """

    layers: int = 4
    heads: int = 2
    phases: tuple[tuple[int, int, int], ...] = ((400, 1024, 4), (50, 2048, 2))
    learning_rate: float = 2e-3
    seed: int = 0


@dataclass(frozen=True)
class Trained:
    """What the evaluation of a trained model gave.

    Attributes:
        facts: recipe, text, versions, losses in bits per byte.
        q, k: float16 [layers, windows, length, heads, 64], as a kernel would be given them.
    """

    facts: dict[str, Any]
    q: np.ndarray[Any, np.dtype[Any]]
    k: np.ndarray[Any, np.dtype[Any]]


def require_torch() -> Any:
    """The module torch.

    Raises:
        ImportError: it is not installed; the message says what to install.
    """
    try:
        import torch
    except ImportError:
        raise ImportError("the study of a trained model needs torch: pip install 'tirx-attn[torch]'") from None
    return torch


def read_text() -> tuple[bytes, bytes]:
    """Sources of this Python's standard library, in the order of their names: to train on, and held out."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(folder.glob("*.py")) + sorted(folder.glob("[a-z]*/*.py"))
    sources = [file.read_bytes() for file in files if "site-packages" not in file.parts and "test" not in file.parts]
    held_out = b"".join(sources[::HELD_OUT])
    return b"".join(text for i, text in enumerate(sources) if i % HELD_OUT), held_out


def rotate(x: Any, torch: Any) -> Any:
    """Rotary positions on [batch, heads, length, 64]."""
    half = x.shape[-1] // 2
    speed = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.arange(x.shape[-2], dtype=torch.float32)[:, None] * speed
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def make_model(recipe: Recipe, torch: Any) -> Any:
    """A pre-norm transformer. Its forward takes tokens, and if wanted a function that gets each layer's q and k."""
    nn, width = torch.nn, HEAD_DIM * recipe.heads

    class Layer(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any, watch: Callable[[Any, Any], None] | None) -> Any:
            q, k, v = self.qkv(self.before_attention(x)).unflatten(-1, (3, recipe.heads, HEAD_DIM)).unbind(-3)
            q, k, v = (rotate(q.transpose(1, 2), torch), rotate(k.transpose(1, 2), torch), v.transpose(1, 2))
            if watch is not None:
                watch(q.transpose(1, 2), k.transpose(1, 2))
            o = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(o.transpose(1, 2).flatten(-2))
            return x + self.mlp(self.before_mlp(x))

    class Model(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(BYTE_VALUES, width)
            self.layers = nn.ModuleList(Layer() for _ in range(recipe.layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, BYTE_VALUES)

        def forward(self, tokens: Any, watch: Callable[[Any, Any], None] | None = None) -> Any:
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x, watch)
            return self.head(self.norm(x))

    return Model()


def train(recipe: Recipe, text: bytes, note: Callable[[str], None], torch: Any) -> tuple[Any, float]:
    """The trained model, and the mean loss of its last 20 steps in bits per byte."""
    torch.manual_seed(recipe.seed)
    model = make_model(recipe, torch)
    draw = np.random.default_rng(recipe.seed)
    data = np.frombuffer(text, np.uint8)
    total = sum(steps for steps, _, _ in recipe.phases)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)

    def factor(step: int) -> float:
        rise = min(1.0, (step + 1) / max(1.0, 0.05 * total))
        return rise * (0.55 + 0.45 * float(np.cos(np.pi * step / total)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    losses: list[float] = []
    for steps, length, batch in recipe.phases:
        for _ in range(steps):
            tokens = windows(data, draw.integers(0, len(data) - length - 1, batch), length + 1, torch)
            loss = bits_per_byte(model(tokens[:, :-1]), tokens[:, 1:], torch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if len(losses) % 50 == 0:
                note(f"step {len(losses)}/{total}: {np.mean(losses[-20:]):.2f} bits per byte")
    return model, float(np.mean(losses[-20:]))


def windows(data: Any, starts: Any, length: int, torch: Any) -> Any:
    """int64 tokens [len(starts), length]."""
    return torch.from_numpy(np.stack([data[start : start + length] for start in starts]).astype(np.int64))


def bits_per_byte(logits: Any, tokens: Any, torch: Any) -> Any:
    """Cross-entropy in base 2."""
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()) / float(np.log(2))


def trained_inputs(
    length: int, count: int, note: Callable[[str], None] = lambda _: None, recipe: Recipe | None = None
) -> Trained:
    """Train a model, and take queries and keys of `count` held-out windows of `length` bytes.

    Raises:
        ImportError: torch is missing.
    """
    torch = require_torch()
    recipe = recipe or Recipe()
    text, held_out = read_text()
    model, training_loss = train(recipe, text, note, torch)
    data = np.frombuffer(held_out, np.uint8)
    tokens = windows(data, np.linspace(0, len(data) - length - 1, count, dtype=int), length + 1, torch)
    seen: list[tuple[Any, Any]] = []
    with torch.inference_mode():
        logits = model(tokens[:, :-1], lambda q, k: seen.append((q.half().numpy(), k.half().numpy())))
        loss = bits_per_byte(logits, tokens[:, 1:], torch).item()
    facts = {
        "recipe": asdict(recipe),
        "parameters": sum(p.numel() for p in model.parameters()),
        "text": {"bytes": len(text), "held_out": len(held_out), "sha256": hashlib.sha256(text).hexdigest()[:16]},
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "bits_per_byte": {"training": round(training_loss, 3), "held_out": round(loss, 3)},
    }
    q, k = (np.stack([pair[i] for pair in seen]) for i in range(2))
    return Trained(facts, q, k)
