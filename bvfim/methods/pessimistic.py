"""The interior point for a follower who breaks ties against the leader."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.core.problem import Problem
from bvfim.interior.batch import Batch
from bvfim.interior.lower import Interior, uniform
from bvfim.interior.pessimist import pool
from bvfim.interior.pessimist.audit import AGREE, audited
from bvfim.interior.pessimist.certificate import PessimisticCertificate
from bvfim.interior.pessimist.leaders import NOT_ATTAINED, Leaders
from bvfim.interior.pessimist.stages import advance, begin
from bvfim.interior.probing import searched
from bvfim.interior.space import Space
from bvfim.interior.starts import BROKEN, SOLVED, STUCK, UNBOUNDED, UNDER_WAY
from bvfim.interior.units import units
from bvfim.methods.base import Data, Method, Step
from bvfim.status import MethodError, Status
from bvfim.tree import Tree

ENDS = {
    SOLVED: Status.CONVERGED,
    STUCK: Status.STUCK,
    NOT_ATTAINED: Status.NOT_ATTAINED,
    UNBOUNDED: Status.UNBOUNDED,
    BROKEN: Status.NON_FINITE,
}
ROUNDING = 20
"""A tol below this multiple of the square root of the dtype's precision would only measure rounding."""


class PessimisticState(NamedTuple):
    """The y of the chosen start, its index, and the states of all starts."""

    y: Tree
    chosen: Tensor
    starts: Leaders


