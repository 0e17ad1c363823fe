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

import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.linear import LinearResult
from bvfim.problem import At
from bvfim.tree import Tree

LinearSolver = Callable[[Callable[[Tree], Tree], Tree], LinearResult]
"""(matvec, b) -> the solution of A q = b, and how it was reached."""


class Implicit(NamedTuple):
    """F at y, the gradient in u, and what the linear solver said."""

    upper: Tensor
    gradient: list[Tensor]
    linear: LinearResult


@torch.enable_grad()
def implicit_gradient(at: At, y: Tree, solve: LinearSolver, damping: float = 0.0) -> Implicit:
    """The implicit hypergradient in u at y, with (Hessian + damping I) q = F_y solved by ``solve``."""
    F, F_u, F_y = at.upper_grads(y)
    u, y = tree.variable(at.u), tree.variable(y)
    f_y = at.lower_grad_at(u, y)
    free, curve = sets.tangent(at.problem.y_set, tree.detach(y), tree.detach(f_y))

    def matvec(v: Tree) -> Tree:
        at.count.hvp += 1
        v = free(v)
        product = tree.grad(tree.leaves(f_y), y, tree.leaves(v), retain_graph=True)
        return free(tree.axpy(damping, v, tree.add(product, curve(v))))

    linear = solve(matvec, free(F_y))
    at.count.jvp += 1
    indirect = tree.grad(tree.leaves(f_y), u, tree.leaves(free(linear.solution)))
    return Implicit(F, tree.sub(F_u, indirect), linear)
