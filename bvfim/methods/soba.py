"""SOBA: y, the solution of the linear system, and x by one step each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from bvfim import sets, tree
from bvfim.core.problem import Problem
from bvfim.methods.base import Data, Estimator, Reference, Settled, Step
from bvfim.schedules import FloatOrSchedule, require, value
from bvfim.tree import Tree


class SOBAState(NamedTuple):
    """y, and v, which tracks the solution of the linear system.

    Example:
        >>> import bvfim
        >>> bvfim.methods.SOBAState(y=1.0, v=0.0).v
        0.0
    """

    y: Tree
    v: Tree


@dataclass(frozen=True)
class SOBA(Estimator[SOBAState]):
    r"""The stochastic bilevel algorithm (Dagréou, Ablin, Vaiter and Moreau, NeurIPS 2022).

    The implicit hypergradient is :math:`F_x + f_{xy} v`, where :math:`f_{yy} v = - F_y`. y, v and x move at once, each
    along a direction that is linear in the functions, so that batches leave it unbiased:

    .. math:: D_y = f_y, \qquad D_v = f_{yy} v + F_y, \qquad D_x = F_x + f_{xy} v, \\
              y \leftarrow P_Y(y - \rho D_y), \qquad v \leftarrow v - \rho D_v,

    and :math:`D_x` is the estimate, along which an optimiser moves x. With a set Y, v stays among the directions that
    are free at y. A step takes a gradient of F, one of f and a product with its second derivatives: memory O(m + n).

    v begins at zero, so that the first estimate is :math:`F_x` alone. With batches and constant steps it ends at a
    floor of noise; the paper lets both steps go down like :math:`k^{-1/2}`, which
    ``lr=bvfim.schedules.power(0.1, -0.5)`` and a scheduler of x do.

    Args:
        lr: :math:`\rho`, a number or a schedule of the upper step.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> x = torch.zeros(1, dtype=torch.float64)
        >>> method = bvfim.SOBA(lr=0.2)
        >>> found = bvfim.solve(problem, x, x, method, optimizer=lambda p: torch.optim.SGD(p, 0.1), steps=200)
        >>> print(f"x = {found.x.item():.3f}")
        x = 1.000
    """

    capturable: ClassVar[bool] = True

    lr: FloatOrSchedule = 0.1

    def __post_init__(self) -> None:
        require(self, "lr", above=0)

    @property
    def turns(self) -> int:
        """None: the one step is taken on the draw of the values."""
        return 0

    def init(self, problem: Problem, x: Tree, y: Tree) -> SOBAState:
        """v = 0."""
        return SOBAState(y, tree.zeros_like(y))

    def estimate(self, problem: Problem, x: Tree, state: SOBAState, k: int, data: Data) -> Step[SOBAState]:
        """D_x at y and v, and their next values."""
        lr, (y, v), at = value(self.lr, k, "lr"), state, problem.at(x, data)
        F, F_u, F_y = at.upper_grads(y)
        f, f_y, cross, product = at.lower_product(y, v)
        free, curved = sets.tangent(problem.y_set, y, f_y)

        in_y, in_v, in_x = f_y, tree.add(curved(v, product), F_y), at.pull(tree.add(F_u, cross))
        following = SOBAState(problem.project_y(tree.axpy(-lr, in_y, y)), free(tree.axpy(-lr, in_v, v)))
        return in_x, following, {"upper": F, "lower": f, "value": F}

    def reference(self, problem: Problem, x: Tree, state: SOBAState, k: int, data: Data) -> Reference:
        """y and v where so many steps at one x lead that both have converged."""
        return Reference(Settled(self), Settled(self), "one step of y and v")
