"""What a job of the contest is: a problem, its starts, a budget, and a judge that looks at x alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bvfim import tree
from bvfim.core.problem import Problem
from bvfim.tree import Tree


@dataclass(frozen=True)
class Posed:
    """A problem of one seed, as any method gets it.

    Args:
        problem: F and f, with their own counters.
        x, y: where every method starts.
        judge: what an x is worth, lower is better. It solves or trains the lower level anew, always in the same way, so
            that the y and z of a method play no part; it does not touch the problem's counters.
        batches: for :func:`bvfim.solve`, drawn from the beginning; None where there are none.
        blocks: the same rows in blocks that come back in every epoch, for :class:`bvfim.SABA`; None where there are no
            batches, or where no draw ever comes back.
        optimum: the lowest value that the judge can give, where it is known.
    """

    problem: Problem
    x: Tree
    y: Tree
    judge: Callable[[Tree], float]
    batches: Any = None
    blocks: Any = None
    optimum: float | None = None


@dataclass(frozen=True)
class Job:
    """A problem of the contest.

    Args:
        name: its name; family: the kind of job that it is an instance of.
        budget: CPU seconds of one thread that a method gets.
        build: poses it for a seed; the same seed always gives the same problem.
    """

    name: str
    family: str
    budget: float
    build: Callable[[int], Posed]


NEAR = 0.05
"""A value is near the best where its excess is at most this: five per cent."""
TRIFLE = 1e-3
"""Of the fall from the start to the best: what is no further off than this is near, too, as where the best is zero."""


def excess(value: float, best: float, start: float) -> float:
    """How far a value is above the best, relative to the best, or to the fall from the start where the best is small.

    At most ``NEAR`` exactly where value - best <= 0.05 |best|, or <= 0.001 (start - best).

    Args:
        value: what an x is worth; best: the lowest that anyone found, or the optimum; start: what the start is worth.

    Example:
        >>> from bvfim.reproduce.bench.jobs.base import excess
        >>> excess(1.1, 1.0, 2.0).__round__(6), excess(0.1, 0.0, 100.0).__round__(6), excess(0.0, 0.0, 0.0)
        (0.1, 0.05, 0.0)
    """
    over = value - best
    if over <= 0:
        return 0.0
    scale = max(abs(best), TRIFLE / NEAR * (start - best))
    return over / scale if scale > 0 else math.inf


def is_near(value: float, best: float, start: float) -> bool:
    """Whether a value counts as good as the best: the rule by which methods, and advice, are judged.

    Example:
        >>> from bvfim.reproduce.bench.jobs.base import is_near
        >>> is_near(1.04, 1.0, 2.0), is_near(1.06, 1.0, 2.0), is_near(0.001, 0.0, 2.0)
        (True, False, True)
    """
    return excess(value, best, start) <= NEAR * (1 + 1e-12)


def judged(posed: Posed, x: Tree) -> float:
    """What x is worth: infinite where it, or its value, is not finite.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.reproduce.bench.jobs.base import Posed, judged
        >>> posed = Posed(bvfim.Problem(max, min), torch.ones(1), torch.ones(1), lambda x: float(x.sum()))
        >>> judged(posed, torch.ones(2)), judged(posed, torch.tensor([torch.nan]))
        (2.0, inf)
    """
    if not all(bool(leaf.isfinite().all()) for leaf in tree.leaves(x)):
        return math.inf
    try:
        value = posed.judge(x)
    except ArithmeticError:  # an exact solve that does not converge at such an x
        return math.inf
    return value if math.isfinite(value) else math.inf
