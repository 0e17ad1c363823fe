"""Plain training, which every mixture of the sources gets alike."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from examples.data_mixture.model import ByteGPT, gpt

WARM_UP = 0.05
"""The share of a run in which the steps grow."""
CLIP = 1.0
"""The longest gradient."""
LOOKS = 10
"""The lines that a training prints: each of them waits for the device."""
WINDOWS = 512
"""The most windows that a loss is measured on."""


@dataclass(frozen=True)
class Settings:
    """How a network is trained.

    Args:
        size: of the network, one of ``model.SIZES``.
        steps: of AdamW.
        batch: rows in a step.
        length: bytes predicted in a row.
        lr: the largest step.
        device: where.
        half: whether matrices are multiplied in bfloat16.
        compiled: whether the network is compiled.
    """

    size: str = "tiny"
    steps: int = 1000
    batch: int = 32
    length: int = 128
    lr: float = 3e-3
    device: str = "cpu"
    half: bool = False
    compiled: bool = False

    @property
    def tokens(self) -> int:
        """The bytes that a training predicts."""
        return self.steps * self.batch * self.length


USUAL = {
    "tiny": Settings(),
    "10M": Settings("10M", steps=2000, batch=64, length=256, lr=1e-3),
    "124M": Settings("124M", steps=2000, batch=64, length=512, lr=5e-4),
}
QUICK_STEPS = 20
"""Of a run that only shows that everything works."""


def chosen(size: str, steps: int | None = None, quick: bool = False) -> Settings:
    """The usual settings of a size, on the GPU where there is one; a quick run is tiny."""
    settings = USUAL["tiny" if quick else size]
    steps = steps or (QUICK_STEPS if quick else settings.steps)
    cuda = torch.cuda.is_available()
    return replace(settings, steps=steps, device="cuda" if cuda else "cpu", half=cuda, compiled=cuda and not quick)


def rows(text: Tensor, count: int, length: int, generator: torch.Generator) -> Tensor:
    """So many random windows of length + 1 bytes, gathered on the text's device."""
    starts = torch.randint(len(text) - length, (count,), generator=generator)
    return windows_at(text, starts, length)


def windows_at(text: Tensor, starts: Tensor, length: int) -> Tensor:
    """The windows of length + 1 bytes that begin there."""
    return text[(starts[:, None] + torch.arange(length + 1)).to(text.device, non_blocking=True)]


def mixed(texts: Sequence[Tensor], weights: Tensor, count: int, length: int, generator: torch.Generator) -> Tensor:
    """So many windows, each from a text that is drawn with the probabilities ``weights``."""
    drawn = torch.multinomial(weights, count, replacement=True, generator=generator).bincount(minlength=len(texts))
    return torch.cat([rows(text, n, length, generator) for text, n in zip(texts, drawn.tolist(), strict=True)])


def losses(model: Callable[[Tensor], Tensor], tokens: Tensor, half: bool) -> Tensor:
    """The loss of each row, with matrices multiplied in bfloat16 if ``half``."""
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=half):
        return model(tokens)


def optimizer(parameters: Iterable[Tensor], lr: float) -> Optimizer:
    """AdamW, as it is usual for language models."""
    return AdamW(parameters, lr, betas=(0.9, 0.95), weight_decay=0.1)


def schedule(optimizer: Optimizer, steps: int) -> LambdaLR:
    """A warm-up, and half a cosine down to zero."""
    warm = max(1, round(WARM_UP * steps))
    cosine = lambda k: 0.5 * (1 + math.cos(math.pi * (k - warm) / max(1, steps - warm)))  # noqa: E731
    return LambdaLR(optimizer, lambda k: (k + 1) / warm if k < warm else cosine(k))


def train(model: nn.Module, draw: Callable[[], Tensor], settings: Settings) -> None:
    """Train a network in place on the windows that ``draw`` gives."""
    forward = torch.compile(model) if settings.compiled else model
    adam = optimizer(model.parameters(), settings.lr)
    scheduler = schedule(adam, settings.steps)
    began = time.monotonic()
    for k in range(settings.steps):
        loss = losses(forward, draw(), settings.half).mean()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        adam.step()
        scheduler.step()
        if (k + 1) % max(1, settings.steps // LOOKS) == 0:
            spent = time.monotonic() - began
            print(f"step {k + 1} of {settings.steps}, loss {loss.item():.3f}, {spent:.0f} s", file=sys.stderr)


@torch.no_grad()
def loss_on(model: nn.Module, text: Tensor, settings: Settings) -> float:
    """The mean loss over evenly spaced windows of a text, which do not overlap."""
    count = min(WINDOWS, (len(text) - 1) // settings.length)
    starts = torch.linspace(0, len(text) - settings.length - 1, count).long()
    text = text.to(settings.device)
    parts = [windows_at(text, some, settings.length) for some in starts.split(settings.batch)]
    return torch.cat([losses(model, tokens, settings.half) for tokens in parts]).mean().item()


def trained_anew(sources: Mapping[str, Tensor], weights: Tensor, settings: Settings, seed: int) -> ByteGPT:
    """A network trained from the seed's start on rows of the sources, drawn with the probabilities ``weights``."""
    model = gpt(settings.size, seed).to(settings.device)
    texts = [text.to(settings.device) for text in sources.values()]
    generator = torch.Generator().manual_seed(seed)
    train(model, lambda: mixed(texts, weights.cpu(), settings.batch, settings.length, generator), settings)
    return model
