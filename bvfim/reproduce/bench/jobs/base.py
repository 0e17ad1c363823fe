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
