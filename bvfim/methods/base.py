"""The interface of a method, and the parts shared by explicit and implicit methods."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast, get_args

import torch
from torch import Tensor

from bvfim.core.descent import descend
from bvfim.core.evaluator import At
from bvfim.core.problem import Problem
from bvfim.dynamics import Dynamics, GradientDescent
from bvfim.interior.certificate import Certificate
from bvfim.schedules import FloatOrSchedule, Schedule, require, require_count, value
from bvfim.status import MethodError, Status
from bvfim.tree import Tree

Info: TypeAlias = dict[str, Tensor]
"""Scalar tensors that a method reports for a step; they become columns of the history.

``upper`` and ``lower`` are F and f at the y at which the gradient was computed, ``value`` is the number
whose derivative in x the method claims to estimate.
"""


ENOUGH = 2000
"""The number of inner steps of a reference, if the method itself takes fewer."""


class Reference(NamedTuple):
    """The reference that :func:`bvfim.check_hypergradient` compares a method with.

    ``claim`` is the method without its approximations: the derivative of its ``value`` is what the method
    estimates. ``sound`` is the method with just enough approximations removed that its gradient must match finite
    differences of its own ``value``; usually the same. ``bias`` briefly names what was removed. If the approximate
    estimate is itself the exact derivative of another value, ``own`` is the method and state with this value: TRHG
    is the derivative of its last steps from the point where they begin.

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


class State(Protocol):
    """The state a method carries from step to step: a named tuple of trees with at least the last lower iterate.

    Example:
        >>> import bvfim
        >>> state: bvfim.methods.State = bvfim.methods.LowerState(start=0.0, y=1.0)
        >>> state.y
        1.0
    """

    @property
    def y(self) -> Tree:
        """The last lower-level iterate."""
        ...


S = TypeVar("S", bound=State)
"""The state of a method."""
Data: TypeAlias = Any
"""A batch from the user's stream, or None."""
OptimizerFactory: TypeAlias = Callable[[list[Tensor]], torch.optim.Optimizer]
"""Maps tensors to the torch optimiser that moves them."""
SchedulerFactory: TypeAlias = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
"""Maps an optimiser to its learning-rate scheduler."""
Step: TypeAlias = tuple[Tree, S, Info]
"""The result of an estimate: a gradient in x, the next state, and what to report."""
Taken: TypeAlias = tuple[Tree, S, Mapping[str, Tensor | float]]
"""The result of a step: the next x, the next state, and what to report."""


class Configured(ABC, Generic[S]):
    """What every method has: hyper-parameters in frozen fields, and a separate state."""

    constrained: ClassVar[bool] = False
    """Whether it takes problems with constraints, beyond sets."""
    followers: ClassVar[tuple[str, ...]] = ("optimistic",)
    """The followers that it solves for."""
    takes_batches: ClassVar[bool] = True
    """Whether a step may see a batch."""

    @abstractmethod
    def init(self, problem: Problem, x: Tree, y: Tree) -> S:
        """The state before the first step, from the initial lower variable y."""

    def multipliers(self, problem: Problem, x: Tree, state: S) -> dict[str, Tensor]:
        """Of the constraints at the end of a run, by the argument that states them; empty where none are known."""
        return {}

    def suited_to(self, problem: Problem) -> Any:
        """The method that takes the steps on this problem: itself, unless another one stands in for it there."""
        return self

    @property
    def inner_steps(self) -> int:
        """The maximum number of inner steps per upper step, for streams that draw a batch for each."""
        return 1

    @property
    def turns(self) -> int:
        """The number of inner steps with a draw of f of their own, where each can have one; values have one more."""
        return self.inner_steps

    def cautions(self, steps: int) -> list[str]:
        """Warnings about a run with this many steps; :func:`bvfim.solve` issues each of them."""
        return []

    def minimiser(self, state: S) -> Tree:
        """z, the lower-level minimiser in the state; y itself for most methods."""
        return state.y


class Method(Configured[S]):
    """A method that moves x itself, run by the loop of :func:`bvfim.solve`.

    Example:
        >>> import bvfim
        >>> isinstance(bvfim.AdaptiveBVFIM(), bvfim.methods.Method)
        True
    """

    takes_batches: ClassVar[bool] = False

    @abstractmethod
    def step(self, problem: Problem, x: Tree, state: S, k: int, data: Data) -> Taken[S]:
        """Step k: the next x, the next state, and what to report."""

    def status(self, state: S) -> Status | None:
        """How the run ended; None while it continues."""
        return None

    def certificate(self, problem: Problem, x: Tree, state: S) -> Certificate | None:
        """What was verified about the result, if the method verifies anything."""
        return None


