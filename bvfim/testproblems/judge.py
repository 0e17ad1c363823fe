"""An independent judge: whether a result solves a test problem, by brute force and SciPy, whatever its solver says."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.core.constraints import LOWER, layout, values
from bvfim.core.extras import require_extras
from bvfim.core.lower_minimum import lower_minimum
from bvfim.core.problem import Problem
from bvfim.testproblems.base import TestProblem, sample
from bvfim.testproblems.feasible import Region, bounds, distance, nearest

VIOLATED = 1e-4
"""Constraints of a solution hold within this distance."""
AMONG = 1e-6
"""A y is among the lower-level solutions if f is above the lowest by this share of 1 + |f|; y is then out by about its
root."""
LOWEST, SPREAD_OUT = 8, 16
"""f is minimised from so many of the random points, the lowest; or, to find all of its minima, from so many of any."""
SAME = 1e-5
"""Points no further apart than this, relative to their size, are one minimiser: a search from either ends alike."""
REACH = 10.0
"""Points are drawn from the box of y, as far as it lies within this of zero."""


class Judged(NamedTuple):
    """What is found of (x, y).

    Attributes:
        upper: F there; with a pessimistic follower the largest F of the lower-level solutions at x, if it is larger.
        lower: f there.
        violation: the distance from where all constraints hold.
        gap: f less its minimum at x.

    Example:
        >>> from bvfim.testproblems.judge import Judged
        >>> Judged(upper=1.0, lower=3.0, violation=0.0, gap=0.05).is_solution(1.0, tol=1e-2)
        False
    """

    upper: float
    lower: float
    violation: float
    gap: float

    def is_feasible(self, tol: float = 1e-2) -> bool:
        """Whether constraints hold, and the gap is at most tol (1 + |f|)."""
        return self.violation <= VIOLATED and self.gap <= tol * (1 + abs(self.lower))

    def is_solution(self, optimum: float, tol: float = 1e-2) -> bool:
        """Whether, moreover, F is within tol (1 + |F*|) of the optimum F*."""
        return self.is_feasible(tol) and abs(self.upper - optimum) <= tol * (1 + abs(optimum))

    def is_too_low(self, optimum: float, tol: float = 1e-2) -> bool:
        """Whether F is below the optimum by more than tol (1 + |F*|), which no feasible point is."""
        return self.upper < optimum - tol * (1 + abs(optimum))


def judged(test: TestProblem, x: Tensor, y: Tensor) -> Judged:
    """What (x, y) is worth.

    Example:
        >>> import bvfim
        >>> test = bvfim.testproblems.constrained()[4]  # min x^2 + y^2, where y is the least that is at least 1 - x
        >>> found = bvfim.testproblems.judged(test, test.x, test.y + 0.25)
        >>> found.upper, found.violation, round(found.gap, 6)
        (1.0625, 0.0, 0.25)
    """
    F, f = (float(v) for v in test.problem.counted_anew().at(x).values(y))
    if test.problem.follower == "pessimistic":
        F = max(F, worst_upper(test, x, y))
    return Judged(F, f, distance(test.problem, x, y), lower_gap(test, x, y))


def solved(test: TestProblem, x: Tensor, y: Tensor, tol: float = 1e-2) -> bool:
    """Whether |F - F*| <= tol (1 + |F*|), constraints hold, and the lower-level gap is at most tol (1 + |f|).

    Example:
        >>> import bvfim
        >>> toy = bvfim.testproblems.sine()
        >>> bvfim.testproblems.solved(toy, toy.x, toy.y), bvfim.testproblems.solved(toy, 0 * toy.x, 0 * toy.y)
        (True, False)
    """
    return judged(test, x, y).is_solution(test.upper, tol)


def lower_gap(test: TestProblem, x: Tensor, y: Tensor, samples: int = 64, seed: int = 0) -> float:
    """f(x, y) minus the lowest f(x, .) that L-BFGS finds from y, the known optimum and the best random points.

    With constraints in the lower level it is SciPy's SLSQP, and (x, y) the nearest point where these hold: a y that
    violates them has no gap, and where x is out by a hair no y may be left. Infinite where there is no such point.

    Example:
        >>> import bvfim
        >>> toy = bvfim.testproblems.sine()
        >>> bvfim.testproblems.lower_gap(toy, toy.x, toy.y + 0.1) > 0.004
        True
    """
    problem, points = test.problem.counted_anew(), _points(test, samples, seed)
    if any(kind in LOWER for kind in problem.stated):
        held = nearest(problem, x, y, lower_only=True)
        if held is None:
            return math.inf
        x, y = held
        lowest = constrained_minima(problem, x, [y, test.y, *points[: samples // 4]])
        return float(problem.at(x).lower(y)) - min((f for _, f in lowest), default=math.inf)
    return float(problem.at(x).lower(y)) - min(f for _, f in _minima(problem, x, [y, test.y], points))


def constrained_minima(problem: Problem, x: Tensor, starts: list[Tensor]) -> list[tuple[Tensor, float]]:
    """Where SLSQP ends on f(x, .) under its constraints from some points, and f there; empty where they never hold.

    Example:
        >>> import bvfim
        >>> from bvfim.testproblems.judge import constrained_minima
        >>> test = bvfim.testproblems.constrained()[3]  # (y - 3)^2 where y^2 <= x, y >= 1
        >>> y, f = min(constrained_minima(test.problem, 4 * test.x, [test.y]), key=lambda pair: pair[1])
        >>> round(float(y), 6), round(f, 6)
        (2.0, 1.0)
    """
    require_extras("the lower-level gap of a problem with constraints", "labels")
    found = layout(problem, x, starts[0], None)
    x, equal = x.detach(), found.equal[: found.lower]
    region = Region(
        lambda y: values(problem, x, y, None)[: found.lower], equal, *bounds(problem.y_set, starts[0]), starts[0]
    )

    def f(y: Tensor) -> Tensor:
        value: Tensor = problem.call("lower", x, y, None)
        return value

    ends = []
    for start in starts:
        pushed = region.pushed(start)
        ends += [pushed, region.lowest(f, region.clamped(start) if pushed is None else pushed)]
    pairs = [(y, float(f(y).detach())) for y in ends if y is not None]
    return [(y, value) for y, value in pairs if math.isfinite(value)]


def worst_upper(test: TestProblem, x: Tensor, y: Tensor, samples: int = 64, seed: int = 0) -> float:
    """The largest F among the lower-level solutions at x, which is what a leader gets from a pessimistic follower.

    SLSQP maximises F where f is at most its minimum and a hair, from every minimum of f that is so low.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.testproblems.judge import worst_upper
        >>> test = bvfim.testproblems.pessimistic()[0]  # any y of [0, 1] follows at x = 1, and F = y
        >>> print(round(worst_upper(test, torch.ones(1).double(), torch.zeros(1).double()), 4))
        1.0
    """
    return -_lowest_followed(test, x, [y, test.y], _points(test, samples, seed), -1.0)


def best_upper(test: TestProblem, x: Tensor, samples: int = 64, seed: int = 0) -> float:
    """The smallest F among the lower-level solutions at x, which is what a leader gets from an optimistic follower.

    Found like the largest; it depends on x alone, so that a y of any solver plays no part in it.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.testproblems.judge import best_upper
        >>> toy = bvfim.testproblems.sine()
        >>> abs(best_upper(toy, toy.x) - toy.upper) < 1e-2
        True
    """
    return _lowest_followed(test, x, [test.y], _points(test, samples, seed), 1.0)


def _lowest_followed(test: TestProblem, x: Tensor, known: list[Tensor], points: Tensor, sign: float) -> float:
    """The smallest F, or negative F, among the lower-level solutions at x."""
    require_extras("the best or the worst of several lower-level solutions", "labels")
    problem, x = test.problem.counted_anew(), x.detach()
    minima = _minima(problem, x, [*known, *points[:SPREAD_OUT]], points)
    lowest = min(f for _, f in minima)
    allowed = lowest + AMONG * (1 + abs(lowest))
    region = Region(
        lambda y: problem.call("lower", x, y, None).reshape(1) - allowed, torch.tensor([False]),
        *bounds(problem.y_set, test.y), test.y,
    )  # fmt: skip

    def signed(y: Tensor) -> Tensor:
        return sign * problem.call("upper", x, y, None)

    among = apart([start for start, f in minima if f <= allowed])
    ends = [end for start in among if (end := region.lowest(signed, start)) is not None]
    return min(float(signed(end).detach()) for end in [*among, *ends])


def apart(points: list[Tensor]) -> list[Tensor]:
    """Those of the points that are not the same as an earlier one.

    Example:
        >>> import torch
        >>> from bvfim.testproblems.judge import apart
        >>> apart([torch.zeros(1), torch.full((1,), 1e-6)])
        [tensor([0.])]
    """
    kept: list[Tensor] = []
    for point in points:
        if all(bool((point - other).abs().max() > SAME * (1 + point.abs().max())) for other in kept):
            kept.append(point)
    return kept


def _points(test: TestProblem, count: int, seed: int) -> Tensor:
    return sample(test.problem.y_set, test.y, REACH, torch.Generator().manual_seed(seed), count)


def _minima(problem: Problem, x: Tensor, known: Iterable[Tensor], points: Tensor) -> list[tuple[Tensor, float]]:
    """Where L-BFGS ends on f(x, .) from known points and the lowest of others, and f there."""
    at = problem.at(x)
    best = at.lower_many(list(points)).nan_to_num(math.inf).argsort()[:LOWEST]
    found = [lower_minimum(at, start, 200, 1e-12) for start in (*known, *points[best])]
    return [(y, f) for y, f in found if math.isfinite(f)]
