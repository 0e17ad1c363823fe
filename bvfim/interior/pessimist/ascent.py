r"""What the follower may answer at a given x: descents of f, and ascents of F within the slack of the lower level.

With :math:`s(y) = \mu_2 + f^*(x) - f(x, y)` the answers are maximisers of

.. math:: F(x, y) + \tau \ln (s(y) / \mu_2),

which is at most F, and equals it where y solves the lower level.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior.batch import BatchAt
from bvfim.interior.lbfgs import Memory, Points, minimise, unit
from bvfim.interior.lower import Interior
from bvfim.interior.starts import TINIEST

STEPS = 40
"""Steps of L-BFGS in one ascent; what is left is done by the next, which begins where it ended."""
LARGEST = 100
"""With more entries of y, L-BFGS begins an ascent without a model of the barrier's curvature."""
SURE = 1e-3
"""An ascent ends where the barrier can rise by no more than this share of tau."""
PULLS = (1.0, 0.7, 0.4, 0.1, 0.03, 0.01, 0.0)
"""How far from z towards y the search for a point with a positive slack goes: z itself has one."""


class Settings(NamedTuple):
    """What the follower's problem is relaxed by, for each row."""

    mu2: Tensor
    tau: Tensor
    fine: Tensor
    """How far f is minimised."""

    def take(self, rows: Tensor) -> Settings:
        """Some of the rows."""
        return Settings(*(t[rows] for t in self))