class Estimator(Configured[S]):
    """A method that estimates the hypergradient; a torch optimiser moves x along it.

    A method is a frozen dataclass of its hyper-parameters. It carries a state from step to step, a named tuple of
    trees. See docs/adding-a-method.md.

    Example:
        >>> import bvfim
        >>> isinstance(bvfim.RHG(), bvfim.Estimator)
        True
    """

    capturable: ClassVar[bool] = False
    """Whether ``estimate`` depends on k only through schedules in the fields, and never synchronises with the host: an
    accelerated run may then record it once and replay it."""
    compilable: ClassVar[bool] = False
    """Whether it has inner steps to compile; methods that differentiate through theirs have none."""
    spreads: ClassVar[bool] = True
    """Whether several processes can run it together: not where derivatives are carried forward."""

    @abstractmethod
    def estimate(self, problem: Problem, x: Tree, state: S, k: int, data: Data) -> Step[S]:
        """An estimate of d phi / d x at upper step k, the next state, and what to report."""

    @property
    def memory(self) -> list[Tensor]:
        """Tensors that an estimate changes in place, besides what it returns: none."""
        return []

    def fed(self, numbers: dict[str, Tensor]) -> Estimator[S]:
        """The method with scalar tensors in the place of its schedules."""
        # Every method is a dataclass, which its class can't say.
        return dataclasses.replace(cast(Any, self), **numbers) if numbers else self

    def numbers(self, k: int) -> dict[str, float]:
        """The values at upper step k of the schedules, the fields of type ``FloatOrSchedule``.

        Other fields that are functions are not evaluated.
        """
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(cast(Any, self)) if _admits_schedule(f.type)}
        return {name: value(number, k, name) for name, number in own.items() if callable(number)}

    def reference(self, problem: Problem, x: Tree, state: S, k: int, data: Data) -> Reference:
        """What a check compares this method with: by default itself, as a method without approximations."""
        return Reference(self, self, "")


@dataclasses.dataclass(frozen=True)
class Settled(Estimator[S]):
    """The limit of a single loop at one x: what it estimates once its state has taken many steps there.

    Args:
        of: the single loop.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: (y**2).sum() / 2, lambda x, y: ((y - 2 * x) ** 2).sum())
        >>> x = torch.tensor([3.0], dtype=torch.float64)
        >>> bvfim.hypergradient(problem, x, 0 * x, bvfim.methods.Settled(bvfim.SOBA()))  # y* = 2x
        tensor([12.0000], dtype=torch.float64)
    """

    of: Estimator[S]

    def init(self, problem: Problem, x: Tree, y: Tree) -> S:
        """That of the loop."""
        return self.of.init(problem, x, y)

    def estimate(self, problem: Problem, x: Tree, state: S, k: int, data: Data) -> Step[S]:
        """The last of many estimates, all at x and step k."""
        state = self.of.init(problem, x, state.y)
        for _ in range(ENOUGH - 1):
            _, state, _ = self.of.estimate(problem, x, state, k, data)
        return self.of.estimate(problem, x, state, k, data)


def _admits_schedule(hint: Any) -> bool:
    """Whether a field of this type may hold a schedule; with postponed annotations a type is known by its text."""
    return "Schedule" in hint if isinstance(hint, str) else Schedule in (hint, *get_args(hint))


class LowerState(NamedTuple):
    """The given initial point of the lower level, and the last lower-level iterate.

    Example:
        >>> import bvfim
        >>> bvfim.methods.LowerState(start=0.0, y=1.0).y
        1.0
    """

    start: Tree
    y: Tree


class LowerSolver(Estimator[LowerState]):
    """The part shared by explicit and implicit methods: T steps of a dynamics on the lower level."""

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


def require_dynamics(owner: object, dynamics: object) -> None:
    """Reject anything that is not a dynamics object."""
    if dynamics is not None and (isinstance(dynamics, type) or not isinstance(dynamics, Dynamics)):
        raise MethodError(f"{type(owner).__name__}: dynamics must be an object from bvfim.dynamics, not {dynamics!r}")


def require_start(owner: object, start: str, allowed: tuple[str, ...]) -> None:
    """Reject a ``start`` that the method does not support."""
    if start not in allowed:
        raise MethodError(f"{type(owner).__name__}: start must be one of {', '.join(allowed)}, not {start!r}")
