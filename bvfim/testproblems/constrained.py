"""Bilevel problems with constraints in the lower level, from the literature, with known optima."""

from __future__ import annotations

from bvfim.testproblems.base import TestProblem
from bvfim.testproblems.constrained_general import general
from bvfim.testproblems.constrained_quadratic import quadratic
from bvfim.testproblems.constrained_scalar import scalar


def constrained() -> list[TestProblem]:
    """A new list of 32 problems with lower-level constraints, some with constraints on x too.

    Example:
        >>> import bvfim
        >>> tests = bvfim.testproblems.constrained()
        >>> len(tests), sum(test.problem.upper_constraints is not None for test in tests)
        (32, 3)
    """
    return [*scalar(), *quadratic(), *general()]
