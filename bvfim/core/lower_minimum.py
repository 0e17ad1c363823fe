"""Solves the lower level at a fixed x, to measure the lower-level gap that a method left."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.evaluator import At
from bvfim.core.multipliers import first
from bvfim.core.problem import Problem
from bvfim.core.projected import spectral_descent
from bvfim.interior.lbfgs import Memory, Points, minimise, unit
from bvfim.interior.space import Space
from bvfim.sets import entrywise, per_leaf
from bvfim.tree import Tree

EXACT = 2e-16
"""f is low enough where it can fall by no more than this, relative to max(|f|, 1)."""

HOLDS = 1e-6
"""Constraints hold where multipliers would move by no more than a violation of this, relative to the size of y."""
HEAVIER, HALVED = 4.0, 0.5
"""Weights grow by this factor where the violation has not halved in a round."""


class _Lower:
    """f(x, .) as a function of one flat row; every trial brings its gradient along."""

    def __init__(self, at: At, space: Space, tol: float, target: float) -> None:
        self.at, self.space, self.tol, self.target = at, space, tol, target
        self.value = math.inf
        self.latest = torch.empty(0)

    def evaluate(self, row: Tensor) -> Tensor:
        """f, whose gradient is kept."""
        f, gradient = self.at.lower_grad(self.space.tree(row))
        self.value, self.latest = float(f), tree.flatten(gradient)
        return f.double()

    def trial(self, rows: Tensor, w: Tensor, attempt: int, ceiling: Tensor) -> Tensor:
        """f."""
        return self.evaluate(w[0])[None]

    def gradient(self, rows: Tensor, w: Tensor) -> Tensor:
        """f_y where the last trial was."""
        return self.latest[None]

    def scale(self, reduced: Tensor) -> Tensor:
        """A unit first step."""
        return unit(reduced)

    def enough(self, rows: Tensor, reduced: Tensor, decrease: Tensor) -> Tensor:
        """f is low enough, or can fall by no more than the tolerance."""
        return (decrease <= self.tol * max(abs(self.value), 1.0)) | (self.value <= self.target)


def lower_minimum(
    at: At, y: Tree, max_iterations: int = 1000, tol: float = EXACT, target: float = -math.inf
) -> tuple[Tree, float]:
    """A local minimiser of f(x, .) near y, and its value, which is never above f(x, y).

    By projected L-BFGS where the entries of y move one by one, and by spectral projected gradients over any other set:
    a step that is scaled otherwise than the projection is no descent there.

    Args:
        at: the problem at x.
        y: the initial point.
        max_iterations: of L-BFGS; of spectral projected gradients, the most evaluations.
        tol: stop when f can decrease by no more than this, relative to max(|f|, 1).
        target: stop as soon as f is at most this.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.core.lower_minimum import lower_minimum
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 4).sum() + ((y - x) ** 2).sum())
        >>> x = torch.ones(2, dtype=torch.float64)
        >>> y, f = lower_minimum(problem.at(x), 0 * x)
        >>> bool((y - x).abs().max() < 1e-6)
        True
    """
    space = Space(y, per_leaf(at.problem.y_set, y))
    function, row = _Lower(at, space, tol, target), tree.flatten(y)
    if not entrywise(at.problem.y_set):

        def evaluate(row: Tensor) -> tuple[float, Tensor]:
            return float(function.evaluate(row)), function.latest

        w, value = spectral_descent(evaluate, lambda v: space.project(v[None])[0], row, max_iterations, tol, target)
        return space.tree(w), value
    row = space.project(row[None])[0]
    f = function.evaluate(row)
    points = Points(row[None], f[None], function.latest[None])
    if f > target:
        points, _ = minimise(function, points, space, Memory.empty(row[None]), max_iterations)
    return space.tree(points.w[0]), float(points.value[0])


def held_minimum(problem: Problem, x: Tree, y: Tree, budget: int) -> tuple[Tree, bool]:
    """The same under the constraints of the lower level, by rounds of the augmented Lagrangian method.

    Args:
        problem: the problem.
        x: where it is solved.
        y: the initial point.
        budget: how many gradients it may take, about.

    Returns:
        y, and whether the constraints hold there and their multipliers have settled.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.core.lower_minimum import held_minimum
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y: (y**2).sum(),
        ...     lower=lambda x, y: ((y - x) ** 2).sum(),
        ...     lower_constraints=lambda x, y: x - y + 1,
        ... )
        >>> x = torch.zeros(2, dtype=torch.float64)
        >>> y, holds = held_minimum(problem, x, x, 1000)
        >>> print(holds, f"{y[0]:.4f}")
        True 1.0000
    """
    own, multipliers, last = problem.counted_anew(), first(problem, x, y), math.inf
    size = max(1.0, float(tree.flatten(y).abs().max()))
    while own.evaluations.lower < budget:
        at = own.at(x, None, multipliers.augmented)
        y, _ = lower_minimum(at, y, budget - own.evaluations.lower)
        distances = multipliers.distances(at, y)
        moved = multipliers.followed(distances, distances, 1.0)
        change = float(((moved.u - multipliers.u) / multipliers.c).abs().max())
        if change <= HOLDS * size:
            return y, True
        multipliers = moved._replace(c=(HEAVIER if change > HALVED * last else 1.0) * moved.c)
        last = change
    return y, False
