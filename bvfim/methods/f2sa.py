"""F2SA: the hypergradient as a finite difference of minima."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch

from bvfim import tree
from bvfim.core.descent import descend
from bvfim.core.evaluator import At
from bvfim.core.problem import Problem
from bvfim.dynamics import Dynamics, GradientDescent
from bvfim.methods.base import ENOUGH, Data, Estimator, Reference, Step, require_dynamics, require_start
from bvfim.schedules import FloatOrSchedule, require, require_count, value
from bvfim.status import MethodError
from bvfim.tree import Tree

STENCILS = {1: ((1, 1.0), (0, -1.0)), 2: ((1, 0.5), (-1, -0.5))}
"""Of each order: the places j of its two points, in units of nu, and their weights in the difference."""


class F2SAState(NamedTuple):
    r"""The given initial point, y = :math:`y_\nu`, and the other point: :math:`y_0`, or with order 2 :math:`y_{-\nu}`.

    Example:
        >>> import bvfim
        >>> bvfim.methods.F2SAState(start=0.0, y=1.0, other=-1.0).other
        -1.0
    """

    start: Tree
    y: Tree
    other: Tree


@dataclass(frozen=True)
class F2SA(Estimator[F2SAState]):
    r"""Fully first-order hypergradients (Kwon et al., ICML 2023), and their central difference (F2SA-p, ICLR 2026).

    With :math:`\ell_\nu(x) = \min_y f(x, y) + \nu F(x, y)`, attained at :math:`y_\nu`, the upper objective is
    :math:`\varphi(x) = \partial \ell_\nu / \partial \nu` at 0. Differences in :math:`\nu` need no second derivative:

    .. math:: \text{order 1: } \varphi_\nu = \frac{\ell_\nu - \ell_0}{\nu}, \qquad
              \nabla \varphi_\nu = F_x(x, y_\nu) + \frac{f_x(x, y_\nu) - f_x(x, y_0)}{\nu}, \\
              \text{order 2: } \varphi_\nu = \frac{\ell_\nu - \ell_{-\nu}}{2 \nu}, \qquad
              \nabla \varphi_\nu = \frac{F_x(x, y_\nu) + F_x(x, y_{-\nu})}{2}
              + \frac{f_x(x, y_\nu) - f_x(x, y_{-\nu})}{2 \nu}.

    Where f is strongly convex in y they are off by :math:`O(\nu)` and :math:`O(\nu^2)`. Both solve two lower problems,
    each by T steps :math:`y \leftarrow P_Y(y - s\,[f_y + j \nu F_y])`, j = 1 and 0, or 1 and -1: order 2 costs T + 1
    more gradients of F and no more of f. It needs :math:`f - \nu F` to have a minimiser too: where F grows faster than
    f in y, :math:`\nu` has to be small enough. Time O(cT), memory O(m + n).

    Args:
        order: 1 or 2.
        nu: :math:`\nu`, one over the weight :math:`\lambda` of f in penalty form; a number or a schedule of the upper
            step, like ``lr``. In the first paper :math:`\lambda` grows; ``schedules.power`` lets :math:`\nu` fall.
        steps: T, for each of the two.
        lr: the step size s.
        dynamics: another lower optimiser, instead of ``lr``; see :mod:`bvfim.dynamics`.
        start: ``"warm"`` starts each at its last point, ``"restart"`` both at the given y.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: (y**4).sum(), lambda x, y: ((y - x) ** 2).sum() / 2)
        >>> x = torch.tensor([1.0], dtype=torch.float64)  # y* = x, so the derivative is 4
        >>> for order in (1, 2):
        ...     print(f"{bvfim.hypergradient(problem, x, x, bvfim.F2SA(order, nu=0.01, lr=0.5)).item():.3f}")
        3.584
        4.072
    """

    capturable: ClassVar[bool] = True
    compilable: ClassVar[bool] = True

    order: int = 2
    nu: FloatOrSchedule = 0.1
    steps: int = 10
    lr: FloatOrSchedule = 0.01
    dynamics: Dynamics | None = None
    start: str = "warm"

    def __post_init__(self) -> None:
        if self.order not in STENCILS:
            raise MethodError(f"F2SA: order must be 1 or 2, not {self.order!r}")
        require(self, "nu", above=0)
        require_count(self, "steps")
        require(self, "lr", above=0)
        require_dynamics(self, self.dynamics)
        require_start(self, self.start, ("warm", "restart"))

    @property
    def inner_steps(self) -> int:
        """T."""
        return self.steps

    def init(self, problem: Problem, x: Tree, y: Tree) -> F2SAState:
        """Both at the given y."""
        return F2SAState(y, y, y)

    def minimiser(self, state: F2SAState) -> Tree:
        r""":math:`y_0`; with order 2 the middle of both points, which is as near to it as :math:`O(\nu^2)`."""
        return state.other if self.order == 1 else tree.scale(0.5, tree.add(state.y, state.other))

    def estimate(self, problem: Problem, x: Tree, state: F2SAState, k: int, data: Data) -> Step[F2SAState]:
        """The difference of the derivatives of both minima, after T steps on each."""
        nu, lr = value(self.nu, k, "nu"), value(self.lr, k, "lr")
        dynamics = GradientDescent(lr) if self.dynamics is None else self.dynamics
        at, warm = problem.at(x, data), self.start == "warm"
        starts = (state.y, state.other) if warm else (state.start, state.start)

        points = []
        for (j, _), start in zip(STENCILS[self.order], starts, strict=True):
            points.append(descend(at, _perturbed(j, nu), start, self.steps, dynamics))
        stencil = STENCILS[self.order]
        terms = [(y, w * j, w / nu) for (j, w), y in zip(stencil, points, strict=True)]
        values, gradient = at.envelope_grad(terms)

        (F, f), _ = values
        phi = torch.stack([a * F + b * f for (_, a, b), (F, f) in zip(terms, values, strict=True)]).sum()
        return gradient, F2SAState(state.start, *points), {"upper": F, "lower": f, "value": phi}

    def reference(self, problem: Problem, x: Tree, state: F2SAState, k: int, data: Data) -> Reference:
        r"""Both lower problems solved much more accurately, at the same :math:`\nu`."""
        tight = replace(self, steps=max(self.steps, ENOUGH))
        return Reference(tight, tight, f"{self.steps} steps on each of two lower problems")


def _perturbed(j: int, nu: float) -> Callable[[At, Tree], Tree]:
    """The gradient in y of f + j nu F."""

    def gradient(at: At, y: Tree) -> Tree:
        if j == 0:
            return at.lower_grad(y)[1]
        return at.weighted_grad(y, lambda F, f: (j * nu * torch.ones_like(F), torch.ones_like(f)))[2]

    return gradient