class Ascent:
    """The negative of the follower's barrier, infinite outside of it; ``level`` is f* + mu2.

    The first trial of a search is mostly taken: it brings its gradient along.
    """

    def __init__(self, at: BatchAt, level: Tensor, settings: Settings, y: Tensor) -> None:
        self.at, self.level, self.settings = at, level, settings
        self.at_first = torch.ones_like(level, dtype=torch.bool)
        self.F, self.f = at.values(y)
        of_F, of_f = (g[:, at.of_x.size :] for g in at.both_grads(y))
        weight = self.weight(everyone(level), self.f)[:, None].to(y)
        self.gradients = weight * of_f - of_F
        self.hessian = self._model(of_f, self.gradients, weight)
        self.points = Points(y, cost(self.F, self.f, level, settings), self.gradients.clone())
        self.taken_F, self.taken_f = self.F.clone(), self.f.clone()

    def weight(self, rows: Tensor, f: Tensor) -> Tensor:
        """lambda; zero outside."""
        slack = self.level[rows] - f
        return torch.where(slack > 0, self.settings.tau[rows] / slack, 0.0)

    def _model(self, of_f: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
        """The Hessian at the first points: tau / s^2 f_y f_y^T, and a step of about a unit across that."""
        n = of_f.shape[1]
        if n > LARGEST:
            return of_f.new_zeros(len(of_f), 0, 0)
        along = weight / self.settings.tau.sqrt()[:, None].to(of_f) * of_f
        across = (gradient.abs() + (weight * of_f).abs()).amax(1).clamp_min(TINIEST)[:, None, None]
        return along[:, :, None] * along[:, None] + across * torch.eye(n, dtype=of_f.dtype, device=of_f.device)

    def trial(self, rows: Tensor, w: Tensor, attempt: int, ceiling: Tensor) -> Tensor:
        """The negative barrier."""
        at = self.at.take(rows)
        self.at_first[rows] = attempt == 0
        if attempt == 0:
            F, f, self.gradients[rows] = at.weighted_grad(w, partial(self._weights, rows))
        else:
            F, f = at.values(w)
        self.F[rows], self.f[rows] = F, f
        return cost(F, f, self.level[rows], self.settings.take(rows))

    def _weights(self, rows: Tensor, F: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """What the gradients of F and f have in that of the negative barrier."""
        return -torch.ones_like(F), self.weight(rows, f)

    def gradient(self, rows: Tensor, w: Tensor) -> Tensor:
        """Its gradient at points that are taken, from the first trial where that was taken."""
        self.taken_F[rows], self.taken_f[rows] = self.F[rows], self.f[rows]
        later = rows[~self.at_first[rows]]
        if len(later):
            weights = partial(self._weights, later)
            self.gradients[later] = self.at.take(later).weighted_grad(w[~self.at_first[rows]], weights)[2]
        return self.gradients[rows]

    def scale(self, reduced: Tensor) -> Tensor:
        """A unit first step."""
        return unit(reduced)

    def enough(self, rows: Tensor, reduced: Tensor, decrease: Tensor) -> Tensor:
        """It can fall by little against tau."""
        return decrease <= SURE * self.settings.tau[rows]


def everyone(values: Tensor) -> Tensor:
    """All rows."""
    return torch.arange(len(values), device=values.device)


def cost(F: Tensor, f: Tensor, level: Tensor, settings: Settings) -> Tensor:
    """-F - tau ln(s / mu2): the lower, the worse for the leader; infinite where the slack is not positive."""
    slack = level - f
    inside = -F - settings.tau * (slack.clamp_min(TINIEST) / settings.mu2).log()
    return torch.where((slack > 0) & F.isfinite(), inside, torch.inf)


class Answers(NamedTuple):
    """Several answers a row: where, the cost there (infinite where there is none), F and f."""

    y: Tensor
    cost: Tensor
    F: Tensor
    f: Tensor

    def joined(self, other: Answers) -> Answers:
        """These, and others after them."""
        return Answers(*(torch.cat(pair, 1) for pair in zip(self, other, strict=True)))


def valued(at: BatchAt, points: Tensor, valid: Tensor, level: Tensor, settings: Settings) -> Answers:
    """The points (B, k, n) as answers, those that are not valid with an infinite cost."""
    F, f = values_many(at, points)
    found = cost(F, f, level[:, None], Settings(*(t[:, None] for t in settings)))
    return Answers(points, torch.where(valid, found, torch.inf), F, f)


def ascended(at: BatchAt, starts: Tensor, among: Tensor, level: Tensor, settings: Settings) -> Answers:
    """The ends of ascents from some of the points (B, k, n), which lie inside."""
    rows, slots = among.nonzero().unbind(1)
    blank = torch.full_like(among, torch.inf, dtype=torch.float64)
    if len(rows) == 0:
        return Answers(starts, blank, blank, blank)
    function = Ascent(at.take(rows), level[rows], settings.take(rows), starts[rows, slots])
    memory = Memory.empty(function.points.w, function.hessian)
    points, _ = minimise(function, function.points, function.at.of_y, memory, STEPS)
    place = (rows, slots)
    return Answers(
        starts.index_put(place, points.w),
        blank.index_put(place, points.value),
        blank.index_put(place, function.taken_F),
        blank.index_put(place, function.taken_f),
    )


def descended(interior: Interior, at: BatchAt, starts: Tensor, among: Tensor, fine: Tensor) -> tuple[Tensor, Tensor]:
    """The ends of descents of f from some of the points (B, k, n), and f there; infinite where there was none."""
    rows, slots = among.nonzero().unbind(1)
    f = torch.full_like(among, torch.inf, dtype=torch.float64)
    if len(rows) == 0:
        return starts, f
    end = interior.descend(at.take(rows), starts[rows, slots], fine[rows])
    found = torch.where(end.f.isfinite(), end.f, torch.inf)
    return starts.index_put((rows, slots), end.y), f.index_put((rows, slots), found)


def values_many(at: BatchAt, points: Tensor) -> tuple[Tensor, Tensor]:
    """F and f at several y a row: (B, k) each, infinite where they are not finite."""
    B, k = points.shape[:2]
    rows = torch.arange(B, device=points.device).repeat_interleave(k)
    found = at.take(rows).values(points.flatten(0, 1))
    F, f = (torch.where(v.isfinite(), v, torch.inf).unflatten(0, (B, k)) for v in found)
    return F, f


def inside(at: BatchAt, y: Tensor, z: Tensor, level: Tensor) -> Tensor:
    """y where its slack is positive, else the farthest tried point on the way to z that has one."""
    shares = torch.tensor(PULLS, dtype=y.dtype, device=y.device)[:, None]
    points = z[:, None] + shares * (y - z)[:, None]
    good = at.lower_many(points) < level[:, None]
    which = torch.where(good.any(1), good.double().argmax(1), len(PULLS) - 1)
    return points[everyone(y), which]
