r"""The second derivatives of f, from differences of its gradient: what L-BFGS learns too slowly where they differ much.

At a minimiser z of f(x, .), with :math:`K = f_{yy}` and :math:`C = f_{yx}`, the value function has

.. math:: \frac{dz}{dx} = -K^{-1} C, \qquad
          \nabla^2 (f - f^*) = \begin{pmatrix} C^\top K^{-1} C & C^\top \\ C & K \end{pmatrix},

so n gradients of f tell where z goes, how to descend f, and how the constraint of the barrier curves. They are taken
only after more gradients than that were spent on descents that a good model of f would have saved.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior.batch import BatchAt
from bvfim.interior.lbfgs import power_of_two
from bvfim.interior.separable import FEWEST, separable

LARGEST, LARGEST_STATED = 600, 4000
"""Problems with more entries in x and y keep L-BFGS alone: factorising would cost more than the gradients. With
constraints, whose terms L-BFGS learns slowly, they may be larger, where few gradients tell the second derivatives."""
EASY = 6
"""Gradients of f for each of F where z is easy to follow: two in the barrier, and a few steps of z."""
FLATTEST = 1e-12
"""Curvatures below this share of the largest are rounding, and count as that."""


class Curvature(NamedTuple):
    """What is known of the second derivatives at each start, in units; K and C are zero where they are not."""

    K: Tensor
    C: Tensor
    bend: Tensor
    """The curvature of F along the last step."""
    measured_at: Tensor
    """The counts at which K and C were measured."""

    @classmethod
    def unknown(cls, x: Tensor, y: Tensor, bend: Tensor, counts: Tensor, stated: bool) -> Curvature:
        """Nothing measured; without room for it where x and y are large, or too coarse for differences."""
        fits = y.dtype is torch.float64 and x.shape[1] + y.shape[1] <= (LARGEST_STATED if stated else LARGEST)
        n, m = (y.shape[1], x.shape[1]) if fits else (0, 0)
        return cls(y.new_zeros(len(y), n, n), y.new_zeros(len(y), n, m), bend, counts.clone())

    @property
    def known(self) -> Tensor:
        """Where K and C were measured."""
        return (self.K != 0).flatten(1).any(1)

    @property
    def possible(self) -> bool:
        """Whether there is room for K and C."""
        return self.K.shape[1] > 0

    def take(self, rows: Tensor) -> Curvature:
        """Some of the starts."""
        return Curvature(*(t[rows] for t in self))

    def put(self, rows: Tensor, part: Curvature) -> Curvature:
        """These with some replaced."""
        return Curvature(*(old.index_copy(0, rows, new) for old, new in zip(self, part, strict=True)))

    def due(self, counts: Tensor) -> Tensor:
        """Where descents have cost more gradients than measuring would."""
        upper, lower = (counts - self.measured_at)[:, :2].unbind(1)
        return (lower - EASY * upper > self.K.shape[1]) & self.possible

    def measured(self, at: BatchAt, z: Tensor) -> Curvature:
        """With K and C at (x, z), by one gradient for each entry of z and one more, or by few."""
        n = z.shape[1]
        if at.current is not None and n >= FEWEST:
            few = separable(at, z)
            if n + at.x.shape[1] > LARGEST or bool(few.known.all()):
                rows = few.known.nonzero()[:, 0]
                K = few.K.index_copy(0, rows, definite(few.K[rows]))
                return Curvature(K, few.C, self.bend, at.batch.counts[at.members])
        step = torch.finfo(z.dtype).eps ** (1 / 3) * (1 + z.abs())
        moved = z[:, None] + torch.diag_embed(step)
        each = torch.arange(len(z), device=z.device).repeat_interleave(n)
        _, here_x, here_y = at.lower_grads(z)
        _, there_x, there_y = at.take(each).lower_grads(moved.flatten(0, 1))
        pairs = ((there_y, here_y), (there_x[0], here_x[0]))
        K, C = ((there.unflatten(0, (-1, n)) - here[:, None]) / step[..., None] for there, here in pairs)
        finite = (K.isfinite().flatten(1).all(1) & C.isfinite().flatten(1).all(1))[:, None, None]
        K, C = (torch.where(finite, found, 0.0) for found in (K, C))
        return Curvature(convex(K), C, self.bend, at.batch.counts[at.members])

    def shift(self, dx: Tensor) -> Tensor:
        """dz for each dx; zero where nothing is known."""
        return -torch.linalg.solve(invertible(self.K), self.C @ dx[..., None])[..., 0]

    @property
    def of_gap(self) -> Tensor:
        """The Hessian of f - f* in w = (x, y)."""
        CT = self.C.mT
        in_x = CT @ torch.linalg.solve(invertible(self.K), self.C)
        return torch.cat([torch.cat([in_x, CT], 2), torch.cat([self.C, self.K], 2)], 1)


def convex(K: Tensor) -> Tensor:
    """The symmetric part, with its curvatures made positive: along a negative one, f falls both ways."""
    unit = power_of_two(K)
    values, vectors = torch.linalg.eigh((K + K.mT) / (2 * unit))
    size = values.abs()
    size = size.clamp_min(FLATTEST * size.amax(1, keepdim=True))
    return unit * ((vectors * size[:, None]) @ vectors.mT)


def definite(K: Tensor) -> Tensor:
    """The same for a symmetric K, without its eigenvalues where there is nothing to be made positive."""
    flattest = FLATTEST * K.abs().amax((1, 2), keepdim=True)
    lifted = K + flattest * torch.eye(K.shape[1], dtype=K.dtype, device=K.device)
    failed = (torch.linalg.cholesky_ex(lifted)[1] > 0).nonzero()[:, 0]
    return lifted if len(failed) == 0 else lifted.index_copy(0, failed, convex(K[failed]))


def invertible(K: Tensor) -> Tensor:
    """K, or the identity where it is not known."""
    blank = (K == 0).flatten(1).all(1)[:, None, None]
    return torch.where(blank, torch.eye(K.shape[1], dtype=K.dtype, device=K.device), K)
