r"""How the multipliers of the lower level follow x within a stage, to first order.

With the constraints that bind, :math:`A = \hat g_y`, K and C the derivatives of :math:`\psi_y` in y and x at fixed u,
z keeps to :math:`\hat g(x, z) = 0` where

.. math:: (A K^{-1} A^\top) \frac{du}{dx} = \hat g_x - A K^{-1} C, \qquad
          \frac{dz}{dx} = -K^{-1} \Big(C + A^\top \frac{du}{dx}\Big).

Without it, :math:`\psi(x, y) - \psi^*(x)` would grow beside x even along lower-level solutions, and hold x where it
is. Where K and C are not measured, pairs of steps tell the slope.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.core.augmented import moved
from bvfim.interior import tolerances as tol
from bvfim.interior.batch import BatchAt
from bvfim.interior.curvature import Curvature, invertible
from bvfim.interior.feasible import reach
from bvfim.interior.lower import Interior
from bvfim.interior.starts import TINIEST


def responding(interior: Interior, at: BatchAt, z: Tensor, curvature: Curvature) -> Curvature:
    """Let u follow x; returns what is known of the second derivatives of psi, with the response of u in C.

    Where they are not measured, u goes on as it did.
    """
    terms = interior.terms.take(at.members)
    interior.put_terms(at.members, terms._replace(slope=torch.zeros_like(terms.slope)))
    in_x, A = _binding(interior, at, z)
    measured = curvature.measured(at, z)
    known = measured.known[:, None, None]
    K, C = invertible(measured.K).double(), measured.C.double()
    S, right = A @ torch.linalg.solve(K, A.mT), in_x - A @ torch.linalg.solve(K, C)
    slope = torch.linalg.pinv(S, rtol=tol.DEPENDENT, hermitian=True) @ right
    slope = torch.where(slope.isfinite(), slope, 0.0)
    steepest = torch.maximum(terms.c.amax(1), K.abs().amax((1, 2)))  # c is zero where f has no slope at the start
    most = tol.FASTEST_RESPONSE * steepest / slope.flatten(1).norm(dim=1).clamp_min(TINIEST)
    slope = torch.where(known, slope * most.clamp_max(1.0)[:, None, None], terms.slope)
    interior.put_terms(at.members, terms._replace(slope=slope))
    return measured._replace(C=torch.where(known, C + A.mT @ slope, 0.0).to(measured.C))


def _binding(interior: Interior, at: BatchAt, z: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of the lower level's constraints in x and in y, zero for those that do not bind."""
    count, terms = interior.layout.lower, interior.terms.take(at.members)
    values, slopes = at.jacobian(z)
    binds = interior.layout.equal[:count] | (terms.u + terms.c * values[:, :count] > 0)
    in_x, in_y = interior.split((slopes[:, :count] * binds[..., None]).flatten(0, 1))
    return in_x.unflatten(0, (-1, count)), in_y.unflatten(0, (-1, count))


def secant(slope: Tensor, dx: Tensor, du: Tensor, size: Tensor, noise: Tensor) -> Tensor:
    """du / dx changed as little as agrees with a pair of steps (Broyden, 1965); hardly where that of x is short.

    What is within the noise, given as a square, is not missed.
    """
    least = (tol.SHORT_STEP * size).square()[:, None]
    missed = du - (slope @ dx[..., None])[..., 0]
    missed = torch.where(missed.square() > noise, missed, 0.0)
    return slope + missed[..., None] * (dx / (dx.square().sum(1, keepdim=True) + least))[:, None]


class Followed:
    """How the multipliers change with x in a stage, from the points that are taken."""

    def __init__(self, interior: Interior, members: Tensor, fine: Tensor) -> None:
        self.interior, self.members, self.fine = interior, members, fine
        terms = interior.terms.take(members)
        self.slope, self.x, self.u = terms.slope.clone(), terms.origin.clone(), terms.u.clone()
        self.seen = torch.zeros(len(members), dtype=torch.bool, device=members.device)

    def notice(self, rows: Tensor, at: BatchAt, z: Tensor, w: Tensor) -> None:
        """One more pair for some of the rows, from the z there."""
        layout = self.interior.layout
        terms, x = self.interior.terms.take(at.members).at(at.x.double()), at.x.double()
        u = moved(at.distances(z)[:, : layout.lower], terms.u, terms.c, layout.equal[: layout.lower])
        noise = tol.MULTIPLIERS_TOLD * terms.c * self.fine[rows, None]
        pair = secant(self.slope[rows], x - self.x[rows], u - self.u[rows], reach(w), noise)
        # The first u of a stage may have settled since the last one: that is no response to x.
        self.slope[rows] = torch.where(self.seen[rows, None, None], pair, self.slope[rows])
        self.x[rows], self.u[rows], self.seen[rows] = x, u, True

    def keep(self) -> None:
        """Let the next stage know."""
        terms = self.interior.terms.take(self.members)
        self.interior.put_terms(self.members, terms._replace(slope=self.slope))
