"""Neumann: the implicit hypergradient by a truncated series."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from bvfim.core import linear
from bvfim.core.implicit import implicit_gradient
from bvfim.core.problem import Problem
from bvfim.dynamics import Dynamics
from bvfim.methods.base import ENOUGH, Data, LowerSolver, LowerState, Reference, Step
from bvfim.schedules import FloatOrSchedule, require, require_count, value
from bvfim.status import MethodError
from bvfim.tree import Tree


@dataclass(frozen=True)
class Neumann(LowerSolver):
    r"""Implicit hypergradient by a Neumann series (Lorraine et al., 2020).

    .. math:: \frac{\partial F}{\partial x} - \Big(\frac{\partial^2 f}{\partial y \partial x}\Big)^\top q, \qquad
              q = \eta \sum_{j=0}^{J} \Big(I - \eta \frac{\partial^2 f}{\partial y^2}\Big)^j
              \frac{\partial F}{\partial y}

    at y_T, the end of T lower steps. The error decays like :math:`\max|1 - \eta\lambda|^{J+1}` over the eigenvalues
    :math:`\lambda` of the Hessian. If the terms grow, the sum stops before the first larger term, and the
    history shows ``breakdown`` = 1. Time O(c(T + J)), memory O(m + n).

    Args:
        steps: T.
        lr: the lower step size, a number or a schedule of the upper step.
        terms: J.
        eta: the scale of the series; ``None`` uses ``lr``.
        dynamics: another lower optimiser, instead of ``lr``; then ``eta`` must be given.
        start: ``"warm"`` starts at the last y_T, ``"restart"`` at the given y.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum() / 2, lambda x, y: ((y - x) ** 2).sum() / 2)
        >>> x = torch.tensor([3.0], dtype=torch.float64)
        >>> bvfim.hypergradient(problem, x, x, bvfim.Neumann(lr=0.5, terms=2))  # (1 - 1/8) of the exact 3
        tensor([2.6250], dtype=torch.float64)
    """

    capturable: ClassVar[bool] = True
    compilable: ClassVar[bool] = True

    steps: int = 100
    lr: FloatOrSchedule = 0.01
    terms: int = 20
    eta: FloatOrSchedule | None = None
    dynamics: Dynamics | None = None
    start: str = "warm"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "terms", at_least=0)
        if self.eta is not None:
            require(self, "eta", above=0)
        elif self.dynamics is not None:
            raise MethodError("Neumann: with a dynamics instead of lr, eta must be given")

    def estimate(self, problem: Problem, x: Tree, state: LowerState, k: int, data: Data) -> Step[LowerState]:
        """The implicit hypergradient at y_T."""
        at = problem.at(x, data)
        y = self.solve_lower(at, state, k)
        eta = value(self.lr, k, "lr") if self.eta is None else value(self.eta, k, "eta")
        F, f, gradient, found = implicit_gradient(at, y, partial(linear.neumann, terms=self.terms, eta=eta))
        info = {"upper": F, "lower": f, "value": F, **linear.report(found)}
        return at.pull(gradient), LowerState(state.start, y), info

    def reference(self, problem: Problem, x: Tree, state: LowerState, k: int, data: Data) -> Reference:
        """A much longer series, and a much more accurate lower-level solution."""
        exact = replace(self, steps=max(self.steps, ENOUGH), terms=max(self.terms, ENOUGH))
        return Reference(exact, exact, f"{self.steps} lower steps, {self.terms} terms of the series")
