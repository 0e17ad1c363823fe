"""The barrier problem of one stage, for many starts at once; :class:`bvfim.AdaptiveBVFIM` has the mathematics."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.batch import BatchAt
from bvfim.interior.curvature import Curvature
from bvfim.interior.lbfgs import Memory, Points, dot, unit
from bvfim.interior.lower import Interior, best_of, first_order_change, remembered
from bvfim.interior.multipliers import bend_of_terms
from bvfim.interior.response import Followed
from bvfim.interior.starts import TINIEST, Known, barrier

FADING = 0.5
"""What is left of the curvature of F after a step that shows less."""


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
    parted: Tensor
    """Whether basins have parted: before, the curvature of the one that z is in tells nothing of the others."""


class Barrier:
    """B as a function of w, for each row with its own mu2 and tau; z is solved for at every trial.

    Args:
        interior: the problem.
        members: which starts the rows are.
        settings: mu2, tau and tolerances.
        w, known: the first points, and what is known of them.
        z_memory, w_memory: the pairs of f and of B, which are kept up to date.
        curvature: the second derivatives that are known, which are kept up to date.
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
        w_memory: Memory,
        curvature: Curvature,
        archive: Tensor,
    ) -> None:
        self.interior, self.members, self.settings = interior, members, settings
        self.known, self.tried, self.z_memory, self.archive = known, known, z_memory, archive
        self.w_memory, self.curvature = w_memory, curvature._replace(bend=curvature.bend.clone())
        self.of_gap, self.of_F, self.at_w = curvature.of_gap, torch.zeros_like(w), w.clone()
        self.draws = 0
        self.taken = torch.zeros_like(settings.mu2)
        self.pull, self.change = torch.zeros_like(settings.mu2), torch.zeros_like(settings.mu2)
        x, _ = interior.split(w)
        self.x, self.dx, self.dz = x.clone(), 0 * x, 0 * known.z
        follows = interior.constrained and interior.layout.lower > 0 and not bool(curvature.known.all())
        self.multipliers = Followed(interior, members, settings.z_tol) if follows else None
        everyone = torch.arange(len(w), device=w.device)
        self.points = Points(w, self.value(everyone, known), self.gradient(everyone, w))

    def value(self, rows: Tensor, known: Known) -> Tensor:
        """B, infinite where the slack is not positive."""
        return barrier(known, self.settings.mu2[rows], self.settings.tau[rows])

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
        z, f_z = self._solved(going, at.take(hopeful), best.y[hopeful])
        self.archive = remembered(self.archive, going[switched], z[switched])
        solved = Known(z, f_z, F[hopeful], f[hopeful])
        self.tried = self.tried.put(going, solved)
        value[hopeful] = self.value(going, solved)
        return value

    def _solved(self, rows: Tensor, at: BatchAt, z: Tensor) -> tuple[Tensor, Tensor]:
        """The end of a descent of f from z, and f there; with its curvature measured anew where the first one fails."""
        memory = self.z_memory.take(rows)
        z, f_z, settled = self.interior.descend(at, z, self.settings.z_tol[rows], memory)
        self.z_memory.put(rows, memory)
        lost = (~settled & self.curvature.possible).nonzero()[:, 0]
        if len(lost):
            own = rows[lost]
            self._measure(own, at.take(lost), z[lost])
            memory = self.z_memory.take(own)
            again = self.interior.descend(at.take(lost), z[lost], self.settings.z_tol[own], memory)
            self.z_memory.put(own, memory)
            z, f_z = z.index_copy(0, lost, again.y), f_z.index_copy(0, lost, again.f)
        return z, f_z

    def candidates(self, rows: Tensor, x: Tensor, y: Tensor, attempt: int) -> Tensor:
        """Where z may start: the last z, where it is expected, y, and scouts or what the last trial found."""
        z = self.known.z[rows]
        if attempt > 0:
            other = self.tried.z[rows]
            return torch.cat([torch.stack([z, z + tol.SHORTER * (other - z), y, other], 1), self.archive[rows]], 1)
        self.draws += 1
        dx, along = self.dx[rows], x - self.x[rows]
        ratio = (dot(dx, along) / dot(dx, dx).clamp_min(TINIEST)).clamp(-tol.FORESIGHT, tol.FORESIGHT)
        shift = ratio.to(z)[:, None] * self.dz[rows]
        curvature = self.curvature.take(rows)
        known = curvature.known[:, None]
        if bool(known.any()):
            shift = torch.where(known, curvature.shift(along), shift)
        expected = self.interior.batch.y.of(self.members[rows]).project(z + shift)
        scouts = self.interior.around(self.members[rows], y, self.draws)
        return torch.cat([torch.stack([z, expected, y], 1), self.archive[rows], scouts], 1)

    def gradient(self, rows: Tensor, w: Tensor) -> Tensor:
        """The gradient of B at points that are taken."""
        x, y = self.interior.split(w)
        tried = self.tried.take(rows)
        self.dx[rows], self.dz[rows], self.x[rows] = x - self.x[rows], tried.z - self.known.z[rows], x
        self.known = self.known.put(rows, tried)
        at = self.interior.batch.at(x, self.members[rows])
        due = self._due(rows)
        if len(due):
            self._measure(rows[due], at.take(due), tried.z[due])
        if self.multipliers is not None:
            own = (~self.curvature.known[rows]).nonzero()[:, 0]
            if len(own):
                self.multipliers.notice(rows[own], at.take(own), tried.z[own], w[own])
        slack = self.settings.mu2[rows] - tried.gap
        weight = self.settings.tau[rows] / slack
        of_F, of_f = at.barrier_grads(y, tried.z, weight)
        self.pull[rows] = torch.maximum(dot(of_F, of_F).sqrt(), self.settings.least[rows])
        self.change[rows] = first_order_change(self.interior, of_F, w)
        self.taken[rows] += 1
        self._model(rows, at, w, of_F, of_f, weight, slack)
        return of_F + of_f

    def _due(self, rows: Tensor) -> Tensor:
        """Where measuring the curvature of f pays: a single entry of y, never ill-conditioned, waits for parting."""
        due = self.curvature.take(rows).due(self.interior.batch.counts[self.members[rows]])
        return (due & (self.settings.parted[rows] | (self.known.z.shape[1] > 1))).nonzero()[:, 0]

    def _measure(self, rows: Tensor, at: BatchAt, z: Tensor) -> None:
        """The curvature of f anew."""
        found = self.curvature.take(rows).measured(at, z)
        self.curvature = self.curvature.put(rows, found)
        self.of_gap = self.of_gap.index_copy(0, rows, found.of_gap)
        self.z_memory.forget(rows)
        self.z_memory.hessian[rows] = found.K

    def _model(
        self, rows: Tensor, at: BatchAt, w: Tensor, of_F: Tensor, of_f: Tensor, weight: Tensor, slack: Tensor
    ) -> None:
        """The Hessian of B where the curvature of f is known: F'' + lambda G'' + (lambda / s) G' G'^T with G = f - f*.

        F'' is the multiple of the identity that the last step tells; pairs of L-BFGS correct it. Without a step it is
        that of the last stage. The terms of constraints in F add their own.
        """
        step, change = w - self.at_w[rows], of_F - self.of_F[rows]
        of_terms = None
        if self.interior.constrained and self.curvature.possible:
            of_terms = bend_of_terms(self.interior, at, self.interior.split(w)[1]).to(w)
            change = change - (of_terms @ step[..., None])[..., 0]
        bend = (dot(change, change) / dot(step, step)).sqrt()
        told = bend.isfinite() & (self.taken[rows] > 1)
        bend = torch.where(told, torch.maximum(bend, FADING * self.curvature.bend[rows]), self.curvature.bend[rows])
        self.curvature.bend[rows] = bend
        self.of_F[rows], self.at_w[rows] = of_F, w
        known = self.curvature.take(rows).known[:, None, None]
        if bool(known.any()):
            model = weight[:, None, None] * self.of_gap[rows]
            model.diagonal(dim1=1, dim2=2).add_(bend[:, None])  # in place: these may be the largest tensors of all
            if of_terms is not None:
                model += of_terms
            model += of_f[:, :, None] * of_f[:, None] / (weight * slack)[:, None, None]
            self.w_memory.hessian[rows] = torch.where(known, model, 0.0).to(w)

    def scale(self, reduced: Tensor) -> Tensor:
        """A unit first step in x and in y, each by itself."""
        return torch.cat([unit(part) for part in self.interior.split(reduced)], -1)

    def enough(self, rows: Tensor, reduced: Tensor, decrease: Tensor) -> Tensor:
        """B can fall by little against tau, and its gradient is small against that of F: one alone may mislead.

        The curvature of the last stage may mislead too: one step has to be made in this one.
        """
        small = dot(reduced, reduced).sqrt() <= self.settings.precision[rows] * self.pull[rows]
        return (self.taken[rows] > 1) & small & (decrease < tol.LITTLE * self.settings.tau[rows])
