r"""Constraints as augmented Lagrangian terms, with which F and f become smooth functions of x and y alone.

With :math:`\hat g_i = g_i / \sigma_i`, a distance in the units of x and y, the lower level and the upper one become

.. math::

    \psi(x, y) = f(x, y) + \sum_i p(\hat g_i; u_i, c_i), \qquad
    \Phi(x, y) = F(x, y) + \sum_i p(\hat g_i; v_i, k_i) + \sum_j p(\hat G_j; v_j, k_j), \qquad
    p(t; u, c) = \frac{\max(0, u + c t)^2 - u^2}{2 c},

or :math:`u t + c t^2 / 2` for an equality. Multipliers and weights stay as they are within a stage, so that
:math:`\psi^*(x) = \min_y \psi(x, y)` exists at every x and has the gradient :math:`\psi_x(x, z)`, although the u are
not converged at each x. What forbids an x without a feasible y are the terms of g in :math:`\Phi`. Between two stages

.. math:: u \leftarrow \max(0, u + c\, \hat g(x, z)), \qquad v \leftarrow \max(0, v + k\, \hat g(x, y)).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.core.constraints import Layout


class Terms(NamedTuple):
    """What the constraints of each start are multiplied with, a row for each; u and c of the lower level alone."""

    sigma: Tensor
    """How fast each constraint changes with x and y, in their units."""
    u: Tensor
    c: Tensor
    v: Tensor
    k: Tensor
    violated: Tensor
    """The violation of each when its v was last changed: it has to halve."""
    cap: Tensor
    """The violation beyond which the lower level is not looked at; one for all."""
    slope: Tensor
    """du / dx, as far as it is known: (B, lower, entries of x)."""
    origin: Tensor
    """The x at which the multipliers are u."""

    def at(self, x: Tensor) -> Terms:
        """With the multipliers u at each x, to first order."""
        return self._replace(u=self.u + (self.slope @ (x - self.origin)[..., None])[..., 0])

    def take(self, rows: Tensor) -> Terms:
        """Those of some of the starts."""
        return Terms(*(t[rows] for t in self))

    def put(self, rows: Tensor, part: Terms) -> Terms:
        """These with some replaced."""
        return Terms(*(t.index_copy(0, rows, new) for t, new in zip(self, part, strict=True)))


def none_for(w: Tensor) -> Terms:
    """The terms of a problem without constraints."""
    return Terms(*(w.new_zeros(len(w), 0, dtype=torch.float64) for _ in Terms._fields))


def blank(layout: Layout, x: Tensor) -> Terms:
    """Ones, before anything is known of the starts at x."""
    m, lower = len(layout.names), layout.lower
    sigma, u, c, v, k, violated, cap = (
        x.new_ones(len(x), n, dtype=torch.float64) for n in (m, lower, lower, m, m, m, 1)
    )
    slope = x.new_zeros(len(x), lower, x.shape[1], dtype=torch.float64)
    return Terms(sigma, u, c, v, k, violated, cap, slope, origin=x.double().clone())


def term(t: Tensor, multiplier: Tensor, weight: Tensor, equal: Tensor) -> Tensor:
    """p(t; u, c), summed over the last dimension."""
    inside = ((multiplier + weight * t).clamp_min(0).square() - multiplier.square()) / (2 * weight)
    return torch.where(equal, multiplier * t + weight * t.square() / 2, inside).sum(-1)


def moved(t: Tensor, multiplier: Tensor, weight: Tensor, equal: Tensor) -> Tensor:
    """The next multiplier: the derivative of p at t."""
    found = multiplier + weight * t
    return torch.where(equal, found, found.clamp_min(0))


def violation(t: Tensor, equal: Tensor) -> Tensor:
    """How far a constraint is from holding, as a distance."""
    return torch.where(equal, t.abs(), t.clamp_min(0))


class Augmented(NamedTuple):
    """The entries of the vector of constraints, and what they are multiplied with."""

    layout: Layout
    terms: Terms

    def upper(self, values: Tensor) -> Tensor:
        """What is added to F, from the values of the constraints."""
        return term(self.scaled(values), self.terms.v, self.terms.k, self.layout.equal)

    def lower(self, values: Tensor) -> Tensor:
        """What is added to f: infinity beyond the cap."""
        m = self.layout.lower
        scaled, equal = self.scaled(values)[..., :m], self.layout.equal[:m]
        if m == 0:
            return scaled.sum(-1)
        outside = violation(scaled, equal).amax(-1) > self.terms.cap[..., 0]
        return torch.where(outside, torch.inf, term(scaled, self.terms.u, self.terms.c, equal))

    def scaled(self, values: Tensor) -> Tensor:
        """Constraints as distances."""
        return values.double() / self.terms.sigma

    def ones(self, x: Tensor) -> Augmented:
        """The same with other terms, none of them zero, for starts at x."""
        return self._replace(terms=blank(self.layout, x))
