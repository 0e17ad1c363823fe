"""Test problems with known optima: initial points, and a test of whether a result solves one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bvfim.core.lower_minimum import lower_minimum
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
        return _sample(box, like, reach, generator, 1)[0]

    return [(draw(test.problem.x_set, test.x), draw(test.problem.y_set, test.y)) for _ in range(count)]


def lower_gap(test: TestProblem, x: Tensor, y: Tensor, samples: int = 64, seed: int = 0) -> float:
    """f(x, y) minus the lowest f(x, .) that L-BFGS finds from y, the known optimum and the best random points.

    Example:
        >>> import bvfim
        >>> toy = bvfim.testproblems.sine()
        >>> bvfim.testproblems.lower_gap(toy, toy.x, toy.y + 0.1) > 0.004
        True
    """
    points = _sample(test.problem.y_set, test.y, 10.0, torch.Generator().manual_seed(seed), samples)
    at = test.problem.counted_anew().at(x)
    best = at.lower_many(list(points)).nan_to_num(math.inf).argsort()[:8]
    found = [lower_minimum(at, start, 200, 1e-12) for start in (y, test.y, *points[best])]
    return float(at.lower(y)) - min(f for _, f in filter(None, found) if math.isfinite(f))


def solved(test: TestProblem, x: Tensor, y: Tensor, tol: float = 1e-2) -> bool:
    """Whether |F - F*| <= tol (1 + |F*|) and the lower-level gap is at most tol (1 + |f|).

    Example:
        >>> import bvfim
        >>> toy = bvfim.testproblems.sine()
        >>> bvfim.testproblems.solved(toy, toy.x, toy.y), bvfim.testproblems.solved(toy, 0 * toy.x, 0 * toy.y)
        (True, False)
    """
    F, f = (float(v) for v in test.problem.counted_anew().at(x).values(y))
    if not abs(F - test.upper) <= tol * (1 + abs(test.upper)):
        return False
    return lower_gap(test, x, y) <= tol * (1 + abs(f))


def vector(*entries: float) -> Tensor:
    """A float64 vector."""
    return torch.tensor(entries, dtype=torch.float64)


def _sample(box: SetTree, like: Tensor, reach: float, generator: torch.Generator, count: int) -> Tensor:
    box = Box() if box is None else box
    low, high = (torch.as_tensor(b, dtype=like.dtype).clamp(-reach, reach) for b in (box.lower, box.upper))
    return low + (high - low) * torch.rand(count, *like.shape, generator=generator, dtype=like.dtype)
