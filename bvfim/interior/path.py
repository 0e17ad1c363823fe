r"""The path of the barrier's minimisers: smooth in :math:`\epsilon = 1/\lambda`, and the answer is its end at 0.

At a minimiser of B, the gradient of :math:`F + \lambda (f - f^*)` vanishes for :math:`\lambda = \tau/s`. Its value
:math:`p(\lambda)` is concave with :math:`p' = f - f^*`, locally below the optimum. Where f grows quadratically around
z, the gap falls like :math:`\lambda^{-2}`, so that the optimum is

.. math:: p(\lambda) + \int_\lambda^\infty \mathrm{gap} = F + 2 \lambda\, \mathrm{gap} + O(\epsilon^2).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior.lbfgs import Memory
from bvfim.interior.lower import Interior, best_of
from bvfim.interior.schedule import tighten
from bvfim.interior.starts import Known, Starts, barrier

FARTHEST = 3.0
"""A step along the path is at most this many times the last one: the path bends."""
APART = 1.05
"""The ends of two stages tell the direction of the path where their multipliers differ by this factor."""
PARTED = 0.1
"""Basins have parted once mu2 is below this share of the range of f, and the path is smooth from there."""


class Path(NamedTuple):
    """The ends of the last two stages of each start: w, z and 1 / lambda there."""

    w: Tensor
    z: Tensor
    eps: Tensor
    last_w: Tensor
    last_z: Tensor
    last_eps: Tensor

    @property
    def known(self) -> Tensor:
        """Where it has a direction."""
        return self.last_eps.isfinite() & (self.last_eps > APART * self.eps)

    def at(self, share: float) -> tuple[Tensor, Tensor]:
        """w and z, to first order, where eps is this share of what it is now."""
        ahead = torch.where(self.known, (1 - share) * self.eps / (self.last_eps - self.eps), 0.0)
        ahead = ahead.clamp_max(FARTHEST).to(self.w)[:, None]
        return self.w + ahead * (self.w - self.last_w), self.z + ahead * (self.z - self.last_z)

    def take(self, rows: Tensor) -> Path:
        """Some of the starts."""
        return Path(*(t[rows] for t in self))


class Ahead(NamedTuple):
    """Where the next stage begins: w and z, and its mu2 and tau."""

    w: Tensor
    z: Tensor
    mu2: Tensor
    tau: Tensor


def parted(mu2: Tensor, spread: Tensor) -> Tensor:
    """Where basins have parted."""
    return mu2 <= PARTED * spread


def followed(
    interior: Interior,
    members: Tensor,
    starts: Starts,
    path: Path,
    known: Known,
    of_z: Memory,
    begun: Ahead,
    rows: Tensor,
    rate: float,
) -> Ahead:
    """``begun``, moved along the path in those of the rows where the next B is lower there.

    Args:
        interior, members, starts: the problem, and the starts with the mu2 and tau of the stage that has ended.
        path, known: where it ended, and what is known there.
        of_z: the curvature of f that is known, kept up to date.
        begun: where the next stage would begin without a path.
        rows: the starts that go on.
        rate: the ratio of two mu2.
    """
    rows = rows[path.known[rows] & parted(starts.mu2[rows], starts.spread[rows])]
    if len(rows) == 0:
        return begun
    old = known.take(rows)
    w, z = path.take(rows).at(rate**0.5)
    w = interior.w.of(members[rows]).project(w)
    x, y = interior.split(w)
    at = interior.batch.at(x, members[rows])
    best = best_of(at, torch.stack([at.of_y.project(z), old.z, y], 1))
    memory = of_z.take(rows)
    z, f_z, _ = interior.descend(at, best.y, interior.fineness(starts.mu2, starts.spread)[rows], memory)
    new = Known(z, f_z, *at.values(y))
    mu2, tau = starts.mu2[rows], starts.tau[rows]
    mu2, tau = tighten(mu2, tau, new.gap.clamp_min(0), old.slack(mu2), rate)
    better = (barrier(new, mu2, tau) < barrier(old, mu2, tau)) & (mu2 <= begun.mu2[rows])
    rows, which = rows[better], better.nonzero()[:, 0]
    of_z.put(rows, memory.take(which))
    pairs = zip(begun, (w, z, mu2, tau), strict=True)
    return Ahead(*(before.index_copy(0, rows, after[which]) for before, after in pairs))
