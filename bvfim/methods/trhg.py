"""TRHG: the truncated reverse hypergradient."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bvfim.core.evaluator import At
from bvfim.core.problem import Problem
from bvfim.dynamics import Dynamics
from bvfim.methods.base import Data, LowerState, Reference, Step
from bvfim.methods.explicit import Explicit
from bvfim.schedules import FloatOrSchedule, require_count
from bvfim.status import MethodError
from bvfim.tree import Tree


@dataclass(frozen=True)
class TRHG(Explicit):
    r"""Truncated reverse hypergradient (Shaban et al., 2019): only the last K of T steps are differentiated.

    .. math:: \frac{\partial F}{\partial x}
              + \sum_{t=T-K}^{T-1} \Big(\frac{\partial \Phi_t}{\partial x}\Big)^\top p_{t+1}

    Biased by design for K < T, by a term that decays like the contraction of :math:`\Phi` to the power K;
    equal to RHG for K = T. Time O(cT), memory O(m + nK): the first T - K steps store nothing.

    Args:
        steps: T.
        keep: K, from 1 to T.
        lr: the lower step size, a number or a schedule of the upper step.
        dynamics: another :math:`\Phi`, instead of ``lr``; see :mod:`bvfim.dynamics`.
        start: ``"warm"`` starts at the last y_T, ``"restart"`` at the given y.
        segment: the number of steps that share one autograd graph; see :class:`bvfim.RHG`.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum() / 2, lambda x, y: ((y - x) ** 2).sum() / 2)
        >>> x = torch.tensor([3.0], dtype=torch.float64)
        >>> bvfim.hypergradient(problem, x, 0 * x, bvfim.TRHG(steps=2, keep=1, lr=0.5))  # 1/2 of y_2, not 3/4
        tensor([1.1250], dtype=torch.float64)
    """

    steps: int = 100
    keep: int = 50
    lr: FloatOrSchedule = 0.01
    dynamics: Dynamics | None = None
    start: str = "warm"
    segment: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "keep")
        if self.keep > self.steps:
            raise MethodError(f"TRHG: keep must be at most steps ({self.steps}), not {self.keep}")

    def estimate(self, problem: Problem, x: Tree, state: LowerState, k: int, data: Data) -> Step[LowerState]:
        """The truncated derivative of F(x, y_T(x))."""
        at = problem.at(x, data)
        return self.differentiate(at, state, k, At.lower_grad_at, keep=self.keep)

    def reference(self, problem: Problem, x: Tree, state: LowerState, k: int, data: Data) -> Reference:
        """The same without truncation; and its last K steps alone, if the dynamics has no memory of earlier steps."""
        full, bias = (
            replace(self, keep=self.steps),
            f"only the last {self.keep} of {self.steps} lower steps are differentiated",
        )
        if self.keep == self.steps or self.dynamics is not None:
            return Reference(full, full, bias)
        first = replace(full, steps=self.steps - self.keep, keep=1)
        begin = first.solve_lower(problem.at(x, data), state, k)
        return Reference(full, full, bias, (replace(full, steps=self.keep, keep=self.keep), LowerState(begin, begin)))
