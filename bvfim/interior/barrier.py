"""The barrier problem of one stage, for many starts at once; :class:`bvfim.AdaptiveBVFIM` has the mathematics."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.lbfgs import Memory, Points, dot, unit
from bvfim.interior.lower import Interior, best_of, remembered
from bvfim.interior.starts import Known

TINIEST = 1e-300
"""What keeps a logarithm or a division finite where its result is not used."""


def first_order_change(interior: Interior, of_F: Tensor, w: Tensor) -> Tensor:
    """What F may change by when x and y change by their own sizes, to first order."""
    blocks = zip(interior.split(of_F), interior.split(w), strict=True)
    return torch.stack([dot(g, g).sqrt() * (1 + dot(v, v).sqrt()) for g, v in blocks]).sum(0)


class Settings(NamedTuple):
    """What a stage is minimised with, for each start."""

    mu2: Tensor
    tau: Tensor
    z_tol: Tensor
    """How far z is solved for."""
    precision: Tensor
    """How small the gradient has to become, against that of F."""
    least: Tensor
    """A gradient of F below this counts as this large."""


class Barrier:
    """B as a function of w, for each row with its own mu2 and tau; z is solved for at every trial.

    Args:
        interior: the problem.
        members: which starts the rows are.
        settings: mu2, tau and tolerances.
        w, known: the first points, and what is known of them.
        z_memory: the curvature of f that is known, which is kept up to date.
        archive: older minima of f.

    Attributes:
        points: the first points with their values and gradients.
        known: what is known of the points that were taken last.
        archive: older minima, with those that were met.
        pull: the size of F's gradient there; change: what F may change by, to first order.
    """

    def __init__(
        self,
        interior: Interior,
        members: Tensor,
        settings: Settings,
        w: Tensor,
        known: Known,
        z_memory: Memory,
        archive: Tensor,
    ) -> None:
        self.interior, self.members, self.settings = interior, members, settings
        self.known, self.tried, self.z_memory, self.archive = known, known, z_memory, archive
        self.draws = 0
        self.taken = torch.zeros_like(settings.mu2)
        self.pull, self.change = torch.zeros_like(settings.mu2), torch.zeros_like(settings.mu2)
        x, _ = interior.split(w)
        self.x, self.dx, self.dz = x.clone(), 0 * x, 0 * known.z
        everyone = torch.arange(len(w), device=w.device)
        self.points = Points(w, self.value(everyone, known), self.gradient(everyone, w))

    def value(self, rows: Tensor, known: Known) -> Tensor:
        """B, infinite where the slack is not positive."""
        slack = self.settings.mu2[rows] + (known.f_z - known.f)
        inside = known.F - self.settings.tau[rows] * slack.clamp_min(TINIEST).log()
        return torch.where(slack > 0, inside, torch.inf)

    def trial(self, rows: Tensor, w: Tensor, attempt: int, ceiling: Tensor) -> Tensor:
        """B at w, with z solved for, except where the best of z's starts shows already that B is too high."""
        value = torch.full_like(ceiling, torch.inf)
        x, y = self.interior.split(w)
        at = self.interior.batch.at(x, self.members[rows])
        F, f = at.values(y)
        best = best_of(at, self.candidates(rows, x, y, attempt))
        found = Known(best.y, best.f, F, f)
        self.tried = self.tried.put(rows, found)
        hopeful = (self.value(rows, found) <= ceiling).nonzero()[:, 0]
        if len(hopeful) == 0:
            return value
        going = rows[hopeful]
        switched = best.which[hopeful] > 1
        self.z_memory.forget(going[switched])
        memory = self.z_memory.take(going)
        z, f_z, _ = self.interior.descend(at.take(hopeful), best.y[hopeful], self.settings.z_tol[going], memory)
        self.z_memory.put(going, memory)
        self.archive = remembered(self.archive, going[switched], z[switched])
        solved = Known(z, f_z, F[hopeful], f[hopeful])
        self.tried = self.tried.put(going, solved)
        value[hopeful] = self.value(going, solved)
        return value

    def candidates(self, rows: Tensor, x: Tensor, y: Tensor, attempt: int) -> Tensor:
        """Where z may start: the last z, where it is expected, y, and scouts or what the last trial found."""
        z = self.known.z[rows]
        if attempt > 0:
            other = self.tried.z[rows]
            return torch.stack([z, z + tol.SHORTER * (other - z), y, other], 1)
        self.draws += 1
        dx, along = self.dx[rows], x - self.x[rows]
        ratio = (dot(dx, along) / dot(dx, dx).clamp_min(TINIEST)).clamp(-tol.FORESIGHT, tol.FORESIGHT)
        expected = self.interior.batch.y.project(z + ratio.to(z)[:, None] * self.dz[rows])
        scouts = self.interior.around(self.members[rows], y, self.draws)
        return torch.cat([torch.stack([z, expected, y], 1), self.archive[rows], scouts], 1)

    def gradient(self, rows: Tensor, w: Tensor) -> Tensor:
        """The gradient of B at points that are taken."""
        x, y = self.interior.split(w)
        tried = self.tried.take(rows)
        self.dx[rows], self.dz[rows], self.x[rows] = x - self.x[rows], tried.z - self.known.z[rows], x
        self.known = self.known.put(rows, tried)
        weight = self.settings.tau[rows] / (self.settings.mu2[rows] - tried.gap)
        of_F, of_f = self.interior.batch.at(x, self.members[rows]).barrier_grads(y, tried.z, weight)
        self.pull[rows] = torch.maximum(dot(of_F, of_F).sqrt(), self.settings.least[rows])
        self.change[rows] = first_order_change(self.interior, of_F, w)
        self.taken[rows] += 1
        return of_F + of_f

    def scale(self, reduced: Tensor) -> Tensor:
        """A unit first step in x and in y, each by itself."""
        return torch.cat([unit(part) for part in self.interior.split(reduced)], -1)

    def enough(self, rows: Tensor, reduced: Tensor, decrease: Tensor) -> Tensor:
        """B can fall by little against tau, and its gradient is small against that of F: one alone may mislead.

        The curvature of the last stage may mislead too: one step has to be made in this one.
        """
        small = dot(reduced, reduced).sqrt() <= self.settings.precision[rows] * self.pull[rows]
        return (self.taken[rows] > 1) & small & (decrease < tol.LITTLE * self.settings.tau[rows])
