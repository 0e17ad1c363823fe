r"""Projected L-BFGS with a backtracking line search for many functions at once: the kernel of the adaptive solver.

Every row of a matrix is a point of its own function, and all of them descend in step; a row that is done waits. A step
goes along the projected path :math:`w(t) = P(w + t d)`, with d the L-BFGS direction on the free coordinates, and is
taken when :math:`\phi(w(t)) \le \phi(w) + 10^{-4}\, g^\top (w(t) - w)`. A point where the function is not defined has
the value infinity, so the search never leaves its domain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from bvfim.interior.space import Space

PAIRS = 8
"""How many pairs (step, change of gradient) a memory keeps."""
ATTEMPTS = 14
"""How often a step is shortened before it is given up."""
SHORTER, GENTLE, MUCH_SHORTER = 0.4, 4, 0.1
"""The factor by which a step is shortened, how often, and the factor after that: its scale is then wrong."""
ARMIJO = 1e-4
"""The share of the decrease along the gradient that a step has to bring."""
CURVED = 1e-10
"""A pair with a smaller cosine reflects rounding rather than curvature."""
LONGER = 4
"""By how much the next step is stretched where the function falls without curving up."""


class Function(Protocol):
    """What is minimised, for each row a function of its own; ``rows`` says which ones are asked for."""

    def trial(self, rows: Tensor, w: Tensor, attempt: int, ceiling: Tensor) -> Tensor:
        """The values at w, in float64; infinity will do wherever the value is above the ceiling."""
        ...

    def gradient(self, rows: Tensor, w: Tensor) -> Tensor:
        """The gradients at the points of the last trials, which were taken."""
        ...

    def scale(self, reduced: Tensor) -> Tensor:
        """The first step along the negative free gradient, as a factor."""
        ...

    def enough(self, rows: Tensor, reduced: Tensor, decrease: Tensor) -> Tensor:
        """Whether to stop, given the free gradient and the decrease that the quadratic model promises."""
        ...


class Memory:
    """The last pairs (step, change of gradient) of each row, the newest last; zero where there is none.

    ``hessian``, if given, has a positive definite Hessian for each row, which the pairs correct; zero where it is not
    known.
    """

    def __init__(self, steps: Tensor, changes: Tensor, hessian: Tensor | None = None) -> None:
        self.steps, self.changes = steps, changes
        self.hessian = steps.new_zeros(len(steps), 0, 0) if hessian is None else hessian

    @classmethod
    def empty(cls, like: Tensor, hessian: Tensor | None = None) -> Memory:
        """No pair yet, for every row of ``like``."""
        blank = like.new_zeros(like.shape[0], PAIRS, like.shape[1])
        return cls(blank, blank.clone(), hessian)

    def take(self, rows: Tensor) -> Memory:
        """A copy of some rows."""
        return Memory(self.steps[rows], self.changes[rows], self.hessian[rows])

    def put(self, rows: Tensor, other: Memory) -> None:
        """Overwrite the pairs of some rows."""
        self.steps[rows], self.changes[rows] = other.steps, other.changes

    def forget(self, rows: Tensor) -> None:
        """Drop what is known of some rows."""
        self.steps[rows] = 0
        self.changes[rows] = 0
        self.hessian[rows] = 0

    def begin_with(self, hessian: Tensor) -> None:
        """Drop the pairs of every row, for a Hessian that knows better."""
        self.steps[:], self.changes[:], self.hessian[:] = 0, 0, hessian

    @property
    def measured(self) -> Tensor:
        """Which rows have a Hessian."""
        return (self.hessian != 0).flatten(1).any(1)

    @property
    def known(self) -> Tensor:
        """Which rows have a pair or a Hessian."""
        return (self.steps[:, -1].abs().amax(-1) > 0) | self.measured

    def add(self, rows: Tensor, step: Tensor, change: Tensor) -> Tensor:
        """Keep a pair for each row whose curvature is safely positive, and say which those are."""
        good = dot(step, change) > CURVED * (dot(step, step) * dot(change, change)).sqrt()
        rows, step, change = rows[good], step[good], change[good]
        self.steps[rows] = torch.cat([self.steps[rows, 1:], step[:, None]], 1)
        self.changes[rows] = torch.cat([self.changes[rows, 1:], change[:, None]], 1)
        return good

    def direction(self, gradient: Tensor, free: Callable[[Tensor], Tensor], scale: Tensor) -> Tensor:
        r"""-H g on the free directions; ``scale`` is the diagonal of H where nothing is known.

        With S, C the pairs, R the upper triangle of :math:`S C^\top`, D its diagonal, :math:`u = R^{-1} S g`, E the
        inverse of the Hessian on the free directions and :math:`\gamma = 1` where there is one, else E the diagonal
        matrix of ``scale`` and :math:`\gamma = s^\top c / c^\top E c` for the newest pair (Byrd, Nocedal and Schnabel,
        1994),

        .. math:: H g = \gamma E g + S^\top R^{-\top} (D u + \gamma C E (C^\top u - g)) - \gamma E C^\top u.

        So entries of other units (x and y) keep their own scales, of which curvature only sets the common factor.
        """
        g = free(gradient)
        S, C = free(self.steps), free(self.changes)
        Eg, EC = self._first(g, C, free, scale)
        SC, CC = (P.double() @ C.double().mT for P in (S, EC))  # float32 would overflow
        curvature = SC.diagonal(dim1=1, dim2=2)
        good = curvature > 0
        weight = good.double()
        if not bool(good.any()):
            return -free(Eg)
        both = weight[:, :, None] * weight[:, None]
        R = (SC * both).triu() + torch.diag_embed(1 - weight)
        Sg, Cg = ((P.double() @ g.double()[..., None]) * weight[..., None] for P in (S, EC))
        newest = (weight * torch.arange(1, PAIRS + 1, device=g.device)).argmax(-1, keepdim=True)
        ratio = curvature / CC.diagonal(dim1=1, dim2=2)
        scaled = good.any(-1) & ~self.measured
        gamma = torch.where(scaled[:, None], ratio.gather(1, newest), 1.0)[..., None]
        u = torch.linalg.solve_triangular(R, Sg, upper=True)
        inner = (curvature * weight)[..., None] * u + gamma * ((CC * both) @ u - Cg)
        v = torch.linalg.solve_triangular(R.mT, inner, upper=False)
        u, v, gamma = (a.to(g) for a in (u * weight[..., None], v * weight[..., None], gamma[..., 0]))
        found = gamma * (Eg - (EC.mT @ u)[..., 0]) + (S.mT @ v)[..., 0]
        return -free(torch.where(good.any(-1, keepdim=True), found, Eg))

    def _first(self, g: Tensor, C: Tensor, free: Callable[[Tensor], Tensor], scale: Tensor) -> tuple[Tensor, Tensor]:
        """E g and the rows of C E, on the free directions."""
        Eg, EC = g * scale, C * scale[:, None]
        rows = self.measured
        if not bool(rows.any()):
            return Eg, EC
        # With P the projection onto the free directions: P K P + (I - P), which leaves the others where they are.
        eye = torch.eye(g.shape[1], dtype=g.dtype, device=g.device).expand_as(self.hessian)
        K = free(free(self.hessian).mT) + (eye - free(eye))
        K = torch.where(rows[:, None, None], K, eye)
        size = power_of_two(K)
        factor, failed = torch.linalg.cholesky_ex(K / size)
        solved = torch.cholesky_solve(torch.cat([g[:, None], C], 1).mT / size, factor).mT
        known = (rows & (failed == 0))[:, None]
        return torch.where(known, solved[:, 0], Eg), torch.where(known[..., None], solved[:, 1:], EC)


class Points(NamedTuple):
    """Where each row is: its point, value and gradient."""

    w: Tensor
    value: Tensor
    gradient: Tensor

    def take(self, rows: Tensor) -> Points:
        """Some of the rows."""
        return Points(*(t[rows] for t in self))

    def put(self, rows: Tensor, w: Tensor, value: Tensor, gradient: Tensor) -> Points:
        """These points with some replaced."""
        part = Points(w, value, gradient)
        if len(rows) == len(self.value):  # rows rise, so that these are all of them
            return part
        return Points(*(old.index_copy(0, rows, new) for old, new in zip(self, part, strict=True)))


def minimise(function: Function, points: Points, space: Space, memory: Memory, max_steps: int) -> tuple[Points, Tensor]:
    """Move the points down, and keep what is learned of the curvature in ``memory``.

    Returns:
        Where they end, and which of them ended because of ``enough``, not because of the steps or a dead end.
    """
    settled = torch.zeros_like(points.value, dtype=torch.bool)
    running, stretch = ~settled, torch.ones_like(points.value)
    for _ in range(max_steps):
        rows = running.nonzero()[:, 0]
        if len(rows) == 0:
            break
        g = points.gradient[rows]
        free = space.of(rows).free(points.w[rows], g)
        reduced = free(g)
        scale = function.scale(reduced)
        own = memory.take(rows)
        direction, known = own.direction(g, free, scale), own.known
        decrease = -dot(g, direction)
        lost = ~(decrease > 0)
        if bool(lost.any()):
            memory.forget(rows[lost])
            direction = torch.where(lost[:, None], -reduced * scale, direction)
            decrease, known = -dot(g, direction), known & ~lost
        done = (decrease == 0) | (known & function.enough(rows, reduced, decrease / 2))
        settled[rows[done]] = True
        running[rows[done]] = False
        rows, direction, known = rows[~done], direction[~done], known[~done]
        if len(rows) == 0:
            continue
        found = _search(function, points, rows, direction * stretch[rows].to(g)[:, None], space)
        taken = found.taken
        memory.forget(rows[~taken & known])  # a stale curvature may be to blame: once more along the gradient
        running[rows[~taken & ~known]] = False
        if bool(taken.any()):
            moved, end = rows[taken], found.end[taken]
            gradient = function.gradient(moved, end)
            curved = memory.add(moved, end - points.w[moved], gradient - points.gradient[moved])
            # Where the function falls without curving up, a longer step is due.
            stretch[moved] = torch.where(curved | found.shortened[taken], 1.0, LONGER * stretch[moved])
            points = points.put(moved, end, found.value[taken], gradient)
    return points, settled


class _Found(NamedTuple):
    """The end of a search for each row: which found a lower point, where, its value, and whether the step was cut."""

    taken: Tensor
    end: Tensor
    value: Tensor
    shortened: Tensor


def _search(function: Function, points: Points, rows: Tensor, direction: Tensor, space: Space) -> _Found:
    """Look for a lower point along each row's direction, backwards from a full step."""
    w, value, g = points.w[rows], points.value[rows], points.gradient[rows]
    reached, taken = value.clone(), torch.zeros_like(value, dtype=torch.bool)
    end, shortened = w.clone(), taken.clone()
    left, t = torch.arange(len(rows), device=rows.device), 1.0
    for attempt in range(ATTEMPTS):
        trial = space.of(rows[left]).project(w[left] + t * direction[left])
        ceiling = value[left] + ARMIJO * dot(g[left], trial - w[left]).clamp_max(0)
        found = function.trial(rows[left], trial, attempt, ceiling)
        good = found.isfinite() & (found < value[left]) & (found <= ceiling)
        end[left[good]], reached[left[good]] = trial[good], found[good]
        taken[left[good]] = True
        left = left[~good]
        shortened[left] = True
        if len(left) == 0:
            break
        t *= SHORTER if attempt < GENTLE else MUCH_SHORTER
    return _Found(taken, end, reached, shortened)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of each row, in float64."""
    return (a.double() * b.double()).sum(-1)


def unit(reduced: Tensor) -> Tensor:
    """The factor that makes the largest entry of each row one."""
    largest = reduced.abs().amax(-1, keepdim=True)
    return torch.where(largest > 0, 1 / largest, 1.0).expand_as(reduced)


def power_of_two(K: Tensor) -> Tensor:
    """What to divide each matrix by for a largest entry in [0.5, 1): a root of the factor 2 would round."""
    return torch.exp2(torch.frexp(K.abs().amax((1, 2))).exponent.to(K))[:, None, None]
