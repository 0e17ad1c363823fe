"""The bilevel part: the weights of the sources with which a network does best on the trusted part of the target.

F is the loss on trusted windows, and f the mean of the sources' losses, weighted with softmax(x).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

import bvfim
from examples.data_mixture.model import ByteGPT, gpt
from examples.data_mixture.texts import Texts
from examples.data_mixture.train import CLIP, Settings, losses, optimizer, rows

DRAWS = 1_000_003
"""The seeds of draws do not meet those of other ranks before this many draws."""
RANKS = 1009
"""Nor those of other seeds with so many ranks."""


MULTIPLIER = 10.0
"""Chosen on the validation part of the target; ``compare`` chooses among three before it begins."""


class Rows(NamedTuple):
    """Windows (rows, length + 1), and the number of the text that each is from."""

    tokens: Tensor
    source: Tensor


class Windows:
    """An endless stream of random windows, as many from each text, whose position can be saved.

    Args:
        texts: where from; the rows are where the texts are.
        each: the number of windows of each text.
        length: they have one more byte than this.
        seed: of the draws.
        rank: of the process, which draws its own rows.
    """

    def __init__(self, texts: Sequence[Tensor], each: int, length: int, seed: int = 0, rank: int = 0) -> None:
        self.texts, self.each, self.length = texts, each, length
        self.seed = seed * RANKS + rank
        self.drawn = 0
        self.source = torch.arange(len(texts), device=texts[0].device).repeat_interleave(each)

    def __iter__(self) -> Windows:
        """Itself: it has no end."""
        return self

    def __next__(self) -> Rows:
        """The next batch."""
        generator = torch.Generator().manual_seed((self.seed * DRAWS + self.drawn) % 2**63)
        self.drawn += 1
        return Rows(torch.cat([rows(text, self.each, self.length, generator) for text in self.texts]), self.source)

    def state_dict(self) -> dict[str, int]:
        """The number of batches drawn."""
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on after so many batches."""
        self.drawn = state["drawn"]


def objectives(half: bool) -> bvfim.Problem:
    """F and f of a network that is called on batches of :class:`Windows`."""

    def upper(x: Tensor, model: nn.Module, batch: Rows) -> Tensor:
        return losses(model, batch.tokens, half).mean()

    def lower(x: Tensor, model: nn.Module, batch: Rows) -> Tensor:
        # As every source has as many rows, this is the sum over sources of softmax(x)_s times its mean loss.
        weights = len(x) * torch.softmax(x, 0)
        return (weights[batch.source] * losses(model, batch.tokens, half)).mean()

    return bvfim.Problem(upper, lower)


class Learned(NamedTuple):
    """The weights of the sources, the seconds that they took, and how the solve ended."""

    weights: Tensor
    seconds: float
    solution: Any


def network(settings: Settings, seed: int) -> ByteGPT:
    """A network from the seed's start."""
    model = gpt(settings.size, seed).to(settings.device)
    if settings.compiled:
        model.compile()
    return model


def learned(
    texts: Texts, settings: Settings, seed: int = 0, mesh: DeviceMesh | None = None, multiplier: float = MULTIPLIER
) -> Learned:
    """Learn the weights of the sources in one run of as many steps as a training has.

    The multiplier is the weight of f beside F. With a small one y learns the trusted text by heart, and x makes up for
    the rest; with a large one x follows the noise of the batches.
    """
    sources = [text.to(settings.device) for text in texts.sources.values()]
    each = max(1, settings.batch // len(sources))
    rank = 0 if mesh is None else mesh.get_rank()
    upper = Windows([texts.trusted.to(settings.device)], each * len(sources), settings.length, seed, rank)
    lower = Windows(sources, each, settings.length, seed, rank)
    twins = bvfim.Twins(network(settings, seed), network(settings, seed))
    if mesh is not None:
        twins.shard(mesh, parts=lambda model: model.blocks)
    method = bvfim.StochasticBVFIM(
        y_optimizer=lambda parameters: optimizer(parameters, settings.lr), clip=CLIP, multiplier=multiplier
    )
    began = time.monotonic()
    solution = bvfim.solve(
        objectives(settings.half),
        torch.zeros(len(sources), device=settings.device),
        twins,
        method,
        steps=settings.steps,
        batches=bvfim.Batches(upper=upper, lower=lower),
        mesh=mesh,
    )
    return Learned(torch.softmax(solution.x, 0).detach().cpu(), time.monotonic() - began, solution)
