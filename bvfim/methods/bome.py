"""BOME: one joint step whose multiplier makes the value gap fall."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from bvfim import tree
from bvfim.core.descent import descend
from bvfim.core.problem import Problem
from bvfim.dynamics import GradientDescent
from bvfim.methods.base import Data, Method, Taken
from bvfim.schedules import FloatOrSchedule, require, require_count, value
from bvfim.status import MethodError
from bvfim.tree import Tree

BARRIERS = ("gradient", "value")


class BOMEState(NamedTuple):
    """y, and z, where T steps from the y before led.

    Example:
        >>> import bvfim
        >>> bvfim.methods.BOMEState(y=1.0, z=2.0).z
        2.0
    """

    y: Tree
    z: Tree


@dataclass(frozen=True)
class BOME(Method[BOMEState]):
    r"""Bilevel optimisation made easy: a dynamic barrier on the value gap (Liu et al., NeurIPS 2022).

    T steps on f(x, .) lead from y to z, which is then held constant in the gap q:

    .. math:: q(x, y) = f(x, y) - f(x, z), \qquad
              \nabla q = \big(f_x(x, y) - f_x(x, z),\; f_y(x, y)\big).

    One joint step follows F as closely as it can while q falls by at least :math:`\phi`:

    .. math:: (x, y) \leftarrow P\big((x, y) - (\alpha, \beta)\, [\nabla F + \lambda \nabla q]\big), \qquad
              \lambda = \max\Big(\frac{\phi - \langle \nabla F, \nabla q \rangle}{|\nabla q|^2},\, 0\Big),

    with :math:`\phi = \eta |\nabla q|^2` or :math:`\eta q`. No weight has to be chosen: :math:`\lambda` grows as q
    vanishes, up to a size of one over the step, so that the result is off by as much as the step is long, and by what T
    steps leave of the way to the minimiser. First gradients only: T + 2 of f and one of F for each step.

    Args:
        x_lr: :math:`\alpha`, a number or a schedule, like all up to ``eta``.
        y_lr: :math:`\beta`; the theory is that of equal steps.
        lr: the step from y to z.
        eta: :math:`\eta`, how fast the gap falls.
        steps: T.
        barrier: ``"gradient"`` for :math:`\phi = \eta |\nabla q|^2`, the paper's choice, ``"value"`` for
            :math:`\eta q`, that of its code for hyper-cleaning.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> start = torch.zeros(1, dtype=torch.float64)
        >>> found = bvfim.solve(problem, start, start, bvfim.BOME(lr=0.1), steps=1000)
        >>> print(f"x = {found.x.item():.2f}, y = {found.y.item():.2f}")
        x = 1.00, y = 1.00
    """

    takes_batches: ClassVar[bool] = True

    x_lr: FloatOrSchedule = 0.01
    y_lr: FloatOrSchedule = 0.01
    lr: FloatOrSchedule = 0.01
    eta: FloatOrSchedule = 0.5
    steps: int = 10
    barrier: str = "gradient"

    def __post_init__(self) -> None:
        for name in ("x_lr", "y_lr", "lr", "eta"):
            require(self, name, above=0)
        require_count(self, "steps")
        if self.barrier not in BARRIERS:
            raise MethodError(f"BOME: barrier must be one of {', '.join(BARRIERS)}, not {self.barrier!r}")

    @property
    def inner_steps(self) -> int:
        """T."""
        return self.steps

    def init(self, problem: Problem, x: Tree, y: Tree) -> BOMEState:
        """Both at the given y."""
        return BOMEState(y, y)

    def minimiser(self, state: BOMEState) -> Tree:
        """z."""
        return state.z

    def step(self, problem: Problem, x: Tree, state: BOMEState, k: int, data: Data) -> Taken[BOMEState]:
        """T steps from y to z, then one of x and y."""
        x_lr, y_lr, lr, eta = (value(getattr(self, name), k, name) for name in ("x_lr", "y_lr", "lr", "eta"))
        y, at = state.y, problem.at(x, data)

        z = descend(at, lambda at, z: at.lower_grad(z)[1], y, self.steps, GradientDescent(lr))
        F, F_u, F_y = at.upper_grads(y)
        f, f_u, f_y = at.lower_grads(y)
        f_z, f_u_z, _ = at.lower_grads(z)
        q, F_x, q_x = f - f_z, at.pull(F_u), at.pull(tree.sub(f_u, f_u_z))

        squared = tree.dot(q_x, q_x) + tree.dot(f_y, f_y)
        phi = eta * (squared if self.barrier == "gradient" else q)
        ahead = phi - tree.dot(F_x, q_x) - tree.dot(F_y, f_y)
        # Where the gap has no gradient left it can't fall, and whatever lambda is multiplies nothing.
        weight = (ahead / squared.clamp_min(torch.finfo(squared.dtype).tiny)).clamp_min(0.0)

        in_x, in_y = tree.axpy(weight, q_x, F_x), tree.axpy(weight, f_y, F_y)
        x = problem.project_x(tree.axpy(-x_lr, in_x, x))
        y = problem.project_y(tree.axpy(-y_lr, in_y, y))
        info = {"upper": F, "lower": f, "gap": q, "weight": weight, "grad_norm": problem.world.norm(in_x)}
        return x, BOMEState(y, z), info
