"""BDA: bilevel descent aggregation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from bvfim import tree
from bvfim.core.evaluator import At
from bvfim.core.problem import Problem
from bvfim.dynamics import Dynamics
from bvfim.methods.base import Data, LowerState, Step
from bvfim.methods.explicit import Explicit
from bvfim.schedules import FloatOrSchedule, geometric, require, value
from bvfim.status import MethodError
from bvfim.tree import Tree


@dataclass(frozen=True)
class BDA(Explicit):
    r"""Bilevel descent aggregation (Liu et al., 2020): the lower steps follow both objectives.

    .. math:: y_{t+1} = \Phi\big(y_t,\;
              \alpha_k \tfrac{\partial F}{\partial y} + (1 - \alpha_k) \tfrac{\partial f}{\partial y}\big)

    and F(x, y_T(x)) is differentiated in reverse mode as in RHG. Among several lower-level solutions it
    favours those with a small F. With alpha = 0 it is RHG.

    Args:
        steps: T.
        lr: the lower step size, a number or a schedule of the upper step.
        alpha: the weight of the upper objective, in [0, 1): a number or a schedule of the upper step k. The paper's
            :math:`0.5 \cdot 0.999^k` is the default.
        dynamics: another :math:`\Phi`, instead of ``lr``; see :mod:`bvfim.dynamics`.
        start: ``"warm"`` starts at the last y_T, ``"restart"`` at the given y.
        segment: the number of steps that share one autograd graph; see :class:`bvfim.RHG`.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum() / 2, lambda x, y: ((y - x) ** 2).sum() / 2)
        >>> x = torch.tensor([3.0], dtype=torch.float64)
        >>> bvfim.hypergradient(problem, x, 0 * x, bvfim.BDA(steps=1, lr=0.5, alpha=0.5))  # y_1 = x/4
        tensor([0.1875], dtype=torch.float64)
    """

    steps: int = 100
    lr: FloatOrSchedule = 0.01
    alpha: FloatOrSchedule = geometric(0.5, 0.999)
    dynamics: Dynamics | None = None
    start: str = "warm"
    segment: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "alpha", at_least=0)

    def estimate(self, problem: Problem, x: Tree, state: LowerState, k: int, data: Data) -> Step[LowerState]:
        """d F(x, y_T(x)) / d x along the aggregated trajectory."""
        at = problem.at(x, data)
        alpha = self._alpha(k)

        def direction(at: At, u: list[Tensor], y: Tree, create_graph: bool) -> Tree:
            f_y = tree.scale(1 - alpha, at.lower_grad_at(u, y, create_graph))
            if isinstance(alpha, float) and alpha == 0:
                return f_y
            return tree.axpy(alpha, at.upper_grad_at(u, y, create_graph), f_y)

        return self.differentiate(at, state, k, direction, keep=self.steps)

    def numbers(self, k: int) -> dict[str, float]:
        """The schedules at upper step k; alpha below one."""
        others = super(BDA, replace(self, alpha=0.0)).numbers(k)
        return {**others, "alpha": self._alpha(k)} if callable(self.alpha) else others

    def _alpha(self, k: int) -> float:
        alpha = value(self.alpha, k, "alpha", zero=True)
        if isinstance(alpha, float) and alpha >= 1:  # a tensor that is fed was checked before
            raise MethodError(f"BDA: alpha must stay below 1, not {alpha:g} (at step {k})")
        return alpha
