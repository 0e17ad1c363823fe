"""Random problems of any size, constructed around a known optimum."""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.core.problem import Problem
from bvfim.sets import Box
from bvfim.testproblems.base import TestProblem

WELLS = (0.0, 0.5, 1.0, 2.0)
"""The depths of the spurious lower-level minima in a family."""


def planted(x_size: int = 1, y_size: int = 1, wells: float = 1.0, seed: int = 0) -> TestProblem:
    r"""A random non-convex problem whose global optimum is known: x* is drawn, and y* = phi(x*).

    With :math:`\phi(x) = M x + \tfrac12 \sin(K x)`, :math:`v = A (y - \phi(x))` and :math:`r = x - x^*`,

    .. math:: f(x, y) = \sum_i \tfrac12 v_i^2 + w\, b_i (1 - \cos \omega_i v_i) + \sin \langle c, x \rangle,

    .. math:: F(x, y) = \sum_i r_i^2 + \tfrac12 (1 - \cos 3 r_i) + \langle h, \sin v \rangle.

    Both sums over i in f are at least zero, and zero only at v = 0: :math:`\phi(x)` is the only lower solution, among
    the many local minima that :math:`w > 0` creates. There :math:`F(x, \phi(x)) \ge 0`, with equality only at x*, while
    :math:`F_y = A^\top h \ne 0`: a y that is not a lower solution can have a lower F.

    Args:
        x_size: the length of x, in the box [-5, 5].
        y_size: the length of y, which is unconstrained.
        wells: w, the depth of the spurious lower-level minima; at 0, f(x, .) is quadratic.
        seed: the random seed.

    Example:
        >>> import torch, bvfim
        >>> test = bvfim.testproblems.planted(x_size=2, y_size=3, wells=2.0, seed=1)
        >>> test.x.shape, test.y.shape, test.upper
        (torch.Size([2]), torch.Size([3]), 0.0)
        >>> bvfim.testproblems.solved(test, test.x, test.y)
        True
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def uniform(low: float, high: float, size: int) -> Tensor:
        return low + (high - low) * torch.rand(size, generator=generator, dtype=torch.float64)

    M, K = normal(y_size, x_size) / x_size**0.5, normal(y_size, x_size)
    A = uniform(0.7, 1.4, y_size)[:, None] * torch.linalg.qr(normal(y_size, y_size)).Q
    b, omega = uniform(0.5, 1.5, y_size), uniform(2.0, 4.0, y_size)
    c, h, optimum = normal(x_size), uniform(0.5, 1.0, y_size), uniform(-2.0, 2.0, x_size)

    def phi(x: Tensor) -> Tensor:
        return M @ x + torch.sin(K @ x) / 2

    def lower(x: Tensor, y: Tensor) -> Tensor:
        v = A @ (y - phi(x))
        return (v**2 / 2 + wells * b * (1 - torch.cos(omega * v))).sum() + torch.sin(c @ x)

    def upper(x: Tensor, y: Tensor) -> Tensor:
        r = x - optimum
        return (r**2 + (1 - torch.cos(3 * r)) / 2).sum() + h @ torch.sin(A @ (y - phi(x)))

    return TestProblem(
        name=f"planted(x={x_size}, y={y_size}, wells={wells:g}, seed={seed})",
        source="drawn",
        problem=Problem(upper, lower, x_set=Box(-5.0, 5.0)),
        x=optimum,
        y=phi(optimum),
        upper=0.0,
        lower=float(torch.sin(c @ optimum)),
        note="many lower minima" if wells else "",
    )


def planted_family(count: int, seed: int = 0) -> list[TestProblem]:
    """Planted problems with x and y of 1 to 5 entries and wells of each depth in turn; a larger ``count`` extends it.

    Example:
        >>> import bvfim
        >>> [test.name for test in bvfim.testproblems.planted_family(2, seed=7)]
        ['planted(x=1, y=3, wells=0, seed=7)', 'planted(x=2, y=2, wells=0.5, seed=8)']
    """
    sizes = torch.randint(1, 6, (count, 2), generator=torch.Generator().manual_seed(seed)).tolist()
    return [planted(m, n, WELLS[i % len(WELLS)], seed + i) for i, (m, n) in enumerate(sizes)]
