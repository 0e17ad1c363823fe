"""What cheap probes tell of a problem at its start."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import torch

from bvfim import tree
from bvfim.adviser import probes
from bvfim.core.batches import Draws
from bvfim.core.problem import Problem
from bvfim.sets import entrywise
from bvfim.tree import Tree

DRAWS = 8
"""Draws of the batches that are compared with each other."""
LONGEST, SHORTEST = 500, 5
"""The most and the fewest iterations of L-BFGS in a descent; between them the clock decides."""
SHARE = 0.15
"""The share of the time for advice that one descent may take."""


class Facts(NamedTuple):
    """What is known of a problem at its start.

    Attributes:
        m, n: the entries of x and of y.
        batches: whether there are batches.
        sampled: whether f or its gradient differs from draw to draw.
        stated: the kinds of constraints.
        follower: whom it is solved for.
        upper: F at the start.
        seconds: of one gradient of f.
        twice: whether f can be differentiated twice.
        largest, smallest: the largest size of a curvature of f at the start or at the end of a descent, and the
            smallest curvature at its end; not a number where none could be had.
        fall: what f falls by in a descent.
        descent: the gradients of f that it took.
        reached: whether it came to its end.
        minima: how many minima of different value the descents from scattered starts found.
        flat: the curvature of f along F_y there, relative to the largest: near zero, y can lower F at no cost of f.
        common: what the gradients of f on different draws have in common, between 0 and 1 (see
            :func:`bvfim.adviser.probes.common`): near 0, each draw has a lower level of its own.
        x_length: how far x goes until a gradient has changed by a tenth.
        boxed: whether Adam suits x: not in a set that is no box.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.adviser.facts import probed
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: 3 * ((y - x) ** 2).sum())
        >>> facts = probed(problem, torch.ones(2).double(), torch.zeros(3).double()[:2], None)
        >>> facts.m, facts.twice, round(facts.largest, 4), facts.minima
        (2, True, 6.0, 1)
    """

    m: int
    n: int
    batches: bool
    sampled: bool
    stated: tuple[str, ...]
    follower: str
    upper: float
    seconds: float
    twice: bool
    largest: float
    smallest: float
    fall: float
    descent: int
    reached: bool
    minima: int
    flat: float
    common: float
    x_length: float
    boxed: bool = True

    @property
    def condition(self) -> float:
        """The largest curvature over the smallest; infinite where f is not strongly convex as far as was seen."""
        return self.largest / self.smallest if self.smallest > 0 else math.inf


def probed(problem: Problem, x: Tree, y: Tree, batches: Any, budget: float = 2.0) -> Facts:
    """The facts, for about ``budget`` seconds.

    Args:
        problem: the objectives and sets.
        x, y: the start.
        batches: as for :func:`bvfim.solve`; drawn from, so their position is the caller's to restore.
        budget: the seconds that it may take; a few gradients are taken in any case.
    """
    own, draws = problem.counted_anew(), Draws(batches)
    drawn = [draws.draw() for _ in range(DRAWS if draws.given else 1)]
    ats = [own.at(x, batch) for batch in drawn]
    at = ats[0]
    slopes = [at.lower_grad(y) for at in ats]
    sampled = any(not tree.equal(found, slopes[0]) for found in slopes[1:])
    began = time.perf_counter()
    at.lower_grad(y)
    seconds = max(time.perf_counter() - began, 1e-6)
    iterations = min(max(int(SHARE * budget / seconds), SHORTEST), LONGEST)
    with torch.no_grad():
        return Facts(
            m=tree.size(x),
            n=tree.size(y),
            batches=draws.given,
            sampled=sampled,
            stated=own.stated,
            follower=own.follower,
            upper=float(at.upper(y)),
            seconds=seconds,
            twice=probes.differentiable_twice(at, y),
            **(probes.NOT_PROBED if own.stated else probes.lower_level(at, y, iterations, not sampled))._asdict(),
            common=probes.common([g for _, g in slopes]) if sampled else 1.0,
            x_length=probes.length_of_x(own, x, y, drawn[0]),
            boxed=entrywise(own.x_set),
        )
