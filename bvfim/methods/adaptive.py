"""AdaptiveBVFIM: the theorem's interior point, with nothing for the user to choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.certificate import Certificate
from bvfim.flat import Flat
from bvfim.interior import Interior
from bvfim.methods.base import Info
from bvfim.problem import Problem
from bvfim.rows import Batch
from bvfim.schedules import require, require_count
from bvfim.stage import BROKEN, OPEN, SOLVED, STUCK, UNBOUNDED, UNDER_WAY, Starts, advance, begin
from bvfim.status import MethodError, Status
from bvfim.tree import Tree

ENDS = {
    SOLVED: Status.CONVERGED,
    STUCK: Status.STUCK,
    OPEN: Status.GAP_OPEN,
    UNBOUNDED: Status.UNBOUNDED,
    BROKEN: Status.NON_FINITE,
}


class AdaptiveState(NamedTuple):
    """The chosen start's y and z, which start that is, and where all of them are.

    Example:
        >>> import torch, bvfim
        >>> toy, method = bvfim.testproblems.sine(), bvfim.AdaptiveBVFIM()
        >>> state = method.init(toy.problem, torch.zeros(1), torch.zeros(1))
        >>> bool(state.starts.mu2 > 1), method.status(state)
        (True, None)
    """

    y: Tree
    z: Tree
    chosen: Tensor
    starts: Starts


@dataclass(frozen=True)
class AdaptiveBVFIM:
    r"""The value-function interior point with its own steps and schedules; first gradients only.

    By the envelope theorem, minimising :math:`\varphi_{\mu,\tau}` over x is minimising over w = (x, y) together

    .. math:: B(x, y) = F(x, y) - \tau \ln s, \qquad s = \mu_2 + f^*(x) - f(x, y), \qquad f^*(x) = \min_z f(x, z),

    .. math:: \nabla B = \big[F_x + \lambda (f_x(x, y) - f_x(x, z)),\; F_y + \lambda f_y(x, y)\big],
              \qquad \lambda = \tau/s,

    with only z nested. A **step** of the solver is a stage: B is minimised for one :math:`(\mu_2, \tau)` by projected
    L-BFGS, whose line search counts a slack :math:`s \le 0` as infinity; x and y have scales of their own, and the
    curvature that one stage has seen serves the next. Then

    .. math:: \mu_2 \leftarrow \max(r \mu_2,\; \mathrm{gap} + s/10), \qquad
              \tau \leftarrow \tfrac12 \lambda \sqrt{\mu_2^{\mathrm{old}} \mu_2}, \quad \text{within } [r\tau, 4\tau],

    where gap = f(x, y) - f(x, z). So w stays feasible; and since :math:`\lambda` grows like :math:`\mu_2^{-1/2}`, tau
    falls like :math:`\mu_2^{1/2}` and :math:`\tau \ln \mu_2 \to 0`, as Theorem 1 asks. The first :math:`\mu_2` exceeds
    the range of sampled f, so that the first feasible set is connected. At every trial x, z starts from the best of the
    last z, where it is expected, y, older minima and scouts. Where the gap stays open for three stages, y moves to the
    bottom of its own lower basin, or to z.

    A start is solved when F(x, y) and F(x, y'), with y' the end of a descent of f from y, agree (the first is locally a
    lower, the second an upper estimate of the optimum), and no probe finds a lower f. All starts run in one batch;
    among those that are solved, the lowest F is the result. What was shown is in ``solution.certificate``.

    F, c F, f + c and c f have the same path: every tolerance is relative to the objectives' own sizes.

    Nothing certifies the global minimum over x, nor that of a lower level in many dimensions: use several starts.

    Args:
        starts: how many; the first is the given one, the others are drawn from the box, or around it.
        tol: how closely the two estimates of F must agree, relative to |F| + |grad F| (1 + |w|), and the gap of f,
            relative to how much f varies nearby. Finer than 20 times the root of the dtype's precision has no effect.
        seed: of the scouts. Start i of a batch runs as a single one with ``seed + i`` would.
        scouts: how many other starts of z are tried, by values only, at every step.
        rate: r, by how much mu2 may shrink in a stage.

    Example:
        >>> import torch, bvfim
        >>> toy = bvfim.testproblems.sine(a=2)
        >>> start = torch.full((1,), -6.0, dtype=torch.float64)
        >>> solution = bvfim.solve(toy.problem, start, start, bvfim.AdaptiveBVFIM())
        >>> solution.status, bool(abs(solution.x - toy.x) < 1e-3)
        (<Status.CONVERGED: 'converged'>, True)
    """

    starts: int = 1
    tol: float = 1e-3
    seed: int = 0
    scouts: int = 15
    rate: float = 0.3

    def __post_init__(self) -> None:
        require_count(self, "starts", at_least=1)
        require(self, "tol", above=0, schedule=False)
        require_count(self, "scouts", at_least=0)
        require(self, "rate", above=0, schedule=False)
        if self.rate >= 1:
            raise MethodError(f"AdaptiveBVFIM: rate must be below 1, not {self.rate!r}")
        require_count(self, "seed", at_least=0)

    def init(self, problem: Problem, x: Tree, y: Tree) -> AdaptiveState:
        """The given start, and others drawn around it."""
        w = tree.flatten([x, y])[None]
        interior = self._interior(problem, x, y, w.new_zeros(self.starts, 3, dtype=torch.long), 0)
        if self.starts > 1:
            low, high = interior.w.region(w)
            numbers = interior.uniform(torch.arange(1, self.starts), 1, 1, w.shape[1])[:, 0]
            w = torch.cat([w, interior.w.project(low + (high - low) * numbers.to(w))])
        return self._state(interior, begin(interior, w))

    def init_many(self, problem: Problem, x: Tree, y: Tree) -> AdaptiveState:
        """Given starts: the leaves of x and y have a leading dimension."""
        rows = torch.cat([t.reshape(len(t), -1) for t in tree.leaves([x, y])], 1)
        first = tree.map(lambda t: t[0], x), tree.map(lambda t: t[0], y)
        interior = self._interior(problem, *first, rows.new_zeros(len(rows), 3, dtype=torch.long), 0)
        return self._state(interior, begin(interior, rows))

    def step(self, problem: Problem, x: Tree, state: AdaptiveState, k: int, data: Any) -> tuple[Tree, Any, Info]:
        """One stage of every start that has not ended."""
        before = starts = state.starts
        interior = self._interior(problem, x, state.y, starts.counts.clone(), k + 1)
        rows = (starts.ended == UNDER_WAY).nonzero()[:, 0]
        if len(rows):
            starts = starts.put(rows, advance(interior, rows, starts.take(rows), self.tol, self.rate))
        if self.starts > 1 and not bool((starts.ended == UNDER_WAY).any()):
            starts = self._cross_checked(interior, starts)
        state = self._state(interior, starts)
        i = state.chosen
        x = interior.batch.x.tree(interior.split(starts.w[i][None])[0][0])
        return x, state, {name: values[i] for name, values in report(before, starts).items()}

    def only(self, problem: Problem, x: Tree, state: AdaptiveState, i: int) -> tuple[Tree, AdaptiveState]:
        """x (like the given one) and the state of start i alone."""
        own = state.starts.take(torch.tensor([i], device=state.chosen.device))
        interior = self._interior(problem, x, state.y, own.counts, 0)
        return interior.batch.x.tree(interior.split(own.w)[0][0]), self._state(interior, own)

    def status(self, state: AdaptiveState) -> Status | None:
        """How the run ended, once every start has."""
        under_way = bool((state.starts.ended == UNDER_WAY).any())
        return None if under_way else ENDS[int(state.starts.ended[state.chosen])]

    def certificate(self, problem: Problem, x: Tree, state: AdaptiveState) -> Certificate:
        """What has been shown of the chosen start."""
        starts, i = state.starts, state.chosen
        interior = self._interior(problem, x, state.y, starts.counts.clone(), 0)
        own = starts.take(i[None])
        solved = _closed(starts)
        allowed = self.tol * float(own.scale)
        near = (starts.upper - own.upper).abs() <= 10 * self.tol * (own.upper.abs() + own.size * 1e-2)
        return Certificate(
            relaxed=float(own.relaxed),
            polished=float(own.upper),
            gap=float(_gaps(interior, starts, i[None])),
            gap_allowed=allowed,
            stationarity=float(own.stationarity),
            multimodal=bool(starts.modes.any()),
            starts=len(solved),
            solved=int(solved.sum()),
            agreeing=int((near & solved).sum()),
            status=ENDS.get(int(own.ended)),
        )

    def _cross_checked(self, interior: Interior, starts: Starts) -> Starts:
        """Starts whose y is not lowest among what all the others have found are open."""
        solved = _closed(starts).nonzero()[:, 0]
        if len(solved) == 0:
            return starts
        wide = _gaps(interior, starts, solved) > self.tol * starts.scale[solved]
        return starts._replace(ended=starts.ended.index_fill(0, solved[wide], OPEN), counts=interior.batch.counts)

    def _state(self, interior: Interior, starts: Starts) -> AdaptiveState:
        """With the lowest F chosen, among the starts with a closed gap where there are some."""
        solved = _closed(starts)
        among = solved if bool(solved.any()) else starts.ended != UNBOUNDED
        i = torch.where(among & starts.upper.isfinite(), starts.upper, torch.inf).argmin()
        _, y = interior.split(starts.w[i][None])
        return AdaptiveState(interior.batch.y.tree(y[0]), interior.batch.y.tree(starts.z[i]), i, starts)

    def _interior(self, problem: Problem, x: Tree, y: Tree, counts: Tensor, stage: int) -> Interior:
        dtype = tree.leaves(x)[0].dtype
        if dtype not in (torch.float32, torch.float64):
            raise MethodError(f"AdaptiveBVFIM needs float32 or float64, not {dtype}: a small slack would be rounding")
        of_x, of_y = sets.per_leaf(problem.x_set, x), sets.per_leaf(problem.y_set, y)
        batch = Batch(problem, Flat(x, of_x), Flat(y, of_y), counts)
        return Interior(batch, Flat([x, y], of_x + of_y), self.scouts, self.seed, stage)


def report(before: Starts, after: Starts) -> dict[str, Tensor]:
    """What the history says of a stage, for every start."""
    return {
        "upper": after.relaxed, "lower": after.lower, "value": after.value, "polished": after.upper,
        "slack": after.slack, "gap": after.gap, "mu2": before.mu2, "tau": before.tau, "grad_norm": after.grad_norm,
    }  # fmt: skip


def _closed(starts: Starts) -> Tensor:
    return (starts.ended == SOLVED) | (starts.ended == STUCK)


def _gaps(interior: Interior, starts: Starts, rows: Tensor) -> Tensor:
    """f at the y of some starts, less the lowest f at their x over every y, z and older minimum of all starts."""
    x, y = interior.split(starts.w)
    everything = torch.cat([y, starts.z, starts.archive.flatten(0, 1)]).expand(len(rows), -1, -1)
    at = interior.batch.at(x[rows], rows)
    found = at.lower_many(everything)
    return at.lower(y[rows]) - torch.where(found.isfinite(), found, torch.inf).amin(1)
