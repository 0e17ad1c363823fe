"""Test problems with known optima, and their initial points."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from bvfim.core.problem import Problem
from bvfim.sets import Box, SetTree


@dataclass(frozen=True)
class TestProblem:
    """A problem together with its global optimum.

    Attributes:
        name: its name.
        source: the reference it is taken from.
        problem: the problem itself; x and y are vectors, in boxes or unconstrained.
        x, y: the optimum.
        upper, lower: F and f at the optimum.
        note: what makes it hard.

    Example:
        >>> import bvfim
        >>> toy = bvfim.testproblems.sine(a=2)
        >>> print(f"{toy.x.item():.4f} {toy.upper:.6f}")
        2.3562 0.253749
    """

    __test__ = False  # the name is no test for pytest

    name: str
    source: str
    problem: Problem
    x: Tensor
    y: Tensor
    upper: float
    lower: float
    note: str = field(default="", compare=False)


def starts(test: TestProblem, count: int, seed: int, reach: float = 10.0) -> list[tuple[Tensor, Tensor]]:
    """Random starts, uniform in the boxes of x and y, each intersected with [-reach, reach].

    Example:
        >>> import bvfim
        >>> toy = bvfim.testproblems.sine()
        >>> [(x, y)] = bvfim.testproblems.starts(toy, 1, seed=0)
        >>> x.shape, bool(x.abs() <= 10)
        (torch.Size([1]), True)
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(box: SetTree, like: Tensor) -> Tensor:
        return sample(box, like, reach, generator, 1)[0]

    return [(draw(test.problem.x_set, test.x), draw(test.problem.y_set, test.y)) for _ in range(count)]


def vector(*entries: float) -> Tensor:
    """A float64 vector."""
    return torch.tensor(entries, dtype=torch.float64)


def sample(box: SetTree, like: Tensor, reach: float, generator: torch.Generator, count: int) -> Tensor:
    """Uniform points of a box, as far as it lies in [-reach, reach]: a row for each."""
    box = Box() if box is None else box
    low, high = (torch.as_tensor(b, dtype=like.dtype).clamp(-reach, reach) for b in (box.lower, box.upper))
    return low + (high - low) * torch.rand(count, *like.shape, generator=generator, dtype=like.dtype)
