r"""Projected L-BFGS with a backtracking line search, on flat vectors: the kernel of the adaptive solver.

A step goes along the projected path :math:`w(t) = P(w + t d)`, with d the L-BFGS direction on the free
coordinates, and is taken when :math:`\phi(w(t)) \le \phi(w) + 10^{-4}\, g^\top (w(t) - w)`. A point where the function
is not defined has the value infinity, so the search never leaves its domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from bvfim import sets, tree
from bvfim.tree import Tree


class Feasible(Protocol):
    """A set of vectors: its projection and its free directions."""

    def project(self, vector: Tensor, /) -> Tensor:
        """The nearest vector in the set."""
        ...

    def free(self, vector: Tensor, gradient: Tensor, /) -> Callable[[Tensor], Tensor]:
        """The projection onto the directions that the set leaves free."""
        ...


@dataclass(frozen=True)
class Space:
    """A tree seen as a vector, with its set: the vector's projection and free directions."""

    like: Tree
    sets: sets.SetTree

    def tree(self, vector: Tensor) -> Tree:
        """The tree of a vector."""
        return tree.unravel(vector, self.like)

    def project(self, vector: Tensor) -> Tensor:
        """The nearest vector in the set."""
        return vector if self.sets is None else tree.flatten(sets.project(self.sets, self.tree(vector)))

    def free(self, vector: Tensor, gradient: Tensor) -> Callable[[Tensor], Tensor]:
        """The projection onto the directions that the set leaves free."""
        if self.sets is None:
            return lambda v: v
        free, _ = sets.tangent(self.sets, self.tree(vector), self.tree(gradient))
        return lambda v: tree.flatten(free(self.tree(v)))


@dataclass
class Memory:
    """The last pairs (step, change of gradient) of a function."""

    size: int = 8
    pairs: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def add(self, step: Tensor, change: Tensor) -> None:
        """Keep a pair, unless its curvature is not safely positive."""
        if float(step @ change) > 1e-10 * float(step.norm() * change.norm()):
            self.pairs = [*self.pairs, (step, change)][-self.size :]

    def direction(self, gradient: Tensor, free: Callable[[Tensor], Tensor], scale: Tensor) -> Tensor:
        """-H g on the free directions, by the two loops; ``scale`` is the diagonal of H as long as there is no pair."""
        found = [(free(s), free(c)) for s, c in self.pairs]
        known = [(s, c, 1 / float(s @ c)) for s, c in found if float(s @ c) > 0]
        q, weights = free(gradient), []
        for s, c, rho in reversed(known):
            weights.append(rho * float(s @ q))
            q = q - weights[-1] * c
        q = q / (known[-1][2] * float(known[-1][1] @ known[-1][1])) if known else q * scale
        for (s, c, rho), weight in zip(known, reversed(weights), strict=True):
            q = q + (weight - rho * float(c @ q)) * s
        return -free(q)


class Point(NamedTuple):
    """A point of a minimisation: where, its value, its gradient, and what the function wants to keep of it."""

    w: Tensor
    value: float
    gradient: Tensor
    kept: Any


class Function(NamedTuple):
    """What is minimised: ``trial(w, first) -> (value, kept)``, then ``gradient(w, kept)`` where the trial is taken.

    ``first`` says that it is the first trial of a line search, the one that is mostly taken.
    """

    trial: Callable[[Tensor, bool], tuple[float, Any]]
    gradient: Callable[[Tensor, Any], Tensor]
    scale: Callable[[Tensor], Tensor]
    enough: Callable[[Point, Tensor, float], bool]
    """(point, free gradient, predicted decrease) -> whether to stop."""


def minimise(function: Function, point: Point, space: Feasible, memory: Memory, max_steps: int) -> tuple[Point, bool]:
    """Descend from a point; the last point, and whether ``enough`` ended it rather than the steps or a dead end."""
    for _ in range(max_steps):
        free = space.free(point.w, point.gradient)
        reduced = free(point.gradient)
        scale = function.scale(reduced)
        direction = memory.direction(point.gradient, free, scale)
        decrease = -float(point.gradient @ direction)
        if not decrease > 0:
            memory.pairs, direction = [], -reduced * scale
            decrease = -float(point.gradient @ direction)
        if decrease == 0 or (memory.pairs and function.enough(point, reduced, decrease / 2)):
            return point, True
        found = _search(function, point, direction, space)
        if found is None and not memory.pairs:
            return point, False
        if found is None:
            memory.pairs = []  # a stale curvature may be to blame: once more along the gradient
            continue
        memory.add(found.w - point.w, found.gradient - point.gradient)
        point = found
    return point, False


def _search(function: Function, point: Point, direction: Tensor, space: Feasible) -> Point | None:
    t = 1.0
    for attempt in range(14):
        w = space.project(point.w + t * direction)
        value, kept = function.trial(w, attempt == 0)
        slope = min(float(point.gradient @ (w - point.w)), 0.0)
        if math.isfinite(value) and value < point.value and value <= point.value + 1e-4 * slope:
            return Point(w, value, function.gradient(w, kept), kept)
        t *= 0.4 if attempt < 4 else 0.1
    return None
