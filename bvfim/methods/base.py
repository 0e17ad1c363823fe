"""What a method is, and what the explicit and implicit ones share."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, cast

from torch import Tensor

from bvfim.descent import descend
from bvfim.dynamics import Dynamics, GradientDescent
from bvfim.problem import At, Problem
from bvfim.schedules import FloatOrSchedule, require, require_count, value
from bvfim.status import MethodError
from bvfim.tree import Tree

Info = dict[str, Tensor]
"""Scalar tensors that a method reports of a step; they become columns of the history.

``upper`` and ``lower`` are F and f at the y that the gradient was taken at, ``value`` is the number
whose derivative in x the method claims to give.
"""


ENOUGH = 2000
"""How many inner steps a reference takes where the method itself takes fewer."""


class Reference(NamedTuple):
    """What :func:`bvfim.check_hypergradient` holds a method against.

    ``claim`` is the method without its approximations: the derivative of its ``value`` is what the method
    estimates. ``sound`` is the method with approximations taken out until its gradient must match differences
    of its own ``value``; most often the same. ``bias`` says in a few words what was taken out. Where the approximate
    estimate is itself the exact derivative of another value, ``own`` is the method and state that have this value: TRHG
    is the derivative of its last steps from where they begin.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> method, x = bvfim.TRHG(steps=10, keep=3), torch.ones(1)
        >>> method.reference(problem, x, method.init(problem, x, x), 0, None).claim.keep
        10
    """

    claim: Estimator
    sound: Estimator
    bias: str
    own: tuple[Estimator, Any] | None = None


class Estimator(ABC):
    """A method that estimates the hypergradient; the loop of :func:`bvfim.solve` moves x with it.

    A method is a frozen dataclass of its hyper-parameters. What it carries from step to step is its
    state, a named tuple of trees. See the page on adding a method.

    Example:
        >>> import bvfim
        >>> isinstance(bvfim.RHG(), bvfim.Estimator)
        True
    """

    capturable: ClassVar[bool] = False
    """Whether ``estimate`` depends on k through schedules in the fields alone, and never waits for the host: then an
    accelerated run may record it once and replay it."""

    @abstractmethod
    def init(self, problem: Problem, x: Tree, y: Tree) -> Any:
        """The state before the first step, from the lower-level start y."""

    @abstractmethod
    def estimate(self, problem: Problem, x: Tree, state: Any, k: int, data: Any) -> tuple[Tree, Any, Info]:
        """An estimate of d phi / d x at upper step k, the next state, and what to report."""

    @property
    def inner_steps(self) -> int:
        """How many inner steps an upper step takes at most, for those who draw a batch for each."""
        return 1

    def numbers(self, k: int) -> dict[str, float]:
        """The schedules among the fields, at their values of upper step k."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(cast(Any, self))}
        return {name: value(number, k, name) for name, number in own.items() if _is_schedule(number)}

    def reference(self, problem: Problem, x: Tree, state: Any, k: int, data: Any) -> Reference:
        """What a check holds this method against: itself, where it approximates nothing."""
        return Reference(self, self, "")

    def cautions(self, steps: int) -> list[str]:
        """What a user should know before a run of so many steps; :func:`bvfim.solve` warns of each."""
        return []


def _is_schedule(number: Any) -> bool:
    return callable(number) and not hasattr(number, "step")  # as a dynamics has


class LowerState(NamedTuple):
    """The lower-level start that was given, and the last lower-level iterate.

    Example:
        >>> import bvfim
        >>> bvfim.methods.LowerState(start=0.0, y=1.0).y
        1.0
    """

    start: Tree
    y: Tree


class LowerSolver(Estimator):
    """What the explicit and implicit methods share: T steps of a dynamics on the lower level."""

    steps: int
    lr: FloatOrSchedule
    dynamics: Dynamics | None
    start: str

    def __post_init__(self) -> None:
        require_count(self, "steps")
        require(self, "lr", above=0)
        require_start(self, self.start, ("warm", "restart"))
        require_dynamics(self, self.dynamics)

    @property
    def inner_steps(self) -> int:
        """T."""
        return self.steps

    def init(self, problem: Problem, x: Tree, y: Tree) -> LowerState:
        """Both entries are y."""
        return LowerState(y, y)

    def start_of(self, state: LowerState) -> Tree:
        """y_0 of the next lower solve."""
        return state.y if self.start == "warm" else state.start

    def dynamics_at(self, k: int) -> Dynamics:
        """Phi at upper step k."""
        return self.dynamics if self.dynamics is not None else GradientDescent(value(self.lr, k, "lr"))

    def solve_lower(self, at: At, state: LowerState, k: int) -> Tree:
        """y_T, without derivatives."""
        return descend(at, lambda at, y: at.lower_grad(y)[1], self.start_of(state), self.steps, self.dynamics_at(k))


def require_dynamics(owner: object, dynamics: Any) -> None:
    """Refuse what is no dynamics."""
    if dynamics is not None and not hasattr(dynamics, "step"):
        raise MethodError(f"{type(owner).__name__}: dynamics must be one of bvfim.dynamics, not {dynamics!r}")


def require_start(owner: object, start: str, allowed: tuple[str, ...]) -> None:
    """Refuse a ``start`` that the method does not know."""
    if start not in allowed:
        raise MethodError(f"{type(owner).__name__}: start must be one of {', '.join(allowed)}, not {start!r}")
