"""FHG: the forward hypergradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.problem import Problem
from bvfim.dynamics import Dynamics
from bvfim.methods.base import Data, LowerSolver, LowerState, Step
from bvfim.schedules import FloatOrSchedule
from bvfim.status import ProblemError
from bvfim.tree import Tree


@dataclass(frozen=True)
class FHG(LowerSolver):
    r"""Forward hypergradient (Franceschi et al., 2017): forward mode along T lower steps.

    .. math:: Z_{t+1} = \frac{\partial \Phi}{\partial y} Z_t + \frac{\partial \Phi}{\partial x}, \qquad
              \frac{d\varphi_T}{dx} = \frac{\partial F}{\partial x} + Z_T^\top \frac{\partial F}{\partial y}

    All m columns of Z are propagated at once. Equal to RHG; time O(cmT), memory O(mn), so suited to a small x. The
    objectives must support ``torch.func.vmap`` and forward-mode differentiation.

    Args:
        steps: T.
        lr: the lower step size, a number or a schedule of the upper step.
        dynamics: another :math:`\Phi`, instead of ``lr``; see :mod:`bvfim.dynamics`.
        start: ``"warm"`` starts at the last y_T, ``"restart"`` at the given y.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum() / 2, lambda x, y: ((y - x) ** 2).sum() / 2)
        >>> x = torch.tensor([3.0], dtype=torch.float64)
        >>> bvfim.hypergradient(problem, x, 0 * x, bvfim.FHG(steps=2, lr=0.5))  # y_2 = 3/4 x
        tensor([1.6875], dtype=torch.float64)
    """

    spreads: ClassVar[bool] = False

    steps: int = 100
    lr: FloatOrSchedule = 0.01
    dynamics: Dynamics | None = None
    start: str = "warm"

    def estimate(self, problem: Problem, x: Tree, state: LowerState, k: int, data: Data) -> Step[LowerState]:
        """d F(x, y_T(x)) / d x."""
        at = problem.at(x, data)
        dynamics = self.dynamics_at(k)
        y = tree.detach(self.start_of(state))
        m = tree.size(x)
        carry = y, dynamics.init(y)
        Z = tree.map(lambda t: t.new_zeros(m, *t.shape), carry)

        def phi(u: list[Tensor], carry: Tree, t: int) -> Tree:
            y, memory = carry
            y, memory = dynamics.step(y, torch.func.grad(at.turn(t).f, argnums=1)(u, y), memory, t)
            return problem.project_y(y), memory

        try:
            U = at.tangents()
            for t in range(self.steps):
                carry, Z = _push(lambda u, c, t=t: phi(u, c, t), (at.u, carry), (U, Z))
                at.note(lower=1, hvp=m, jvp=m)
        except torch.cuda.OutOfMemoryError:
            raise
        except (RuntimeError, NotImplementedError) as error:
            raise ProblemError(
                "FHG needs objectives that torch.func can differentiate in forward mode and vmap over directions "
                f"({str(error).splitlines()[0]}); RHG gives the same gradient in reverse mode, and "
                "bvfim.StochasticBVFIM() and bvfim.BVFIM() need no second derivatives at all"
            ) from error
        y = carry[0]
        F, F_u, F_y = at.upper_grads(y)
        through = torch.stack([_contract(c, g) for c, g in zip(tree.leaves(Z[0]), tree.leaves(F_y), strict=True)]).sum(
            0
        )
        direct = torch.stack([_contract(c, g) for c, g in zip(U, F_u, strict=True)]).sum(0)
        info = {"upper": F, "lower": at.lower(y), "value": F}
        return tree.unravel((direct + through).to(U[0].dtype), x), LowerState(state.start, y), info


def _push(step: Any, primals: tuple[Tree, ...], tangents: tuple[Tree, ...]) -> tuple[Tree, Tree]:
    """step(primals), and its derivative along each of the m tangents."""
    pushed: Any = torch.func.vmap(lambda *v: torch.func.jvp(step, primals, v))(*tangents)
    out, along = pushed
    return tree.map(lambda t: t[0].detach(), out), tree.detach(along)


def _contract(columns: Tensor, gradient: Tensor) -> Tensor:
    return columns.reshape(len(columns), -1) @ gradient.reshape(-1)
