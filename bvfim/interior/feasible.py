"""Constraints before the first stage: how fast each changes, the first weights, and points where they hold."""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.core.augmented import Terms, blank, violation
from bvfim.core.multipliers import LEAST_LOCAL, LEAST_SIZE, STEP
from bvfim.interior.batch import BatchAt
from bvfim.interior.lbfgs import Memory, Points, dot, minimise, unit
from bvfim.interior.lower import Interior
from bvfim.interior.space import Space

SIZE_DRAW = 1_004
"""The number of the draw of samples, beyond those of stages and probes."""
SAMPLES, SIGNS = 6, 8
"""The points at which gradients are looked at, and the directions that tell the size of a constraint's."""
LOWER_WEIGHT, UPPER_WEIGHT = 10.0, 1.0
"""c and k: a violation of the size of w costs that many times what f, and F, change by over that distance."""
CAP, FAR_OUT = 0.3, 2.0
"""psi is not defined where a constraint of the lower level is violated by more than the size of w, or by this multiple
of what is violated at the start: f may fall without bound out there."""
FEASIBLE = 1e-10
"""Constraints hold where the distances from them are below this share of the size of w."""
PHASE_STEPS = 100
"""Steps of L-BFGS towards a feasible point."""


def reach(w: Tensor) -> Tensor:
    """The size of w, at least one unit: what distances are measured by."""
    return w.abs().amax(1).double().clamp_min(1.0)


def slopes(interior: Interior, members: Tensor, w: Tensor, draw: int) -> Tensor:
    """The size of the gradient of each constraint at w, by differences along random signs: (B, M)."""
    signs = torch.where(interior.uniform(members, draw, SIGNS, w.shape[1]) < 0.5, -1.0, 1.0).to(w)
    step = torch.finfo(w.dtype).eps ** STEP * reach(w).to(w)

    def at(w: Tensor) -> Tensor:
        x, y = interior.split(w)
        return interior.batch.at(x, members).distances(y)

    here = at(w)
    there = torch.stack([at(w + step[:, None] * sign) for sign in signs.unbind(1)])
    return ((there - here) / step[:, None]).square().mean(0).sqrt()


def first_terms(interior: Interior, members: Tensor, w: Tensor) -> Terms:
    """Sizes from samples around w; what they are multiplied with comes later."""
    low, high = interior.w.of(members).region(w)
    numbers = interior.uniform(members, SIZE_DRAW, SAMPLES, w.shape[1]).to(w)
    points = (low + (high - low) * share for share in numbers.unbind(1))
    mean = torch.stack([slopes(interior, members, there, SIZE_DRAW + 1) for there in points])
    mean = mean.nan_to_num(0.0, 0.0, 0.0).mean(0)
    mean = mean.clamp_min(LEAST_SIZE * mean.amax(1, keepdim=True)).clamp_min(torch.finfo(torch.float64).tiny)
    return blank(interior.layout, interior.split(w)[0])._replace(sigma=mean)


def weighed(interior: Interior, at: BatchAt, w: Tensor, points: Tensor) -> Tensor:
    """The first multipliers, which are zero, and weights, from the gradients of F and f at y among the points.

    Returns what psi falls by beyond a constraint at which f falls, before its multiplier is known: f may not vary
    at all where the constraints hold.
    """
    sizes = []
    for y in points.unbind(1):
        g_F, g_f = at.bare.both_grads(y)
        sizes.append(torch.stack([dot(g_F, g_F).sqrt(), dot(g_f, g_f).sqrt()]))
    F, f = torch.stack(sizes).nan_to_num(0.0, 0.0, 0.0).mean(0)[..., None]
    tiny = torch.finfo(torch.float64).tiny
    terms, size = interior.terms.take(at.members), reach(w)[:, None]
    zero = torch.zeros_like(terms.v)
    left = violation(at.distances(points[:, 0]), interior.layout.equal).amax(1, keepdim=True)
    interior.put_terms(
        at.members,
        terms._replace(
            u=zero[:, : interior.layout.lower],
            c=(LOWER_WEIGHT * f / size).clamp_min(tiny).expand_as(terms.c),
            v=zero,
            k=(UPPER_WEIGHT * F / size).clamp_min(tiny).expand_as(zero),
            violated=zero + torch.inf,
            cap=torch.maximum(CAP * size, FAR_OUT * left),
        ),
    )
    return (f * size / (2 * LOWER_WEIGHT))[:, 0]


