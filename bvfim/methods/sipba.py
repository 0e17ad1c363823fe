"""SiPBA: a single loop of first gradients for a pessimistic follower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.problem import Problem
from bvfim.methods.base import Data, Method, Taken
from bvfim.schedules import FloatOrSchedule, require, value
from bvfim.tree import Tree


class SiPBAState(NamedTuple):
    """y, which is as bad for F as the lower level lets it be, and z, which sees f.

    Example:
        >>> import bvfim
        >>> bvfim.methods.SiPBAState(y=1.0, z=2.0).z
        2.0
    """

    y: Tree
    z: Tree


@dataclass(frozen=True)
class SiPBA(Method[SiPBAState]):
    r"""The single loop on a smooth approximation of the worst F over lower solutions (Cao et al., NeurIPS 2025).

    .. math:: \min_x \max_y \min_z \psi, \qquad
              \psi(x, y, z) = F(x, y) - \rho_k\, [f(x, y) - f(x, z)] - \sigma_k \langle y, z \rangle
              + \tfrac{\sigma_k}{2} |z|^2,

    by one step for each variable, x last:

    .. math:: y &\leftarrow P_Y\big(y + \beta_k\, [F_y(x, y) - \rho_k f_y(x, y) - \sigma_k z]\big), \\
              z &\leftarrow P_Y\big(z - \beta_k\, [\rho_k f_y(x, z) + \sigma_k (z - y)]\big), \\
              x &\leftarrow P_X\big(x - \alpha_k\, [F_x(x, y) - \rho_k (f_x(x, y) - f_x(x, z))]\big),

    .. math:: \alpha_k = \alpha\, (k + 1)^{-s}, \quad \beta_k = \beta\, (k + 1)^{-q - 2p}, \quad
              \rho_k = \rho\, (k + 1)^p, \quad \sigma_k = \sigma\, (k + 1)^{-q}.

    y and z move at once, from the old y and z. A step takes two gradients of F and four of f. The paper assumes that
    F is concave and f convex in y. Steps have no line search: they have to suit the problem's units.

    Args:
        alpha: the step of x, a number or a schedule, like all up to ``sigma``.
        beta: the step of y and z.
        rho: the weight of the gap f(x, y) - f(x, z).
        sigma: the weight of what makes y and z unique.
        p, q, s: the powers of the step by which these change; at 0 they do not.

    The defaults are those of the paper's example.

    Example:
        >>> import torch, bvfim
        >>> test = bvfim.testproblems.sto_sipba(2)  # x = 1/2, y = 1/4
        >>> start = torch.zeros(2, dtype=torch.float64)
        >>> found = bvfim.solve(test.problem, start, start, bvfim.SiPBA())
        >>> print(f"x = {found.x[0]:.2f}, y = {found.y[0]:.2f}")
        x = 0.50, y = 0.26
    """

    followers: ClassVar[tuple[str, ...]] = ("pessimistic",)

    alpha: FloatOrSchedule = 0.1
    beta: FloatOrSchedule = 1e-3
    rho: FloatOrSchedule = 10.0
    sigma: FloatOrSchedule = 0.01
    p: float = 1e-3
    q: float = 1e-3
    s: float = 0.1

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "rho", "sigma"):
            require(self, name, above=0)
        for name in ("p", "q", "s"):
            require(self, name, at_least=0, schedule=False)

    def init(self, problem: Problem, x: Tree, y: Tree) -> SiPBAState:
        """Both at the given y."""
        return SiPBAState(y, y)

    def minimiser(self, state: SiPBAState) -> Tree:
        """z."""
        return state.z

    def step(self, problem: Problem, x: Tree, state: SiPBAState, k: int, data: Data) -> Taken[SiPBAState]:
        """One step of y and z, then one of x."""
        powers = {"alpha": -self.s, "beta": -self.q - 2 * self.p, "rho": self.p, "sigma": -self.q}
        alpha, beta, rho, sigma = (value(getattr(self, n), k, n) * (k + 1) ** power for n, power in powers.items())
        (y, z), at = state, problem.at(x, data)

        def weigh(F: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
            return torch.ones_like(F), torch.full_like(f, -rho)

        _, _, up = at.weighted_grad(y, weigh)
        _, f_z = at.lower_grad(z)
        up, down = tree.axpy(-sigma, z, up), tree.axpy(sigma, tree.sub(z, y), tree.scale(rho, f_z))
        y, z = problem.project_y(tree.axpy(beta, up, y)), problem.project_y(tree.axpy(-beta, down, z))

        F, f, in_x = at.barrier_grad(y, z, lambda f: torch.full_like(f, -rho))
        x = problem.project_x(tree.axpy(-alpha, in_x, x))
        info = {"upper": F, "lower": f, "grad_norm": problem.world.norm(in_x)}
        return x, SiPBAState(y, z), info
