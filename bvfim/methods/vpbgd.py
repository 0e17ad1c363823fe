"""V-PBGD: gradient descent on F with a penalty on the value gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from bvfim import tree
from bvfim.core.descent import descend
from bvfim.core.problem import Problem
from bvfim.dynamics import GradientDescent
from bvfim.methods.base import Data, Method, Taken
from bvfim.schedules import FloatOrSchedule, require, require_count, value
from bvfim.tree import Tree


class VPBGDState(NamedTuple):
    """y, which sees F, and z, which tracks the minimiser of f.

    Example:
        >>> import bvfim
        >>> bvfim.methods.VPBGDState(y=1.0, z=2.0).z
        2.0
    """

    y: Tree
    z: Tree


@dataclass(frozen=True)
class VPBGD(Method[VPBGDState]):
    r"""Penalty-based gradient descent on the value gap (Shen and Chen, ICML 2023).

    .. math:: \min_{x \in X,\, y \in Y} F(x, y) + \gamma\,\big(f(x, y) - f^*(x)\big), \qquad
              f^*(x) = \min_{z \in Y} f(x, z),

    by T steps of z on f(x, .), then one joint step of x and y, both from the old x and y:

    .. math:: z &\leftarrow P_Y\big(z - \eta f_y(x, z)\big), \\
              x &\leftarrow P_X\big(x - \alpha c\, [F_x + \gamma (f_x(x, y) - f_x(x, z))]\big), \\
              y &\leftarrow P_Y\big(y - \beta c\, [F_y + \gamma f_y(x, y)]\big), \qquad c = \min(1 / \gamma, 1).

    The derivative of :math:`f^*` is :math:`f_x` at its minimiser, so first gradients suffice: T + 2 of f and one of F
    for each step. Stationary points of the penalty are off those of the bilevel problem by :math:`O(1 / \gamma)`.

    Args:
        x_lr: :math:`\alpha`, a number or a schedule, like all up to ``gamma``.
        y_lr: :math:`\beta`.
        z_lr: :math:`\eta`.
        gamma: the weight of the gap. The paper's linear network lets it rise from 0, as
            ``bvfim.schedules.linear(0.0, 0.2, 30_000)`` does.
        z_steps: T.

    The defaults are the paper's steps for hyper-cleaning with a linear model, and the weight of its toy.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> found = bvfim.solve(problem, start, start, bvfim.VPBGD(z_lr=0.1), steps=1000)
        >>> print(f"x = {found.x.item():.2f}, y = {found.y.item():.2f}")
        x = 1.00, y = 1.00
    """

    takes_batches: ClassVar[bool] = True

    x_lr: FloatOrSchedule = 0.1
    y_lr: FloatOrSchedule = 0.1
    z_lr: FloatOrSchedule = 0.01
    gamma: FloatOrSchedule = 10.0
    z_steps: int = 1

    def __post_init__(self) -> None:
        for name in ("x_lr", "y_lr", "z_lr"):
            require(self, name, above=0)
        require(self, "gamma", at_least=0)
        require_count(self, "z_steps")

    @property
    def inner_steps(self) -> int:
        """T."""
        return self.z_steps

    def init(self, problem: Problem, x: Tree, y: Tree) -> VPBGDState:
        """Both at the given y."""
        return VPBGDState(y, y)

    def minimiser(self, state: VPBGDState) -> Tree:
        """z."""
        return state.z

    def step(self, problem: Problem, x: Tree, state: VPBGDState, k: int, data: Data) -> Taken[VPBGDState]:
        """T steps of z, then one of x and y."""
        x_lr, y_lr, z_lr = (value(getattr(self, name), k, name) for name in ("x_lr", "y_lr", "z_lr"))
        gamma = value(self.gamma, k, "gamma", zero=True)
        (y, z), at = state, problem.at(x, data)

        z = descend(at, lambda at, z: at.lower_grad(z)[1], z, self.z_steps, GradientDescent(z_lr))
        F, f, f_z, in_x, in_y = at.gap_grads(y, z, 1.0, gamma)
        c = min(1 / gamma, 1.0) if gamma else 1.0
        x = problem.project_x(tree.axpy(-x_lr * c, in_x, x))
        y = problem.project_y(tree.axpy(-y_lr * c, in_y, y))
        info = {"upper": F, "lower": f, "gap": f - f_z, "grad_norm": problem.world.norm(in_x)}
        return x, VPBGDState(y, z), {**info, "weight": gamma}