def local_sizes(interior: Interior, members: Tensor, w: Tensor, terms: Terms) -> Terms:
    """With sizes as they are at w, where they are smaller than around it."""
    there = terms.sigma * slopes(interior, members, w, SIZE_DRAW + 2).nan_to_num(torch.inf)
    return terms._replace(sigma=torch.minimum(terms.sigma, torch.maximum(there, LEAST_LOCAL * terms.sigma)))


def prepared(interior: Interior, members: Tensor, w: Tensor) -> Tensor:
    """Points where the constraints hold, or nearly; the terms are those of the starts from here on."""
    interior.put_terms(members, first_terms(interior, members, w))
    w = pulled_in(interior, members, w)
    interior.put_terms(members, local_sizes(interior, members, w, interior.terms))
    return w


class Violation:
    """Half the sum of squared distances from the constraints, of y alone or of x and y."""

    def __init__(self, interior: Interior, members: Tensor, x: Tensor | None, lower: int | None) -> None:
        self.interior, self.members, self.x, self.lower = interior, members, x, lower
        self.gradients = torch.empty(0)

    def at(self, rows: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The value and the gradient in what moves."""
        x, y = self.interior.split(v) if self.x is None else (self.x[rows], v)
        found, gradient = self.interior.batch.at(x, self.members[rows]).least_squares_grad(y, self.lower)
        return found, gradient if self.x is None else self.interior.split(gradient)[1]

    def trial(self, rows: Tensor, w: Tensor, attempt: int, ceiling: Tensor) -> Tensor:
        """The value."""
        return self.at(rows, w)[0]

    def gradient(self, rows: Tensor, w: Tensor) -> Tensor:
        """The gradient."""
        return self.at(rows, w)[1]

    def scale(self, reduced: Tensor) -> Tensor:
        """A unit first step."""
        return unit(reduced)

    def enough(self, rows: Tensor, reduced: Tensor, decrease: Tensor) -> Tensor:
        """It can fall by little."""
        return decrease <= FEASIBLE**2


def pulled_in(interior: Interior, members: Tensor, w: Tensor, lower: int | None = None) -> Tensor:
    """w where the constraints (or the first of them) hold: y alone is moved, and x too where that does not do."""
    x, y = interior.split(w)
    everyone = torch.arange(len(w), device=w.device)
    of_y = Violation(interior, members, x, lower)
    y, left = _descended(of_y, everyone, y, interior.batch.y.of(members))
    w = torch.cat([x, y], -1)
    rows = (left > FEASIBLE * reach(w) ** 2).nonzero()[:, 0]
    if len(rows):
        both = Violation(interior, members[rows], None, lower)
        moved, _ = _descended(both, everyone[: len(rows)], w[rows], interior.w.of(members[rows]))
        w = w.index_copy(0, rows, moved)
    return w


def y_pulled_in(at: BatchAt, interior: Interior, y: Tensor) -> Tensor:
    """y where the constraints of the lower level hold, or as near to that as it gets."""
    function = Violation(interior, at.members, at.x, interior.layout.lower)
    return _descended(function, torch.arange(len(y), device=y.device), y, at.of_y)[0]


def lowest_feasible(interior: Interior, at: BatchAt, points: Tensor, allowed: Tensor) -> Tensor:
    """The lowest f, without the terms, at several y a row that are pulled in first; infinite where none gets inside."""
    points = all_pulled_in(interior, at, points)
    rows = torch.arange(len(points), device=points.device).repeat_interleave(points.shape[1])
    count = interior.layout.lower
    left = violation(at.take(rows).distances(points.flatten(0, 1)), interior.layout.equal)[:, :count]
    held = (left <= allowed[rows, None]).all(1).unflatten(0, points.shape[:2])
    values = at.bare.lower_many(points)
    return torch.where(held & values.isfinite(), values, torch.inf).amin(1)


def all_pulled_in(interior: Interior, at: BatchAt, points: Tensor) -> Tensor:
    """The same for several y a row: (B, k, n)."""
    rows = torch.arange(len(points), device=points.device).repeat_interleave(points.shape[1])
    return y_pulled_in(at.take(rows), interior, points.flatten(0, 1)).unflatten(0, points.shape[:2])


def _descended(function: Violation, rows: Tensor, v: Tensor, space: Space) -> tuple[Tensor, Tensor]:
    points = Points(v, *function.at(rows, v))
    found, _ = minimise(function, points, space, Memory.empty(v), PHASE_STEPS)
    return found.w, found.value
