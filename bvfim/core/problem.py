r"""A bilevel problem.

.. math::

    \min_{x \in X,\, y} F(x, y) \quad\text{s.t.}\quad G(x, y) \le 0,\; H(x, y) = 0,\;
    y \in \arg\min_{y \in Y} \{ f(x, y) : g(x, y) \le 0,\; h(x, y) = 0 \}

:class:`Problem` is what the user defines. :meth:`Problem.at` fixes x (and the batch) and returns the evaluator
:class:`bvfim.core.evaluator.At`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from bvfim import sets
from bvfim.core import constraints
from bvfim.core.arguments import accepts
from bvfim.core.augmented import Augmented
from bvfim.core.backends import AUTOGRAD, Backend
from bvfim.core.evaluations import Evaluations
from bvfim.core.evaluator import At
from bvfim.distributed.world import ALONE, World
from bvfim.status import ProblemError
from bvfim.tree import Tree

FOLLOWERS = ("optimistic", "pessimistic")
"""How a follower chooses among several lower-level solutions."""


@dataclass(frozen=True)
class Problem:
    r"""A bilevel problem: minimise F(x, y) over x in X and y in argmin f(x, .) over Y, where constraints hold.

    Args:
        upper: F. Takes ``(x, y)`` or ``(x, y, data)`` and returns a scalar tensor.
        lower: f, likewise.
        x_set: X; a set, a tree of sets like x, or ``None`` for the whole space.
        y_set: Y, likewise.
        context: ``context(x, batch)`` computes, once per upper step, whatever does not depend on y (features,
            sample weights). Its value, a tree of tensors, becomes ``data``; the inner loops see it
            detached, and the gradient in x flows through it. ``batch`` is ``None`` without batches.
        joint: returns the pair (F, f) from one pass, for objectives that share work. It takes the arguments of
            ``upper``; with :class:`bvfim.Batches` it gets the pair of batches, a :class:`bvfim.Draw`.
        lower_constraints: g; takes the arguments of ``lower`` and returns a tensor of any shape, each entry of which is
            to be at most zero. The lower level minimises f where that holds.
        lower_equalities: h, likewise; each entry is to be zero.
        upper_constraints, upper_equalities: G and H, likewise; x is chosen such that they hold at the y that follows.
        follower: which y follows where several minimise f: ``"optimistic"``, the one that is best for F, or
            ``"pessimistic"``, the worst: then x minimises the largest F.

    ``data`` is the batch drawn by ``solve(batches=...)``, or the value of ``context`` if there is one.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(),
        ...     lower=lambda x, y: torch.sin(x + y).sum(),
        ...     x_set=bvfim.Box(-10, 10),
        ... )
        >>> at = problem.at(torch.tensor([1.0]))
        >>> at.upper(torch.tensor([2.0]))
        tensor(1.)
        >>> problem.evaluations.forward
        1
    """

    upper: Callable[..., Tensor]
    lower: Callable[..., Tensor]
    x_set: sets.SetTree = None
    y_set: sets.SetTree = None
    context: Callable[[Tree, Any], Tree] | None = None
    joint: Callable[..., tuple[Tensor, Tensor]] | None = None
    lower_constraints: Callable[..., Tensor] | None = None
    lower_equalities: Callable[..., Tensor] | None = None
    upper_constraints: Callable[..., Tensor] | None = None
    upper_equalities: Callable[..., Tensor] | None = None
    follower: str = "optimistic"
    evaluations: Evaluations = field(default_factory=Evaluations, init=False, compare=False, repr=False)
    memo: dict[str, bool] = field(default_factory=dict, init=False, compare=False, repr=False)
    backend: Backend = field(default=AUTOGRAD, init=False, compare=False, repr=False)
    world: World = field(default=ALONE, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("upper", "lower", "context", "joint"):
            given = getattr(self, name)
            if not callable(given) and not (given is None and name in ("context", "joint")):
                raise ProblemError(f"{name} must be a function, not a {type(given).__name__}")
            if name in ("upper", "lower") and not (accepts(given, 2) or accepts(given, 3)):
                raise ProblemError(
                    f"{name} must be a function of (x, y), or of (x, y, data) where there are batches or a context"
                )
        if self.context is not None and not accepts(self.context, 2):
            raise ProblemError("context must be a function of (x, batch)")
        if self.joint is not None and not (accepts(self.joint, 2) or accepts(self.joint, 3)):
            raise ProblemError("joint must take the arguments of upper: (x, y), or (x, y, data)")
        constraints.check_functions({name: getattr(self, name) for name in self.stated}, accepts)
        if self.follower not in FOLLOWERS:
            raise ProblemError(f"follower must be one of {', '.join(FOLLOWERS)}, not {self.follower!r}")

    @functools.cached_property
    def stated(self) -> tuple[str, ...]:
        """The kinds of constraints that there are."""
        return tuple(name for name in constraints.KINDS if getattr(self, name) is not None)

    @functools.cached_property
    def _takes_data(self) -> dict[str, bool]:
        return {name: accepts(getattr(self, name), 3) for name in ("upper", "lower", "joint", *self.stated)}

    @functools.cached_property
    def takes_data(self) -> bool:
        """Whether the context or an objective takes data."""
        return self.context is not None or any(self._takes_data.values())

    @functools.cached_property
    def needs_data(self) -> str:
        """The name of an objective that can't do without data where there is no context; empty if there is none."""
        alone = self.context is None
        functions = ("upper", "lower", *self.stated)
        return next((name for name in functions if alone and not accepts(getattr(self, name), 2)), "")

    def call(self, name: str, x: Tree, y: Tree, data: Any) -> Any:
        """The objective ``name`` at (x, y), with the data if there are any and it takes them. Not counted."""
        objective = getattr(self, name)
        return objective(x, y, data) if data is not None and self._takes_data[name] else objective(x, y)

    def counted_anew(self) -> Problem:
        """The same problem with its own counters, set to zero."""
        return self.among(self.world)

    def among(self, world: World) -> Problem:
        """The same problem with its own counters, for a process of this world."""
        own = dataclasses.replace(self)
        object.__setattr__(own, "world", world)
        return own

    def differentiated_by(self, backend: Backend) -> Problem:
        """The same problem with its own counters, and derivatives from another backend."""
        own = self.counted_anew()
        object.__setattr__(own, "backend", backend)
        return own

    def at(self, x: Tree, batch: Any = None, augmented: Augmented | None = None) -> At:
        """The problem at one x and one batch; F and f contain the terms of constraints that are given."""
        return At(self, x, batch, self.backend, augmented)

    def project_x(self, x: Tree) -> Tree:
        """The projection of x onto X."""
        return sets.project(self.x_set, x)

    def project_y(self, y: Tree) -> Tree:
        """The projection of y onto Y."""
        return sets.project(self.y_set, y)


def as_problem(given: object) -> Problem:
    """What was given, if it is a problem.

    Example:
        >>> from bvfim.core.problem import as_problem
        >>> as_problem((max, min))
        Traceback (most recent call last):
        bvfim.status.ProblemError: problem must be a bvfim.Problem, not a tuple
    """
    if not isinstance(given, Problem):
        raise ProblemError(f"problem must be a bvfim.Problem, not a {type(given).__name__}")
    return given
