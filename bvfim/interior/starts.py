"""All starts between two stages, and what is known of a point."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.core.augmented import Terms
from bvfim.interior import tolerances as tol
from bvfim.interior.curvature import Curvature

UNDER_WAY, SOLVED, STUCK, OPEN, UNBOUNDED, BROKEN, INFEASIBLE = range(7)
"""The states of a start."""


class Seen(IntEnum):
    """The points that a start keeps, each in a slot of its own, so that none hides another.

    Its first point where that is a lower-level solution, the lowest one met late, and its first x with the z there.
    """

    START, LATE, ANSWER = range(3)


class Starts(NamedTuple):
    """All starts between two stages; every field has a row or an entry for each. w and z are in units."""

    unit: Tensor
    """Of the entries of w."""
    w: Tensor
    w_steps: Tensor
    w_changes: Tensor
    """The L-BFGS memory of w."""
    z: Tensor
    z_steps: Tensor
    z_changes: Tensor
    """The L-BFGS memory of z."""
    archive: Tensor
    """Lower points that once were the best."""
    K: Tensor
    C: Tensor
    bend: Tensor
    measured_at: Tensor
    """What is known of the second derivatives."""
    last_w: Tensor
    last_z: Tensor
    last_eps: Tensor
    """Where the last stage ended, and 1 / lambda there; infinite where no path leads on from it."""
    mu2: Tensor
    tau: Tensor
    gap: Tensor
    slack: Tensor
    stalled: Tensor
    ended: Tensor
    spread: Tensor
    """The range of f over samples at the start: what the first mu2 is measured by."""
    scale: Tensor
    """How much f varies over near samples: what a gap is measured by."""
    size: Tensor
    """The largest size of F so far."""
    reach: Tensor
    """The size of w at the start."""
    lower: Tensor
    relaxed: Tensor
    """F inside the barrier, at most the optimum nearby."""
    upper: Tensor
    """F at the polished y, at least the optimum nearby."""
    value: Tensor
    grad_norm: Tensor
    stationarity: Tensor
    """The free gradient of B against the gradient of F."""
    modes: Tensor
    """Whether f(x, .) was seen to have a second minimum."""
    seen: Tensor
    """Points whose y was a lower-level solution, as far as was known: one for each of :class:`Seen`."""
    seen_F: Tensor
    """F there; infinite where there is none."""
    reopened: Tensor
    """Whether the start has gone on from there."""
    sigma: Tensor
    u: Tensor
    c: Tensor
    v: Tensor
    k: Tensor
    violated: Tensor
    cap: Tensor
    slope: Tensor
    origin: Tensor
    """The terms of constraints: (B, 0) where there are none."""
    hard: Tensor
    """For how many stages a violation of constraints has not halved."""
    counts: Tensor
    """Gradients of F, gradients of f, values."""

    @property
    def terms(self) -> Terms:
        """The terms of constraints."""
        return Terms(self.sigma, self.u, self.c, self.v, self.k, self.violated, self.cap, self.slope, self.origin)

    @property
    def shown(self) -> Tensor:
        """F at w: solved starts have a polished y."""
        return torch.where(self.ended == SOLVED, self.upper, self.relaxed)

    @property
    def curvature(self) -> Curvature:
        """What is known of the second derivatives."""
        return Curvature(self.K, self.C, self.bend, self.measured_at)

    def noticed(self, slot: int, w: Tensor, F: Tensor, which: Tensor) -> Starts:
        """With points that have a lower F than the one seen before, among those in question."""
        seen, seen_F = self.seen.clone(), self.seen_F.clone()
        lower = which & F.isfinite() & (seen_F[:, slot] > F)
        seen[lower, slot], seen_F[lower, slot] = w[lower], F[lower]
        return self._replace(seen=seen, seen_F=seen_F)

    def take(self, rows: Tensor) -> Starts:
        """Some of the starts."""
        return Starts(*(field[rows] for field in self))

    def put(self, rows: Tensor, part: Starts) -> Starts:
        """These starts with some replaced."""
        return Starts(*(field.index_copy(0, rows, new.to(field)) for field, new in zip(self, part, strict=True)))


class Known(NamedTuple):
    """What is known of each start's point w: z, f(x, z), F and f."""

    z: Tensor
    f_z: Tensor
    F: Tensor
    f: Tensor

    @property
    def gap(self) -> Tensor:
        """f(x, y) - f(x, z)."""
        return self.f - self.f_z

    def slack(self, mu2: Tensor) -> Tensor:
        """mu2 less the gap; at least a share of mu2, or tau would blow up."""
        return (mu2 - self.gap).clamp_min(tol.LEAST_SLACK * mu2)

    def take(self, rows: Tensor) -> Known:
        """Some of the starts."""
        return Known(*(t[rows] for t in self))

    def put(self, rows: Tensor, part: Known) -> Known:
        """These with some replaced."""
        if len(rows) == len(self.f):  # rows rise, so that these are all of them
            return part
        return Known(*(t.index_copy(0, rows, new) for t, new in zip(self, part, strict=True)))

    def improved(self, z: Tensor, f_z: Tensor) -> Known:
        """With z where it is lower by more than rounding."""
        better = f_z < self.f_z - tol.SAME_VALUE * torch.finfo(z.dtype).eps * self.f_z.abs()
        return self._replace(z=torch.where(better[:, None], z, self.z), f_z=torch.where(better, f_z, self.f_z))


TINIEST = 1e-300
"""What keeps a logarithm or a division finite where its result is not used."""


def barrier(known: Known, mu2: Tensor, tau: Tensor) -> Tensor:
    """B = F - tau ln(slack), infinite where the slack is not positive."""
    slack = mu2 - known.gap
    return torch.where(slack > 0, known.F - tau * slack.clamp_min(TINIEST).log(), torch.inf)
