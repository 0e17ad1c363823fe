"""The paper's toy problem in any dimension."""

from __future__ import annotations

import math

import torch

from bvfim.core.problem import Problem
from bvfim.testproblems.base import TestProblem


def sine(a: float = 0.0, n: int = 1, c: float = 0.0) -> TestProblem:
    r"""The paper's toy problem in n dimensions.

    .. math:: \min_{x, y} (x - a)^2 + \sum_i (y_i - a - c)^2 \quad\text{s.t.}\quad
              y \in \arg\min_y \sum_i \sin(x + y_i - c)

    With C the value :math:`-\pi/2 + 2k\pi` nearest 2a, the optimum is at
    :math:`x = ((1 - n)a + nC)/(1 + n)`, :math:`y_i = C + c - x` with :math:`F = n (C - 2a)^2 / (1 + n)`. (The paper
    prints another F for a = 2, where this gives 0.253749.)

    Args:
        a: shifts the upper objective.
        n: the length of y.
        c: shifts y.

    Example:
        >>> import math, bvfim
        >>> math.isclose(bvfim.testproblems.sine().upper, math.pi**2 / 8)
        True
    """
    well = -math.pi / 2 + 2 * math.pi * round((2 * a + math.pi / 2) / (2 * math.pi))
    x = ((1 - n) * a + n * well) / (1 + n)
    problem = Problem(
        upper=lambda x, y: ((x - a) ** 2).sum() + ((y - a - c) ** 2).sum(),
        lower=lambda x, y: torch.sin(x + y - c).sum(),
    )
    return TestProblem(
        name=f"sine(a={a:g}, n={n}, c={c:g})",
        source="Liu et al., ICML 2021, Section 6.1",
        problem=problem,
        x=torch.tensor([x], dtype=torch.float64),
        y=torch.full((n,), well + c - x, dtype=torch.float64),
        upper=n * (well - 2 * a) ** 2 / (1 + n),
        lower=-float(n),
    )
