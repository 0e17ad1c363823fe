"""Jobs with a known optimum: the paper's toy, and problems of the literature, judged by the library's own judge.

Starts are random, uniform in the boxes as far as they lie in [-10, 10]. Of the collection come the first twelve by
name, upper and lower case alike: a rule that nobody's success could bend.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from bvfim.reproduce.bench.jobs.base import Job, Posed
from bvfim.testproblems import TestProblem, collection, sine, starts
from bvfim.testproblems.judge import best_upper

TOYS = {"toy, n = 1": 1, "toy, n = 100": 100}
TOY_A, TOY_C = 2.0, 2.0
"""Of the toy: how its objective and its y are shifted, as in the paper's experiment with many dimensions."""
TAKEN = 12
"""How many problems of the collection are taken."""
SECONDS = 2.0
"""CPU seconds for one of these."""


def jobs() -> list[Job]:
    """The toy in one and in a hundred dimensions, and the test problems."""
    toys = [Job(name, "toy", SECONDS, partial(_toy, n)) for name, n in TOYS.items()]
    return [*toys, *(Job(name, "test problems", SECONDS, partial(_test, name)) for name in names())]


def names() -> list[str]:
    """The test problems that are taken.

    Example:
        >>> from bvfim.reproduce.bench.jobs.known import names
        >>> names()[:2], len(names())
        (['b_1998_02', 'BDA_counterexample'], 12)
    """
    found = (test.name for test in collection() if not test.name.startswith("sine"))
    return sorted(found, key=str.lower)[:TAKEN]


def _toy(n: int, seed: int) -> Posed:
    return _posed(sine(TOY_A, n, TOY_C), seed, partial(toy_value, n))


def _test(name: str, seed: int) -> Posed:
    [test] = [test for test in collection() if test.name == name]
    return _posed(test, seed, partial(best_upper, test))


def _posed(test: TestProblem, seed: int, judge: partial[float]) -> Posed:
    [(x, y)] = starts(test, 1, seed)
    return Posed(test.problem, x, y, judge, optimum=test.upper)


def toy_value(n: int, x: Tensor) -> float:
    """F of the toy where each y_i is the minimiser of its sine that is best for F.

    Example:
        >>> from bvfim.reproduce.bench.jobs.known import toy_value
        >>> from bvfim.testproblems import sine
        >>> toy = sine(2.0, 100, 2.0)
        >>> abs(toy_value(100, toy.x) - toy.upper) < 1e-9
        True
    """
    wanted = TOY_A + TOY_C
    lowest = TOY_C - x - math.pi / 2
    nearest = lowest + 2 * math.pi * torch.round((wanted - lowest) / (2 * math.pi))
    return float(((x - TOY_A) ** 2).sum() + n * ((nearest - wanted) ** 2).sum())
