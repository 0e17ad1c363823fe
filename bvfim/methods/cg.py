"""CG: the implicit hypergradient by conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from bvfim import tree
from bvfim.core import linear
from bvfim.core.implicit import implicit_gradient
from bvfim.core.problem import Problem
from bvfim.dynamics import Dynamics
from bvfim.methods.base import ENOUGH, Data, LowerSolver, LowerState, Reference, Step
from bvfim.schedules import FloatOrSchedule, require, require_count
from bvfim.status import BreakdownError
from bvfim.tree import Tree


@dataclass(frozen=True)
class CG(LowerSolver):
    r"""Implicit hypergradient by conjugate gradients (Pedregosa, 2016; Rajeswaran et al., 2019).

    .. math:: \frac{\partial F}{\partial x} - \Big(\frac{\partial^2 f}{\partial y \partial x}\Big)^\top q, \qquad
              \Big(\frac{\partial^2 f}{\partial y^2} + \lambda I\Big) q = \frac{\partial F}{\partial y}

    at y_T, the end of T lower steps. Exact if y_T is stationary, the Hessian is positive definite and J is at least its
    number of distinct eigenvalues. On an indefinite Hessian CG stops at its last good iterate, and the
    history shows ``breakdown`` = 1 with the ``curvature`` and ``residual``. Time O(c(T + J)), memory O(m + n); with
    J >= n for n up to 512, memory O(m + n^2), to keep the solution exact.

    Args:
        steps: T.
        lr: the lower step size, a number or a schedule of the upper step.
        cg_steps: J.
        damping: :math:`\lambda`, added to the Hessian.
        strict: raise :class:`bvfim.BreakdownError` on an indefinite Hessian.
        dynamics: another lower optimiser, instead of ``lr``; see :mod:`bvfim.dynamics`.
        start: ``"warm"`` starts at the last y_T, ``"restart"`` at the given y.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum() / 2, lambda x, y: ((y - 2 * x) ** 2).sum())
        >>> x = torch.tensor([3.0], dtype=torch.float64)
        >>> bvfim.hypergradient(problem, x, 0 * x, bvfim.CG(lr=0.5, cg_steps=1))  # y* = 2x
        tensor([12.], dtype=torch.float64)
    """

    capturable: ClassVar[bool] = True
    compilable: ClassVar[bool] = True

    steps: int = 100
    lr: FloatOrSchedule = 0.01
    cg_steps: int = 20
    damping: float = 0.0
    strict: bool = False
    dynamics: Dynamics | None = None
    start: str = "warm"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "cg_steps")
        require(self, "damping", at_least=0, schedule=False)

    def estimate(self, problem: Problem, x: Tree, state: LowerState, k: int, data: Data) -> Step[LowerState]:
        """The implicit hypergradient at y_T."""
        at = problem.at(x, data)
        y = self.solve_lower(at, state, k)
        F, f, gradient, found = implicit_gradient(at, y, partial(linear.cg, steps=self.cg_steps), self.damping)
        if self.strict and bool(found.breakdown):
            raise BreakdownError(
                f"CG encountered a direction of curvature {float(found.curvature):g} after {int(found.steps)} steps: "
                "the lower Hessian is not positive definite there; add damping, or use BVFIM, which needs no Hessian"
            )
        info = {"upper": F, "lower": f, "value": F, **linear.report(found)}
        return at.pull(gradient), LowerState(state.start, y), info

    def reference(self, problem: Problem, x: Tree, state: LowerState, k: int, data: Data) -> Reference:
        """As many CG steps as y has entries, no damping, and a much more accurate lower-level solution."""
        exact = replace(self, steps=max(self.steps, ENOUGH), cg_steps=tree.size(state.y), damping=0.0)
        return Reference(exact, exact, f"{self.steps} lower steps, {self.cg_steps} CG steps, damping {self.damping:g}")
