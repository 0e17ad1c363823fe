"""AdaptiveBVFIM: the interior-point method of the theorem, with no parameters to tune."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.core.augmented import Augmented, Terms, blank
from bvfim.core.constraints import layout
from bvfim.core.problem import Problem
from bvfim.interior.batch import Batch
from bvfim.interior.certificate import Certificate
from bvfim.interior.cross_check import gaps
from bvfim.interior.lower import Interior, uniform
from bvfim.interior.pool import SIZE, pool
from bvfim.interior.probing import searched
from bvfim.interior.schedule import begin
from bvfim.interior.space import Space
from bvfim.interior.stage import advance
from bvfim.interior.standing import multipliers, standing
from bvfim.interior.starts import BROKEN, INFEASIBLE, OPEN, SOLVED, STUCK, UNBOUNDED, UNDER_WAY, Starts
from bvfim.interior.units import units
from bvfim.methods.base import Data, Method, Step
from bvfim.methods.pessimistic import PessimisticBVFIM
from bvfim.schedules import require, require_count
from bvfim.status import MethodError, Status
from bvfim.tree import Tree

ENDS = {
    SOLVED: Status.CONVERGED,
    STUCK: Status.STUCK,
    OPEN: Status.GAP_OPEN,
    UNBOUNDED: Status.UNBOUNDED,
    BROKEN: Status.NON_FINITE,
    INFEASIBLE: Status.INFEASIBLE,
}


AGREE, FAINT_SIZE = 10, 1e-2
"""Starts agree if their F differ by at most this many tolerances; |F| counts as at least this share of its maximum."""
ROUNDING = 20
"""A tol below this multiple of the square root of the dtype's precision would only measure rounding."""


