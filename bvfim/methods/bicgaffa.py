"""BiC-GAFFA: a single loop of first gradients for a lower level with constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.augmented import moved, violation
from bvfim.core.constraints import UPPER, layout
from bvfim.core.evaluator import At
from bvfim.core.problem import Problem
from bvfim.methods.base import Data, Method, Taken
from bvfim.schedules import FloatOrSchedule, require, value
from bvfim.status import MethodError
from bvfim.tree import Tree


class BiCGAFFAState(NamedTuple):
    r"""y, its copy z (:math:`\theta` in the paper), the multipliers of z, and which of them are of equalities.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(max, lambda x, y: (y**2).sum(), lower_constraints=lambda x, y: x - y)
        >>> bvfim.BiCGAFFA().init(problem, torch.ones(2), torch.zeros(2)).multipliers
        tensor([0., 0.])
    """

    y: Tree
    z: Tree
    multipliers: Tensor
    equal: Tensor


@dataclass(frozen=True)
class BiCGAFFA(Method[BiCGAFFAState]):
    r"""The single loop on a regularised gap function of the lower level's Lagrangian (Yao et al., NeurIPS 2024).

    With :math:`L(x, y, \lambda) = f(x, y) + \langle\lambda, g(x, y)\rangle`, the lower level and its multipliers have
    the gap

    .. math:: G(x, y, \lambda) = \max_{z,\, \mu \ge 0} L(x, y, \mu) - \frac{|\mu - \lambda|^2}{2 \gamma_2}
              - L(x, z, \lambda) - \frac{|z - y|^2}{2 \gamma_1},

    which is zero at solutions with their multipliers and, where the lower level is convex, positive elsewhere.
    :math:`F / c_k + G` is minimised by one step for each variable; only the best :math:`\mu` has a closed form:

    .. math:: z &\leftarrow P_Y\big(z - \eta\, [L_y(x, z, \lambda) + (z - y) / \gamma_1]\big), \qquad
              \mu = \max(\lambda + \gamma_2\, g(x, y),\, 0), \\
              x &\leftarrow P_X\big(x - \alpha\, [F_x / c_k + L_x(x, y, \mu) - L_x(x, z, \lambda)]\big), \\
              y &\leftarrow P_Y\big(y - \alpha\, [F_y / c_k + L_y(x, y, \mu) - (y - z) / \gamma_1]\big), \\
              \lambda &\leftarrow \mathrm{clip}_{[0, R]}
                  \big(\lambda + \beta\, [(\lambda - \mu) / \gamma_2 + g(x, z)]\big),

    all from the old x and y, and :math:`c_k = \min(c\, (k + 1)^p, \bar c)`. The multiplier of an equality keeps its
    sign: it is clipped to [-R, R], and its :math:`\mu` not at all. Without constraints this is the gap of a Moreau
    envelope. No gradient of f is differentiated: a step takes one gradient of F and three of f.

    The result is off by what F gains where it is weighed against the gap, a share of :math:`1 / c_k`; the paper proves
    convergence for a growing :math:`c_k` and p < 1/2. Steps have no line search: they have to suit the problem's units.

    Args:
        alpha: the step of x and y, a number or a schedule, like all up to ``c``.
        beta: the step of the multipliers.
        eta: the step of z.
        gamma1: how far z may be from y: the larger, the further.
        gamma2: how far the closed-form multipliers may be from those of z.
        c: the first weight of the gap, against F.
        p: the power of the step by which this weight grows.
        c_max: :math:`\bar c`, which it does not pass; None for no such limit.
        bound: R. Has to exceed the multipliers of the solution.

    The defaults are those of the paper's example with 100 variables, but for R: 1 there, and 10 in its other examples.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(),
        ...     lower=lambda x, y: (y**2).sum(),
        ...     lower_constraints=lambda x, y: x - y,  # so y = max(x, 0)
        ... )
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> found = bvfim.solve(problem, start, start, bvfim.BiCGAFFA(alpha=0.1, beta=0.1, eta=0.1))
        >>> print(f"x = {found.x.item():.2f}, y = {found.y.item():.2f}")
        x = 2.00, y = 2.00
    """

    constrained: ClassVar[bool] = True

    alpha: FloatOrSchedule = 1e-3
    beta: FloatOrSchedule = 1e-3
    eta: FloatOrSchedule = 1e-2
    gamma1: FloatOrSchedule = 10.0
    gamma2: FloatOrSchedule = 1.0
    c: FloatOrSchedule = 1.0
    p: float = 0.3
    c_max: float | None = 10.0
    bound: float = 10.0

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "eta", "gamma1", "gamma2", "c"):
            require(self, name, above=0)
        require(self, "p", at_least=0, schedule=False)
        require(self, "bound", above=0, schedule=False)
        if self.c_max is not None:
            require(self, "c_max", above=0, schedule=False)

    def init(self, problem: Problem, x: Tree, y: Tree) -> BiCGAFFAState:
        """y and z at the given y, and multipliers of zero."""
        if problem.world.size > 1:
            raise MethodError("BiCGAFFA runs in one process: leave the mesh out")
        stated = [kind for kind in UPPER if kind in problem.stated]
        if stated:
            raise MethodError(f"BiCGAFFA takes constraints of the lower level, but no {stated[0]}: take AdaptiveBVFIM")
        equal = layout(problem, x, y, problem.at(x).inputs()[1]).equal
        first = tree.leaves(y)[0]
        return BiCGAFFAState(y, y, first.new_zeros(len(equal)), equal.to(first.device))

    def minimiser(self, state: BiCGAFFAState) -> Tree:
        """z."""
        return state.z

    def step(self, problem: Problem, x: Tree, state: BiCGAFFAState, k: int, data: Data) -> Taken[BiCGAFFAState]:
        """One step of z, then of x, y and the multipliers."""
        names = ("alpha", "beta", "eta", "gamma1", "gamma2", "c")
        alpha, beta, eta, gamma1, gamma2, c = (value(getattr(self, name), k, name) for name in names)
        c_k = c * (k + 1) ** self.p
        c_k = c_k if self.c_max is None else min(c_k, self.c_max)
        y, z, multipliers, equal = state
        at = problem.at(x, data)

        in_z = self._lagrangian_grad(at, z, multipliers)
        z = problem.project_y(tree.axpy(-eta, tree.axpy(1 / gamma1, tree.sub(z, y), in_z), z))

        def values(u: list[Tensor], y: Tree) -> tuple[Tensor, ...]:
            return *at.both(u, y), constraints(at, u, y), at.f(u, z), constraints(at, u, z)

        at.note(upper=1, lower=2)
        (F, f, g, _, g_z), pull, _ = at.backend.vjp(values, at.u, y)
        mu, one = moved(g, multipliers, torch.full_like(g, gamma2), equal), torch.ones_like(f)
        in_u, in_y = pull((one / c_k, one, mu, -one, -multipliers))
        in_x, in_y = at.pull(in_u), tree.axpy(1 / gamma1, tree.sub(z, y), in_y)

        x = problem.project_x(tree.axpy(-alpha, in_x, x))
        y = problem.project_y(tree.axpy(-alpha, in_y, y))
        low = torch.where(equal, -self.bound, 0.0).to(mu)
        multipliers = (multipliers + beta * ((multipliers - mu) / gamma2 + g_z)).clamp(
            low, torch.full_like(low, self.bound)
        )
        info = {"upper": F, "lower": f, "grad_norm": tree.norm(in_x), "weight": c_k}
        info |= {"violation": violation(g, equal).amax()} if len(g) else {}
        return x, BiCGAFFAState(y, z, multipliers, equal), info

    def _lagrangian_grad(self, at: At, z: Tree, multipliers: Tensor) -> Tree:
        """L_y(x, z, lambda)."""
        at.note(lower=1)
        (f, _), pull, _ = at.backend.vjp(lambda z: (at.f(at.u, z), constraints(at, at.u, z)), z)
        return pull((torch.ones_like(f), multipliers), of=0)


def constraints(at: At, u: list[Tensor], y: Tree) -> Tensor:
    """The constraints at (x, y): an empty vector where there are none."""
    return at.constraints(u, y) if at.problem.stated else tree.leaves(y)[0].new_zeros(0)
