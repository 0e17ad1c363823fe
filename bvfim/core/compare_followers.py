"""The same problem for a follower who breaks ties in the leader's favour, and for one who breaks them against it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bvfim.core.problem import Problem, as_problem
from bvfim.core.solution import Solution
from bvfim.core.solve import solve
from bvfim.methods import Choice
from bvfim.tree import Tree


@dataclass(frozen=True)
class Followers:
    """The results for both followers.

    Attributes:
        optimistic, pessimistic: a :class:`bvfim.Solution` each.

    Example:
        >>> import torch, bvfim
        >>> test = bvfim.testproblems.pessimistic()[3]
        >>> both = bvfim.compare_followers(test.problem, test.x, test.y, bvfim.AdaptiveBVFIM(starts=3))
        >>> both.optimistic.upper < both.pessimistic.upper, round(both.worth, 2)
        (True, 1.46)
    """

    optimistic: Solution
    pessimistic: Solution

    @property
    def worth(self) -> float:
        """What a friendly follower is worth to the leader: F for the pessimistic one less F for the optimistic one."""
        return self.pessimistic.upper - self.optimistic.upper

    def __str__(self) -> str:
        return (
            f"A friendly follower is worth {self.worth:.6g}.\n"
            f"optimistic: {self.optimistic}\npessimistic: {self.pessimistic}"
        )


def compare_followers(problem: Problem, x: Tree, y: Tree, method: Choice | None = None, **options: Any) -> Followers:
    r"""Solve a problem twice, whatever its ``follower``: where ties are broken for the leader, and against it.

    .. math:: \min_x \min_{y \in S(x)} F(x, y) \le \min_x \max_{y \in S(x)} F(x, y),
              \qquad S(x) = \arg\min_y f(x, y).

    Args:
        problem: the objectives and sets.
        x, y: the initial point.
        method: a method that solves for both followers; ``bvfim.AdaptiveBVFIM()`` by default.
        options: passed to :func:`bvfim.solve`.

    Returns:
        Both solutions, and ``worth``, the difference of their F.

    Example:
        >>> import torch, bvfim
        >>> test = bvfim.testproblems.pessimistic()[0]
        >>> start = torch.full((1,), 0.3, dtype=torch.float64)
        >>> both = bvfim.compare_followers(test.problem, start, start, bvfim.AdaptiveBVFIM(starts=3))
        >>> [round(s.upper, 3) for s in (both.optimistic, both.pessimistic)], round(both.worth, 3)
        ([0.0, 0.5], 0.5)
    """
    own = as_problem(problem)
    found = {
        name: solve(replace(own, follower=name), x, y, method, **options) for name in ("optimistic", "pessimistic")
    }
    return Followers(**found)
