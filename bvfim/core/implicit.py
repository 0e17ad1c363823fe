r"""The implicit hypergradient at a lower-level point, for any linear solver.

.. math:: G(x) = \frac{\partial F}{\partial x}
          - \Big(\frac{\partial^2 f}{\partial y \partial x}\Big)^\top q,
          \qquad \frac{\partial^2 f}{\partial y^2}\, q = \frac{\partial F}{\partial y}

With a set Y the system is restricted to the directions that stay on the active face: on the free
coordinates of a box, and with the face's curvature added for a ball (see :mod:`bvfim.sets`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from bvfim import sets, tree
from bvfim.core.evaluator import At
from bvfim.core.linear import LinearResult
from bvfim.tree import Tree

LinearSolver = Callable[[Callable[[Tree], Tree], Tree], LinearResult]
"""(matvec, b) -> the solution of A q = b, and how it was reached."""


class Implicit(NamedTuple):
    """F and f at y, the gradient in u, and what the linear solver said."""

    upper: Tensor
    lower: Tensor
    gradient: list[Tensor]
    linear: LinearResult


def implicit_gradient(at: At, y: Tree, solve: LinearSolver, damping: float = 0.0) -> Implicit:
    """The implicit hypergradient in u at y, with (Hessian + damping I) q = F_y solved by ``solve``."""
    F, F_u, F_y = at.upper_grads(y)
    f, f_y, hessian, cross = at.lower_products(y)
    free, curved = sets.tangent(at.problem.y_set, y, f_y)

    def matvec(v: Tree) -> Tree:
        v = free(v)
        product = curved(v, hessian(v))
        return free(tree.axpy(damping, v, product) if damping else product)

    linear = solve(matvec, free(F_y))
    return Implicit(F, f, tree.sub(F_u, cross(free(linear.solution))), linear)