class AdaptiveState(NamedTuple):
    """The y and z of the chosen start, its index, and the states of all starts.

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
class AdaptiveBVFIM(Method[AdaptiveState]):
    r"""The value-function interior-point method with automatic step sizes and schedules; first gradients only.

    By the envelope theorem, minimising :math:`\varphi_{\mu,\tau}` over x is equivalent to minimising over w = (x, y)

    .. math:: B(x, y) = F(x, y) - \tau \ln s, \qquad s = \mu_2 + f^*(x) - f(x, y), \qquad f^*(x) = \min_z f(x, z),

    .. math:: \nabla B = \big[F_x + \lambda (f_x(x, y) - f_x(x, z)),\; F_y + \lambda f_y(x, y)\big],
              \qquad \lambda = \tau/s,

    where only z is nested. A **step** of the solver is a stage: B is minimised for one :math:`(\mu_2, \tau)` by
    projected L-BFGS, whose line search treats B as infinite for a slack :math:`s \le 0`; x and y are scaled separately,
    and each stage reuses the curvature information of the previous one. Then

    .. math:: \mu_2 \leftarrow \max(r \mu_2,\; \mathrm{gap} + s/10), \qquad
              \tau \leftarrow \tfrac12 \lambda \sqrt{\mu_2^{\mathrm{old}} \mu_2}, \quad \text{within } [r\tau, 4\tau],

    where gap = f(x, y) - f(x, z). So w stays feasible; and since :math:`\lambda` grows like :math:`\mu_2^{-1/2}`, tau
    decreases like :math:`\mu_2^{1/2}` and :math:`\tau \ln \mu_2 \to 0`, as Theorem 1 requires. The first :math:`\mu_2`
    exceeds the range of sampled f, so that the first feasible set is connected. At every trial x, z starts from the
    best of the last z, its predicted position, y, older minima and scouts. If the gap stays open for three stages, y
    moves to the bottom of its own lower basin, or to z.

    A start is solved when F(x, y) and F(x, y'), where y' is the end of a descent of f from y, agree (locally, the first
    is a lower and the second an upper estimate of the optimum), and no probe finds a lower f. All starts run in one
    batch; the result is the solved start with the lowest F. ``solution.certificate`` reports what was verified.

    F, c F, f + c and c f have the same iterates: every tolerance is relative to the scale of the objectives. So have x
    and y in other units: each entry is measured in what it takes to change a gradient, found by a few probes at the
    start (:mod:`bvfim.interior.units`), or in a share of its box.

    A start that ends with a higher F than a lower-level solution it has seen goes on from there, and is never worse:
    the lowest that it met late, its own first point, or its first x with the z there. In one and two dimensions the
    probes of the lower level include a grid, in more the axes through z. A descent that comes to rest above z counts as
    another minimum only where the gradient does not lead down to z.

    **Constraints** come in as augmented Lagrangian terms (:mod:`bvfim.core.augmented`): :math:`\psi = f + p(g; u)`
    takes the place of f for y and z, and F gets terms of all constraints with multipliers v of its own. A first phase
    brings every start to where they hold. The u move between stages until z obeys the constraints, and within a stage
    they follow x to first order, with :math:`du/dx` from the derivatives of :math:`\psi` at z: without that,
    :math:`\psi(x, y) - \psi^*(x)` grows beside x even along lower-level solutions, and holds x where it is. Of several
    starts every other begins at a lower-level solution with a low F. A start whose violations can't be lowered ends as
    ``infeasible``, with the names of the constraints that conflict. A pessimistic follower is solved for by a nested
    barrier, which maximises F over y.

    Neither the global minimum over x nor that of a high-dimensional lower level is certified: use several starts.

    Args:
        starts: the number of starts; the first is the given initial point, the others are drawn from the box or around
            that point.
        tol: the tolerance on the difference of the two estimates of F, relative to |F| + |grad F| (1 + |w|) with w =
            (x, y) in these units, and on the lower-level gap, relative to the local variation of f. Values below 20
            times the square root of the dtype's precision have no effect.
        seed: the random seed of the scouts. Start i of a batch runs as a single one with ``seed + i`` would.
        scouts: the number of other initial points of z that are tried, by value only, at every step.
        rate: r, the smallest allowed ratio of mu2 between consecutive stages.

    Example:
        >>> import torch, bvfim
        >>> toy = bvfim.testproblems.sine(a=2)
        >>> start = torch.full((1,), -6.0, dtype=torch.float64)
        >>> solution = bvfim.solve(toy.problem, start, start, bvfim.AdaptiveBVFIM())
        >>> solution.status, bool(abs(solution.x - toy.x) < 1e-3)
        (<Status.CONVERGED: 'converged'>, True)
    """

    constrained: ClassVar[bool] = True
    followers: ClassVar[tuple[str, ...]] = ("optimistic", "pessimistic")

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

    def suited_to(self, problem: Problem) -> AdaptiveBVFIM | PessimisticBVFIM:
        """For a pessimistic follower, the method that solves for the worst answer."""
        other = PessimisticBVFIM(self.starts, self.tol, self.seed, self.scouts, self.rate)
        return other if problem.follower == "pessimistic" else self

    def init(self, problem: Problem, x: Tree, y: Tree) -> AdaptiveState:
        """The given initial point, and others drawn around it."""
        w = tree.flatten([x, y])[None]
        counts = w.new_zeros(self.starts, 3, dtype=torch.long)
        unit, varies = (
            self._units(problem, x, y, w, counts, 0),
            torch.full((self.starts,), torch.inf, dtype=torch.float64),
        )
        if self.starts > 1:
            interior = self._interior(problem, x, y, counts, 0, unit)
            low, high = interior.w.region(interior.w.measured(w))
            numbers = interior.uniform(torch.arange(1, self.starts), 1, 1, w.shape[1])[:, 0]
            drawn = interior.w.project(low + (high - low) * numbers.to(w))
            others = interior.w.plain(drawn)
            if problem.stated:
                varies[1::2] = self._from_pool(problem, x, y, w, unit, counts, others[::2])
            unit = torch.cat([unit, self._units(problem, x, y, others, counts, 1)])
            w = torch.cat([w, others])
        return self._begun(problem, x, y, w, unit, counts, varies)

    def _from_pool(
        self, problem: Problem, x: Tree, y: Tree, w: Tensor, unit: Tensor, counts: Tensor, others: Tensor
    ) -> float:
        """Put points of a pool in the place of others, and say how F varies over it; infinite where there is none."""
        of_pool = counts.new_zeros(SIZE, 3)
        interior = self._interior(problem, x, y, of_pool, 0, unit.expand(SIZE, -1))
        found = pool(interior, interior.w.measured(w.expand(SIZE, -1)), len(others))
        counts += of_pool.sum(0) // len(counts)
        if found is None:
            return torch.inf
        others[: len(found.w)] = found.w
        return float(found.varies)

    def init_many(self, problem: Problem, x: Tree, y: Tree) -> AdaptiveState:
        """Given starts: the leaves of x and y have a leading dimension."""
        rows = torch.cat([t.reshape(len(t), -1) for t in tree.leaves([x, y])], 1)
        first = tree.map(lambda t: t[0], x), tree.map(lambda t: t[0], y)
        counts = rows.new_zeros(len(rows), 3, dtype=torch.long)
        loose = torch.full((len(rows),), torch.inf, dtype=torch.float64)
        return self._begun(problem, *first, rows, self._units(problem, *first, rows, counts, 0), counts, loose)

    def _begun(
        self, problem: Problem, x: Tree, y: Tree, w: Tensor, unit: Tensor, counts: Tensor, varies: Tensor
    ) -> AdaptiveState:
        """Every row of w before its first stage, in its own units."""
        interior = self._interior(problem, x, y, counts, 0, unit)
        return self._state(interior, begin(interior, interior.w.measured(w), varies.to(w.device)))

    def _units(self, problem: Problem, x: Tree, y: Tree, w: Tensor, counts: Tensor, first: int) -> Tensor:
        """The units of the starts from ``first`` on, which the rows of w are."""
        batch = self._interior(problem, x, y, counts, 0, None).batch
        batch.augmented = None  # constraints say nothing of units before their own are known
        members = torch.arange(first, first + len(w), device=w.device)
        return units(batch, w, members, partial(uniform, self.seed, 0))

    def step(self, problem: Problem, x: Tree, state: AdaptiveState, k: int, data: Data) -> Step[AdaptiveState]:
        """One stage of every start that has not ended."""
        before = starts = state.starts
        interior = self._interior(problem, x, state.y, starts.counts.clone(), k + 1, starts.unit, starts.terms)
        rows = (starts.ended == UNDER_WAY).nonzero()[:, 0]
        if len(rows):
            starts = starts.put(rows, advance(interior, rows, starts.take(rows), self.tol_of(x), self.rate))
        if not bool((starts.ended == UNDER_WAY).any()):
            starts = self._cross_checked(interior, starts, self.tol_of(x))
        state = self._state(interior, starts)
        i = state.chosen
        x = interior.batch.x.tree(interior.split(interior.w.plain(starts.w))[0][i])
        info = {name: values[i] for name, values in report(before, starts).items()}
        if problem.world.agreed([problem.world.void])[0]:  # a line search has passed over what failed on a rank
            info["upper"] = torch.full_like(info["upper"], torch.nan)
        return x, state, info

    def xs(self, problem: Problem, like: Tree, state: AdaptiveState) -> Tree:
        """x of every start: a tree like the given one, whose leaves have a row for each."""
        first = tree.map(lambda t: t[0], like)
        plain = (state.starts.w * state.starts.unit)[:, : tree.size(first)]
        return Space(first, sets.per_leaf(problem.x_set, first)).trees(plain)

    def end_of(self, ended: Tensor) -> Status | None:
        """How a start has ended."""
        return ENDS.get(int(ended))

    def tol_of(self, x: Tree) -> float:
        """The tolerance of a run from x: tol, but no finer than the dtype's rounding allows."""
        return max(self.tol, ROUNDING * torch.finfo(tree.leaves(x)[0].dtype).eps ** 0.5)

    def only(self, problem: Problem, x: Tree, state: AdaptiveState, i: int) -> tuple[Tree, AdaptiveState]:
        """x (like the given one) and the state of start i alone."""
        own = state.starts.take(torch.tensor([i], device=state.chosen.device))
        interior = self._interior(problem, x, state.y, own.counts, 0, own.unit, own.terms)
        return interior.batch.x.tree(interior.split(interior.w.plain(own.w))[0][0]), self._state(interior, own)

    def minimiser(self, state: AdaptiveState) -> Tree:
        """z."""
        return state.z

    def status(self, state: AdaptiveState) -> Status | None:
        """How the run ended, once every start has."""
        under_way = bool((state.starts.ended == UNDER_WAY).any())
        return None if under_way else ENDS[int(state.starts.ended[state.chosen])]

    def certificate(self, problem: Problem, x: Tree, state: AdaptiveState) -> Certificate | None:
        """What was verified about the chosen start; None where a process was lost, and nothing can be evaluated."""
        if problem.world.broken:
            return None
        starts, i = state.starts, state.chosen
        interior = self._interior(problem, x, state.y, starts.counts.clone(), 0, starts.unit, starts.terms)
        own = starts.take(i[None])
        solved = _closed(starts)
        tol = self.tol_of(x)
        near = (starts.upper - own.upper).abs() <= AGREE * tol * (own.upper.abs() + own.size * FAINT_SIZE)
        return Certificate(
            relaxed=float(own.relaxed),
            polished=float(own.upper),
            gap=float(gaps(interior, starts, i[None])),
            gap_allowed=tol * float(own.scale),
            tol=tol,
            stationarity=float(own.stationarity),
            multimodal=bool(starts.modes.any()),
            starts=len(solved),
            solved=int(solved.sum()),
            agreeing=int((near & solved).sum()),
            status=ENDS.get(int(own.ended)),
            searched=searched(interior) if int(own.ended) in (SOLVED, STUCK) else "",
            coarse=tree.leaves(x)[0].dtype is not torch.float64,
            **standing(interior, starts, i)._asdict(),
        )

    def multipliers(self, problem: Problem, x: Tree, state: AdaptiveState) -> dict[str, Tensor]:
        """Of the constraints: those of the lower level in f, those of the upper level in F; as they are stated."""
        interior = self._interior(
            problem, x, state.y, state.starts.counts.clone(), 0, state.starts.unit, state.starts.terms
        )
        data = problem.context and problem.context(x, None)
        like = {name: problem.call(name, x, state.y, data).detach() for name in problem.stated}
        found = multipliers(interior, state.starts, state.chosen)
        return {name: like[name].new_tensor(of).reshape(like[name].shape) for name, of in found.items()}

    def _cross_checked(self, interior: Interior, starts: Starts, tol: float) -> Starts:
        """Reopen starts whose f is above the lowest value that any other start has found."""
        solved = _closed(starts).nonzero()[:, 0]
        if len(solved) == 0:
            return starts
        wide = gaps(interior, starts, solved) > tol * starts.scale[solved]
        return starts._replace(ended=starts.ended.index_fill(0, solved[wide], OPEN), counts=interior.batch.counts)

    def _state(self, interior: Interior, starts: Starts) -> AdaptiveState:
        """Choose the lowest F, among the starts with a closed gap if there are any."""
        solved = _closed(starts)
        bounded = starts.ended != UNBOUNDED
        held = bounded & (starts.ended != INFEASIBLE)
        among = next((rows for rows in (solved, held) if bool(rows.any())), bounded)
        i = torch.where(among & starts.shown.isfinite(), starts.shown, torch.inf).argmin()
        of_y = interior.batch.y
        y, z = of_y.plain(interior.split(starts.w)[1])[i], of_y.plain(starts.z)[i]
        return AdaptiveState(of_y.tree(y), of_y.tree(z), i, starts)

    def _interior(
        self,
        problem: Problem,
        x: Tree,
        y: Tree,
        counts: Tensor,
        stage: int,
        unit: Tensor | None,
        terms: Terms | None = None,
    ) -> Interior:
        dtype = tree.leaves(x)[0].dtype
        if dtype not in (torch.float32, torch.float64):
            needs = "AdaptiveBVFIM needs float32 or float64"
            raise MethodError(f"{needs}, not {dtype}: a small slack would be lost to rounding")
        of_x, of_y = sets.per_leaf(problem.x_set, x), sets.per_leaf(problem.y_set, y)
        size = tree.size(x)
        of_each = (None, None) if unit is None else (unit[:, :size], unit[:, size:])
        batch = Batch(problem, Space(x, of_x, of_each[0]), Space(y, of_y, of_each[1]), counts)
        if problem.stated:
            own = layout(problem, x, y, problem.context and problem.context(x, None))
            fresh = blank(own, counts.new_zeros(len(counts), size, dtype=dtype))
            batch.augmented = Augmented(own, fresh if terms is None else terms)
        return Interior(batch, Space([x, y], of_x + of_y, unit), self.scouts, self.seed, stage)


def report(before: Starts, after: Starts) -> dict[str, Tensor]:
    """What the history says of a stage, for every start."""
    return {
        "upper": after.relaxed, "lower": after.lower, "value": after.value, "polished": after.upper,
        "slack": after.slack, "gap": after.gap, "mu2": before.mu2, "tau": before.tau, "grad_norm": after.grad_norm,
    }  # fmt: skip


def _closed(starts: Starts) -> Tensor:
    return (starts.ended == SOLVED) | (starts.ended == STUCK)
