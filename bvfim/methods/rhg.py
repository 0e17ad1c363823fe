"""RHG: the reverse hypergradient."""

from __future__ import annotations

from dataclasses import dataclass

from bvfim.core.evaluator import At
from bvfim.core.problem import Problem
from bvfim.dynamics import Dynamics
from bvfim.methods.base import Data, LowerState, Step
from bvfim.methods.explicit import Explicit
from bvfim.schedules import FloatOrSchedule
from bvfim.tree import Tree


@dataclass(frozen=True)
class RHG(Explicit):
    r"""Reverse hypergradient (Franceschi et al., 2017): reverse mode through T lower steps.

    .. math:: \varphi_T(x) = F(x, y_T(x)), \quad y_{t+1} = \Phi_t(x, y_t), \quad
              q_{t-1} = q_t + \Big(\frac{\partial \Phi}{\partial x}\Big)^\top p_t, \quad
              p_{t-1} = \Big(\frac{\partial \Phi}{\partial y}\Big)^\top p_t

    Exact for :math:`\varphi_T`. Time O(cT), memory O(m + nT).

    Args:
        steps: T.
        lr: the step size s in :math:`\Phi(x, y) = y - s\,\partial f / \partial y`: a number or a schedule of k.
        dynamics: another :math:`\Phi`, instead of ``lr``; see :mod:`bvfim.dynamics`.
        start: ``"warm"`` starts at the last y_T, ``"restart"`` at the given y.
        segment: the number of steps that share one autograd graph. 1 stores only the iterates and computes each
            lower gradient twice; T computes it once and stores T graphs.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum() / 2, lambda x, y: ((y - x) ** 2).sum() / 2)
        >>> x = torch.tensor([3.0], dtype=torch.float64)
        >>> bvfim.hypergradient(problem, x, 0 * x, bvfim.RHG(steps=2, lr=0.5))  # y_2 = 3/4 x
        tensor([1.6875], dtype=torch.float64)
    """

    steps: int = 100
    lr: FloatOrSchedule = 0.01
    dynamics: Dynamics | None = None
    start: str = "warm"
    segment: int = 1

    def estimate(self, problem: Problem, x: Tree, state: LowerState, k: int, data: Data) -> Step[LowerState]:
        """d F(x, y_T(x)) / d x."""
        at = problem.at(x, data)
        return self.differentiate(at, state, k, At.lower_grad_at, keep=self.steps)