@dataclass(frozen=True)
class PessimisticBVFIM(Method[PessimisticState]):
    r"""What :class:`bvfim.AdaptiveBVFIM` is for a problem whose follower is pessimistic; first gradients only.

    .. math:: \min_{x \in X} \max_{y \in S(x)} F(x, y), \qquad S(x) = \arg\min_{y \in Y} f(x, y).

    With :math:`s = \mu_2 + f^*(x) - f(x, y)`, the slack of a follower who may miss the minimum
    :math:`f^*(x) = \min_z f(x, z)` by :math:`\mu_2`, the leader minimises

    .. math:: \varphi(x) = \max_y \big\{ F(x, y) + \tau \ln (s / \mu_2) \big\}, \qquad
              \nabla \varphi = F_x + \lambda (f_x(x, z) - f_x(x, y)), \qquad \lambda = \tau / s,

    by projected L-BFGS over x, where y and z are solved for at every trial. A **step** of the solver is a stage, for
    one :math:`(\mu_2, \tau)`; then :math:`\mu_2 \leftarrow r^2 \mu_2`, and
    :math:`\tau \leftarrow \tfrac12 \lambda \sqrt{\mu_2^{\mathrm{old}} \mu_2}` within :math:`[r^2 \tau, \tau]`.

    A missed y or z makes :math:`\varphi` too low, and a line search always accepts that. So several minima of f and
    several maximisers are followed; a step is only taken after f was descended from scouts with a high F, and
    after ascents from whatever that has found; and at the end f is descended, at every start's x, from the y and z of
    all starts. The F of a start is the worst that was ever found there.

    The infimum need not be attained: where the lower-level solution jumps, the worst F is upper semicontinuous only.
    Then x comes within about :math:`\mu_2` of the jump, beside which F is higher by a finite amount; that ends in
    ``Status.NOT_ATTAINED``. ``solution.certificate`` has the sequence of x.

    Every other start begins with a small :math:`\mu_2` where a first look showed a low F, so that it stays in its own
    valley.

    Args:
        starts, tol, seed, scouts: as for :class:`bvfim.AdaptiveBVFIM`.
        rate: r; each stage reduces mu2 by its square.
    """

    followers: ClassVar[tuple[str, ...]] = ("pessimistic",)

    starts: int = 1
    tol: float = 1e-3
    seed: int = 0
    scouts: int = 15
    rate: float = 0.3

    def init(self, problem: Problem, x: Tree, y: Tree) -> PessimisticState:
        """The given initial point, and others from a pool around it."""
        if problem.stated:
            raise MethodError(f"{problem.stated[0]}: with a pessimistic follower only sets are supported")
        w = tree.flatten([x, y])[None]
        counts = w.new_zeros(self.starts, 3, dtype=torch.long)
        unit = self._units(problem, x, y, w, counts, 0)
        if self.starts > 1:
            own = counts.new_zeros(pool.SIZE * (self.starts - 1), 3)
            interior = self._interior(problem, x, y, own, 0, unit.expand(len(own), -1))
            found = pool.pool(interior, w / unit) * unit
            counts[0] += own.sum(0)
            unit = torch.cat([unit, self._units(problem, x, y, found, counts, 1)])
            w = torch.cat([w, found])
        interior = self._interior(problem, x, y, counts, 0, unit)
        tight = torch.arange(self.starts, device=w.device) % 2 == 1
        return self._state(interior, begin(interior, *interior.split(interior.w.measured(w)), tight), self.tol_of(x))

    def step(self, problem: Problem, x: Tree, state: PessimisticState, k: int, data: Data) -> Step[PessimisticState]:
        """One stage of every start that has not ended; after the last one, the audit."""
        before = starts = state.starts
        interior = self._interior(problem, x, state.y, starts.counts.clone(), k + 1, starts.unit)
        rows = (starts.ended == UNDER_WAY).nonzero()[:, 0]
        if len(rows):
            starts = starts.put(rows, advance(interior, rows, starts.take(rows), self.rate**2))
        if not bool((starts.ended == UNDER_WAY).any()):
            starts = audited(interior, starts, self.tol_of(x))
        state = self._state(interior, starts, self.tol_of(x))
        i = state.chosen
        x = interior.batch.x.tree(interior.batch.x.plain(starts.x)[i])
        info = {
            "upper": starts.upper[i], "lower": starts.lower[i], "value": starts.value[i],
            "relaxed": starts.relaxed[i], "slack": starts.slack[i], "gap": starts.gap[i], "mu2": before.mu2[i],
            "tau": before.tau[i], "grad_norm": starts.grad_norm[i],
        }  # fmt: skip
        if problem.world.agreed([problem.world.void])[0]:  # a line search has passed over what failed on a rank
            info["upper"] = torch.full_like(info["upper"], torch.nan)
        return x, state, info

    def tol_of(self, x: Tree) -> float:
        """The tolerance of a run from x: tol, but no finer than the dtype's rounding allows."""
        return max(self.tol, ROUNDING * torch.finfo(tree.leaves(x)[0].dtype).eps ** 0.5)

    def status(self, state: PessimisticState) -> Status | None:
        """How the run ended, once every start has."""
        under_way = bool((state.starts.ended == UNDER_WAY).any())
        return None if under_way else ENDS[int(state.starts.ended[state.chosen])]

    def certificate(self, problem: Problem, x: Tree, state: PessimisticState) -> PessimisticCertificate | None:
        """What was verified about the chosen start; None where a process was lost."""
        if problem.world.broken:
            return None
        starts, tol = state.starts, self.tol_of(x)
        own, closed = starts.take(state.chosen[None]), _closed(starts)
        near = (starts.upper - own.upper).abs() <= AGREE * tol * own.local
        told = own.trail_F[0].isfinite().nonzero()[:, 0].tolist()
        interior = self._interior(problem, x, state.y, starts.counts.clone(), 0, starts.unit)
        return PessimisticCertificate(
            relaxed=float(own.relaxed),
            polished=float(own.upper),
            gap=float(own.gap),
            gap_allowed=tol * float(own.spread),
            tol=tol,
            stationarity=float(own.stationarity),
            multimodal=bool((own.f.isfinite().sum() > 1).any()),
            starts=len(closed),
            solved=int(closed.sum()),
            agreeing=int((near & closed).sum()),
            status=ENDS.get(int(own.ended)),
            searched=searched(interior) if bool(closed[state.chosen]) else "",
            coarse=tree.leaves(x)[0].dtype is not torch.float64,
            edge=float(own.edge),
            approach=tuple((interior.batch.x.tree(own.trail_x[0, j]), float(own.trail_F[0, j])) for j in told),
        )

    def _state(self, interior: Interior, starts: Leaders, tol: float) -> PessimisticState:
        """Choose the lowest F; of starts that agree, one where it is attained."""
        closed = _closed(starts)
        among = (closed if bool(closed.any()) else starts.ended != UNBOUNDED) & starts.upper.isfinite()
        F = torch.where(among, starts.upper, torch.inf)
        level = (F.amin() + tol * starts.local >= F) & (starts.ended == SOLVED)
        i = torch.where(level, F, torch.inf).argmin() if bool(level.any()) else F.argmin()
        of_y = interior.batch.y
        return PessimisticState(of_y.tree(of_y.plain(starts.y)[i]), i, starts)

    def _units(self, problem: Problem, x: Tree, y: Tree, w: Tensor, counts: Tensor, first: int) -> Tensor:
        """The units of the starts from ``first`` on, which the rows of w are."""
        batch = self._interior(problem, x, y, counts, 0, None).batch
        return units(batch, w, torch.arange(first, first + len(w), device=w.device), partial(uniform, self.seed, 0))

    def _interior(
        self, problem: Problem, x: Tree, y: Tree, counts: Tensor, stage: int, unit: Tensor | None
    ) -> Interior:
        dtype = tree.leaves(x)[0].dtype
        if dtype not in (torch.float32, torch.float64):
            raise MethodError(f"a pessimistic follower needs float32 or float64, not {dtype}")
        of_x, of_y = sets.per_leaf(problem.x_set, x), sets.per_leaf(problem.y_set, y)
        size = tree.size(x)
        of_each = (None, None) if unit is None else (unit[:, :size], unit[:, size:])
        batch = Batch(problem, Space(x, of_x, of_each[0]), Space(y, of_y, of_each[1]), counts)
        return Interior(batch, Space([x, y], of_x + of_y, unit), self.scouts, self.seed, stage)


def _closed(starts: Leaders) -> Tensor:
    """Which starts have come to their last mu2."""
    return (starts.ended == SOLVED) | (starts.ended == STUCK) | (starts.ended == NOT_ATTAINED)
