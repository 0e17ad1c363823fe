"""AdaptiveBVFIM: the theorem's interior point, with nothing for the user to choose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvfim import tree
from bvfim.interior import Kept, Stage
from bvfim.methods.base import Info
from bvfim.problem import Problem
from bvfim.schedules import require, require_count
from bvfim.status import Status
from bvfim.tree import Tree


class AdaptiveState(NamedTuple):
    """Where a run is between two stages, its regularisers, and how far it got (scalars as tensors).

    Example:
        >>> import torch, bvfim
        >>> toy, method = bvfim.testproblems.sine(), bvfim.AdaptiveBVFIM()
        >>> state = method.init(toy.problem, torch.zeros(1), torch.zeros(1))
        >>> bool(state.mu2 > 1), method.status(state)
        (True, None)
    """

    y: Tree
    z: Tree
    mu2: Tensor
    tau: Tensor
    gap: Tensor
    stalled: Tensor
    ended: Tensor
    """0 under way, 1 solved, 2 the gap can't be closed, 3 unbounded."""


ENDS = {1: Status.CONVERGED, 2: Status.GAP_OPEN, 3: Status.UNBOUNDED}


@dataclass(frozen=True)
class AdaptiveBVFIM:
    r"""The value-function interior point with its own steps and schedules; first gradients only.

    By the envelope theorem, minimising :math:`\varphi_{\mu,\tau}` over x is minimising over w = (x, y) together

    .. math:: B(x, y) = F(x, y) - \tau \ln s, \qquad s = \mu_2 + f^*(x) - f(x, y), \qquad f^*(x) = \min_z f(x, z),

    .. math:: \nabla B = \big[F_x + \lambda (f_x(x, y) - f_x(x, z)),\; F_y + \lambda f_y(x, y)\big],
              \qquad \lambda = \tau/s,

    with only z nested. A **step** of the solver is a stage: B is minimised for one :math:`(\mu_2, \tau)` by projected
    L-BFGS, whose line search counts a slack :math:`s \le 0` as infinity; then

    .. math:: \mu_2 \leftarrow \max(r \mu_2,\; \mathrm{gap} + s/10), \qquad
              \tau \leftarrow \tfrac12 \lambda \sqrt{\mu_2^{\mathrm{old}} \mu_2}, \quad \text{within } [r\tau, 2\tau],

    where gap = f(x, y) - f(x, z). So w stays feasible; and since :math:`\lambda` grows like :math:`\mu_2^{-1/2}`, tau
    falls like :math:`\mu_2^{1/2}` and :math:`\tau \ln \mu_2 \to 0`, as Theorem 1 asks. The first :math:`\mu_2` exceeds
    the range of sampled f, so that the first feasible set is connected. At every trial x, z starts from the best of the
    last z, y and a few scouts. The run ends when F(x, y) and F(x, y'), with y' the end of a descent of f from y, agree:
    the first is locally a lower, the second an upper estimate of the optimum.

    Nothing certifies the global minimum over x, nor of a lower level in many dimensions: start from several points.

    Args:
        tol: how closely the two estimates of F must agree, relative to 1 + |F|.
        seed: of the scouts.
        scouts: how many other starts of z are tried, by values only, at every trial x.
        rate: r, by how much mu2 may shrink in a stage.

    Example:
        >>> import torch, bvfim
        >>> toy = bvfim.testproblems.sine(a=2)
        >>> start = torch.full((1,), -6.0, dtype=torch.float64)
        >>> solution = bvfim.solve(toy.problem, start, start, bvfim.AdaptiveBVFIM())
        >>> solution.status, bool(abs(solution.x - toy.x) < 2e-3)
        (<Status.CONVERGED: 'converged'>, True)
    """

    tol: float = 1e-3
    seed: int = 0
    scouts: int = 16
    rate: float = 0.3

    def __post_init__(self) -> None:
        require(self, "tol", above=0, schedule=False)
        require(self, "rate", above=0, schedule=False)
        require_count(self, "scouts", at_least=0)

    def init(self, problem: Problem, x: Tree, y: Tree) -> AdaptiveState:
        """mu2 above the range of sampled f, tau from the ratio of the gradients."""
        stage = self._stage(problem, x, y, 0)
        at = problem.at(x)
        _, F_u, F_y = at.upper_grads(y)
        f, f_u, f_y = at.lower_grads(y)
        sampled = at.lower_many([y, *stage.scouts(y)])
        sampled = sampled[sampled.isfinite()]
        spread = float(sampled.max() - sampled.min()) if len(sampled) else 0.0
        z, f_z = stage.lowest(at, [y, *stage.scouts(y)], 1e-3 * spread)
        gap, spread = float(f) - f_z, (float(sampled.quantile(0.9)) if len(sampled) else float(f)) - f_z
        mu2 = max(1.5 * gap, 2 * spread, 1e-12 * (1 + abs(f_z)))
        ratios = [
            float(tree.norm(a)) / float(tree.norm(b))
            for a, b in ((F_u, f_u), (F_y, f_y))
            if tree.norm(a) > 0 and tree.norm(b) > 0
        ]
        tau = (0.1 * min(ratios) if ratios else 1.0) * mu2 / 2
        return AdaptiveState(
            y, stage.ys.tree(z), _scalar(mu2), _scalar(tau), gap=_scalar(math.inf), stalled=_scalar(0), ended=_scalar(0)
        )

    def step(self, problem: Problem, x: Tree, state: AdaptiveState, k: int, data: Any) -> tuple[Tree, Any, Info]:
        """One stage: minimise B over (x, y), judge the bracket, tighten."""
        stage = self._stage(problem, x, state.y, k + 1, float(state.mu2))
        mu2, tau = float(state.mu2), float(state.tau)
        point, mu2, settled = stage.run(tree.flatten(x), tree.flatten(state.y), tree.flatten(state.z), mu2, tau)
        x, y = stage.split(point.w)
        end: Kept = point.kept
        gap, slack = end.f - end.f_z, mu2 - (end.f - end.f_z)
        ended, answer, F_answer = stage.judge(y, end, mu2, settled, self.tol)

        binding = gap + 0.1 * slack > self.rate * mu2  # the gap, not the rate, holds mu2 up
        stalled = float(state.stalled) + 1 if binding and gap > 0.7 * float(state.gap) else 0.0
        following = y
        if stalled >= 3 and gap > 1e-9 * (1 + abs(end.f_z)):
            following, gap, slack, stalled = end.z, 0.0, mu2, 0.0
        tighter = max(self.rate * mu2, gap + 0.1 * slack)
        lam = tau / max(slack, 1e-300)
        tau = min(max(0.5 * lam * math.sqrt(mu2 * tighter), self.rate * tau), 2 * tau)
        state = AdaptiveState(
            stage.ys.tree(answer if ended else following),
            stage.ys.tree(end.z),
            mu2=_scalar(tighter),
            tau=_scalar(tau),
            gap=_scalar(gap),
            stalled=_scalar(stalled),
            ended=_scalar(ended),
        )
        reported = {
            "upper": end.F, "lower": end.f, "value": point.value, "polished": F_answer, "slack": max(slack, 1e-300),
            "gap": gap, "mu2": mu2, "tau": tau, "grad_norm": float(point.gradient.norm()),
        }  # fmt: skip
        return stage.xs.tree(x), state, {name: _scalar(v) for name, v in reported.items()}

    def _stage(self, problem: Problem, x: Tree, y: Tree, k: int, mu2: float = math.inf) -> Stage:
        # An error g of the gradient costs F about g squared: only the last stages need the root of the tolerance.
        precision = 0.1 if mu2 > 100 * self.tol else 0.3 * math.sqrt(self.tol)
        # Each stage has a seed of its own, so that a resumed run draws the same scouts.
        return Stage(problem, x, y, scouts=self.scouts, seed=self.seed * 1_000_003 + k, precision=precision)

    def status(self, state: AdaptiveState) -> Status | None:
        """How the run ended, once it has."""
        return ENDS.get(int(state.ended))


def _scalar(value: float) -> Tensor:
    return torch.tensor(float(value), dtype=torch.float64)
