"""MEHA: a single loop on the gap of a Moreau envelope, with a prox for what is not smooth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.problem import Problem
from bvfim.methods.base import Data, Method, Taken
from bvfim.schedules import FloatOrSchedule, require, value
from bvfim.status import MethodError
from bvfim.tree import Tree

Nonsmooth: TypeAlias = Callable[[Tree, Tree], Tensor]
"""r, a function of (x, y) that is part of the lower objective."""
Prox: TypeAlias = Callable[[Tree, Tree, float], Tree]
"""(x, v, s) -> the minimiser over y of r(x, y) + |y - v|^2 / (2 s)."""


class MEHAState(NamedTuple):
    r"""y, and z (:math:`\theta` in the paper), which tracks the minimiser within the envelope at y.

    Example:
        >>> import bvfim
        >>> bvfim.methods.MEHAState(y=1.0, z=2.0).z
        2.0
    """

    y: Tree
    z: Tree


@dataclass(frozen=True)
class MEHA(Method[MEHAState]):
    r"""The single loop on the lower level's Moreau envelope (Liu, Liu, Yao, Zeng and Zhang, ICML 2024).

    .. math:: \min_{x \in X,\, y \in Y} \frac{F(x, y)}{c_k} + f(x, y) - v_\gamma(x, y), \qquad
              v_\gamma(x, y) = \min_{z \in Y} f(x, z) + \frac{|z - y|^2}{2 \gamma}.

    f needs no convexity in y: with :math:`\gamma` below one over its most negative curvature, the envelope is smooth,
    and :math:`f = v_\gamma` where y is stationary. With f = g + r, where g is smooth and r has a prox, a step is

    .. math:: z &\leftarrow \mathrm{prox}_{\eta r(x, \cdot)}\big(z - \eta\, [g_y(x, z) + (z - y) / \gamma]\big), \\
              x &\leftarrow P_X\big(x - \alpha\, [F_x / c_k + f_x(x, y) - f_x(x, z)]\big), \\
              y &\leftarrow \mathrm{prox}_{\beta r(x, \cdot)}
                  \big(y - \beta\, [F_y / c_k + g_y(x, y) - (y - z) / \gamma]\big),

    one variable after the other, each projected onto its set, and :math:`c_k = c\, (k + 1)^p`. First gradients only:
    two of F and four of f. The result is off by :math:`O(1 / c_k)`; the paper takes p < 1/2.

    **What is not smooth** stays a part of ``lower``, so that values, gaps and other methods see the whole f. Where
    ``nonsmooth`` and ``prox`` are given, the gradient of r is taken out of that of f, and the prox does its part; r has
    to be differentiable in x. Unless Y is all of R^n, or a box and r a sum over entries, the
    prox has to hold it too.

    Args:
        alpha: the step of x, a number or a schedule, like all up to ``c``.
        beta: the step of y.
        eta: the step of z.
        gamma: how far z may be from y: the larger, the further.
        c: the first weight of the gap, against F.
        p: the power of the step by which this weight grows.
        nonsmooth: r, a function of (x, y).
        prox: a function of (x, v, s), the prox of s r(x, .) at v.

    Steps have no line search: they have to suit the problem's units. The paper's differ from example to example, and
    the defaults are none of these.

    Example:
        >>> import torch, bvfim
        >>> def l1(x, y):
        ...     return (x * y.abs()).sum()
        >>> def shrink(x, v, s):
        ...     return v.sign() * (v.abs() - s * x).clamp_min(0)
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y: ((y - 1) ** 2).sum(),
        ...     lower=lambda x, y: ((y - 3) ** 2).sum() / 2 + l1(x, y),  # so y = 3 - x
        ...     x_set=bvfim.Box(0, 10),
        ... )
        >>> start = torch.ones(1, dtype=torch.float64)
        >>> found = bvfim.solve(problem, start, start, bvfim.MEHA(nonsmooth=l1, prox=shrink), steps=1000)
        >>> print(f"x = {found.x.item():.2f}, y = {found.y.item():.2f}")
        x = 2.00, y = 1.00
    """

    takes_batches: ClassVar[bool] = True

    alpha: FloatOrSchedule = 0.1
    beta: FloatOrSchedule = 0.1
    eta: FloatOrSchedule = 0.1
    gamma: FloatOrSchedule = 10.0
    c: FloatOrSchedule = 2.0
    p: float = 0.25
    nonsmooth: Nonsmooth | None = None
    prox: Prox | None = None

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "eta", "gamma", "c"):
            require(self, name, above=0)
        require(self, "p", at_least=0, schedule=False)
        if (self.nonsmooth is None) != (self.prox is None):
            raise MethodError("MEHA: nonsmooth and prox belong together: r as a function of (x, y), and its prox")

    def init(self, problem: Problem, x: Tree, y: Tree) -> MEHAState:
        """Both at the given y."""
        return MEHAState(y, y)

    def minimiser(self, state: MEHAState) -> Tree:
        """z."""
        return state.z

    def step(self, problem: Problem, x: Tree, state: MEHAState, k: int, data: Data) -> Taken[MEHAState]:
        """One step of z, then of x, then of y at the new x."""
        names = ("alpha", "beta", "eta", "gamma", "c")
        alpha, beta, eta, gamma, c = (value(getattr(self, name), k, name) for name in names)
        c_k = c * (k + 1) ** self.p
        (y, z), at = state, problem.at(x, data)

        in_z = tree.sub(at.lower_grad(z)[1], self._rough_grad(x, z))
        z = self._moved(problem, x, z, tree.axpy(1 / gamma, tree.sub(z, y), in_z), eta)

        F, f, in_x = at.barrier_grad(y, z, lambda f: torch.full_like(f, c_k))
        x = problem.project_x(tree.axpy(-alpha / c_k, in_x, x))

        _, _, in_y = problem.at(x, data).weighted_grad(
            y, lambda F, f: (torch.full_like(F, 1 / c_k), torch.ones_like(f))
        )
        in_y = tree.axpy(1 / gamma, tree.sub(z, y), tree.sub(in_y, self._rough_grad(x, y)))
        y = self._moved(problem, x, y, in_y, beta)

        info = {"upper": F, "lower": f, "grad_norm": problem.world.norm(in_x)}
        return x, MEHAState(y, z), {**info, "weight": c_k}

    def _rough_grad(self, x: Tree, y: Tree) -> Tree:
        """r_y, or what autograd takes for it at a kink: the same as in the gradient of f."""
        if self.nonsmooth is None:
            return tree.zeros_like(y)
        with torch.enable_grad():
            y = tree.variable(y)
            return tree.grad(self.nonsmooth(x, y), y)

    def _moved(self, problem: Problem, x: Tree, y: Tree, direction: Tree, step: float) -> Tree:
        """A step along the smooth part, and the prox of the other."""
        y = tree.axpy(-step, direction, y)
        return problem.project_y(y if self.prox is None else self.prox(x, y, step))
