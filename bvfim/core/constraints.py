"""The constraints of both levels as one vector, and what its entries are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.draw import Draw
from bvfim.status import ProblemError
from bvfim.tree import Tree

LOWER = ("lower_constraints", "lower_equalities")
UPPER = ("upper_constraints", "upper_equalities")
KINDS = (*LOWER, *UPPER)
"""The arguments of :class:`bvfim.Problem` that hold constraints, in the order of the vector."""


class Constrained(Protocol):
    """What is needed of a :class:`bvfim.Problem`."""

    @property
    def stated(self) -> tuple[str, ...]:
        """Those of ``KINDS`` that it has."""
        ...

    def call(self, name: str, x: Tree, y: Tree, data: Any) -> Any:
        """A function of the problem by name."""
        ...


class Layout(NamedTuple):
    """The entries of the vector of constraints: those of the lower level come first.

    Attributes:
        names: such as ``lower_constraints[2]``.
        equal: whether each is an equality.
        lower: how many are of the lower level.
    """

    names: tuple[str, ...]
    equal: Tensor
    lower: int


def values(problem: Constrained, x: Tree, y: Tree, data: Any) -> Tensor:
    """Every constraint at (x, y): at most zero, or zero for equalities.

    Example:
        >>> import torch, bvfim
        >>> from bvfim.core.constraints import values
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y: (x + y).sum(), lower=lambda x, y: (y**2).sum(), lower_constraints=lambda x, y: x - y
        ... )
        >>> values(problem, torch.ones(1), torch.zeros(1), None)
        tensor([1.])
    """
    return torch.cat([problem.call(name, x, y, of_level(name, data)).reshape(-1) for name in problem.stated])


def of_level(name: str, data: Any) -> Any:
    """The batch that a kind of constraints sees: that of the objective of its level."""
    return getattr(data, name.partition("_")[0]) if isinstance(data, Draw) else data


def layout(problem: Constrained, x: Tree, y: Tree, data: Any) -> Layout:
    """What the entries are, as counted at one point."""
    names, equal, lower = [], [tree.leaves(y)[0].new_zeros(0, dtype=torch.bool)], 0
    with torch.no_grad():
        for kind in problem.stated:
            found = problem.call(kind, x, y, of_level(kind, data)).reshape(-1)
            names += [f"{kind}[{i}]" for i in range(len(found))]
            equal.append(torch.full_like(found, kind.endswith("equalities"), dtype=torch.bool))
            lower += len(found) if kind in LOWER else 0
    return Layout(tuple(names), torch.cat(equal), lower)


def check_functions(given: dict[str, object], accepts: Callable[[Any, int], bool]) -> None:
    """Reject what is not a function of (x, y)."""
    for name, function in given.items():
        if not callable(function):
            raise ProblemError(f"{name} must be a function, not a {type(function).__name__}")
        if not (accepts(function, 2) or accepts(function, 3)):
            raise ProblemError(
                f"{name} must be a function of (x, y), or of (x, y, data) where there are batches or a context"
            )
