"""Problems of any size with known optima, from the papers on single-loop methods: constrained and pessimistic ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bvfim.core.problem import Problem
from bvfim.sets import Box
from bvfim.testproblems.base import TestProblem


def _full(n: int, number: float) -> Tensor:
    return torch.full((n,), number, dtype=torch.float64)


def lv_hba(n: int) -> TestProblem:
    r"""A quadratic problem whose lower level has one equality that couples all of x and y (Yao et al., ICLR 2024).

    With :math:`y = (u, v)`, x, u and v of n entries each,

    .. math:: F = \tfrac12 |x - v|^2 + \tfrac12 |u - 1|^2, \qquad
              f = \tfrac12 |u|^2 - \langle x, u \rangle + \sum v, \qquad h = \sum x + \sum u + \sum v = 0.

    The multiplier of h is -1, so u = x + 1; only the sum of v is determined. With v = -2x - 1, the average that is best
    for F, it remains to minimise :math:`\tfrac12 |3x + 1|^2 + \tfrac12 |x|^2`: x = -3/10, F = n/20.

    Example:
        >>> import bvfim
        >>> test = bvfim.testproblems.lv_hba(100)
        >>> test.x.shape, test.y.shape, test.upper
        (torch.Size([100]), torch.Size([200]), 5.0)
    """

    def upper(x: Tensor, y: Tensor) -> Tensor:
        u, v = y[:n], y[n:]
        return (x - v).square().sum() / 2 + (u - 1).square().sum() / 2

    return TestProblem(
        name=f"LV-HBA(n={n})",
        source="Yao et al., ICLR 2024",
        problem=Problem(upper, _lower(n), lower_equalities=lambda x, y: x.sum() + y.sum()),
        x=_full(n, -0.3),
        y=torch.cat([_full(n, 0.7), _full(n, -0.4)]),
        upper=n / 20,
        lower=n * (0.7**2 / 2 + 0.3 * 0.7 - 0.4),
        note="the lower level is unbounded without its equality, and only a sum of half of y is determined",
    )


def bic_gaffa(n: int, power: int = 1) -> TestProblem:
    r"""The same lower level, with :math:`\sum x^p` in its equality, and another F (Yao et al., NeurIPS 2024).

    .. math:: F = \langle u - 2, x - 1 \rangle + |v + 3|^2, \qquad h = \sum x^p + \sum u + \sum v = 0.

    With u = x + 1 the first term is :math:`|x - 1|^2`, so F = 0 at x = 1, u = 2, v = -3, where h = 0 for every p. F is
    no convex function of (x, u), and where u is no lower solution it is unbounded below.

    Args:
        n: the length of x; y has twice as many entries.
        power: p: 1 or 3 in the paper; with 3 the lower feasible set is no convex function of x.

    Example:
        >>> import bvfim
        >>> test = bvfim.testproblems.bic_gaffa(3, power=3)
        >>> test.x.tolist(), test.y.tolist(), test.upper
        ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0, -3.0, -3.0, -3.0], 0.0)
    """

    def upper(x: Tensor, y: Tensor) -> Tensor:
        u, v = y[:n], y[n:]
        return (u - 2) @ (x - 1) + (v + 3).square().sum()

    return TestProblem(
        name=f"BiC-GAFFA(n={n}, p={power})",
        source="Yao et al., NeurIPS 2024",
        problem=Problem(upper, _lower(n), lower_equalities=lambda x, y: x.pow(power).sum() + y.sum()),
        x=_full(n, 1.0),
        y=torch.cat([_full(n, 2.0), _full(n, -3.0)]),
        upper=0.0,
        lower=-3.0 * n,
        note="F is unbounded below off the lower level, and has no slope at the optimum",
    )


def _lower(n: int) -> Callable[[Tensor, Tensor], Tensor]:
    """f of both problems above."""

    def lower(x: Tensor, y: Tensor) -> Tensor:
        u, v = y[:n], y[n:]
        return u.square().sum() / 2 - x @ u + v.sum()

    return lower


def sipba(n: int) -> TestProblem:
    r"""A pessimistic problem whose optimum is where bounds of y begin to hold (Cao et al., NeurIPS 2025); n > 1.

    .. math:: F = \tfrac1n |x - 1|^2 - |y - 1|^2, \qquad f = (|x| - \sum y)^2, \qquad
              x \in [0.1, 10]^n, \quad y \in [1 / (2 \sqrt n), \infty)^n.

    For :math:`|x| \ge \sqrt n / 2`, the worst of the y with sum :math:`|x|` is constant, and F rises with :math:`|x|`;
    for a shorter x, y is at its bounds, and F falls as x nears 1. At the kink x = 1/2, :math:`F = \sqrt n - n`.

    Example:
        >>> import bvfim
        >>> test = bvfim.testproblems.sipba(4)
        >>> test.x[0].item(), test.y[0].item(), test.upper
        (0.5, 0.25, -2.0)
    """
    low = 1 / (2 * n**0.5)
    return TestProblem(
        name=f"SiPBA(n={n})",
        source="Cao et al., NeurIPS 2025",
        problem=Problem(
            lambda x, y: (x - 1).square().sum() / n - (y - 1).square().sum(),
            lambda x, y: (x.square().sum().sqrt() - y.sum()).square(),
            x_set=Box(0.1, 10.0),
            y_set=Box(low, torch.inf),
            follower="pessimistic",
        ),
        x=_full(n, 0.5),
        y=_full(n, low),
        upper=n**0.5 - n,
        lower=0.0,
        note="a kink; a hyperplane of lower solutions",
    )


def sto_sipba(n: int) -> TestProblem:
    r"""A pessimistic problem with a hyperplane of lower solutions (the code of Sto-SiPBA, by the same authors).

    .. math:: F = |x - 1|^2 - \sqrt n\, |y - 1|, \qquad f = \tfrac{10}{n} \big(\sum y - |x|^2\big)^2, \qquad
              x, y \in [-0.9, 0.9]^n.

    The worst of the y with sum :math:`|x|^2` is constant, which leaves :math:`2 |x|^2 - 2 \sum x`: x = 1/2, y = 1/4 and
    F = -n/2.

    Example:
        >>> import bvfim
        >>> test = bvfim.testproblems.sto_sipba(4)
        >>> test.x[0].item(), test.y[0].item(), test.upper
        (0.5, 0.25, -2.0)
    """
    box = Box(-0.9, 0.9)
    return TestProblem(
        name=f"Sto-SiPBA(n={n})",
        source="the code of Sto-SiPBA, after Cao et al., NeurIPS 2025",
        problem=Problem(
            lambda x, y: (x - 1).square().sum() - n**0.5 * (y - 1).square().sum().sqrt(),
            lambda x, y: 10 / n * (y.sum() - x.square().sum()).square(),
            x_set=box,
            y_set=box,
            follower="pessimistic",
        ),
        x=_full(n, 0.5),
        y=_full(n, 0.25),
        upper=-n / 2,
        lower=0.0,
        note="a hyperplane of lower solutions",
    )
