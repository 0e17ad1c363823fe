"""Turns an estimator into a method: a torch optimiser moves x along its hypergradients."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeGuard

import torch
from torch import Tensor, optim
from torch.optim.lr_scheduler import ReduceLROnPlateau

from bvfim import tree
from bvfim.core.accelerate import Estimate
from bvfim.core.arguments import accepts, check_function
from bvfim.core.problem import Problem
from bvfim.methods import Estimator, Method
from bvfim.methods.base import Data, OptimizerFactory, S, SchedulerFactory, Step
from bvfim.methods.stochastic import pace
from bvfim.sets import SetTree, entrywise
from bvfim.status import MethodError, Status, warn
from bvfim.tree import Tree

Scheduler: TypeAlias = torch.optim.lr_scheduler.LRScheduler
LEARNING_RATE = 0.01
"""The learning rate of Adam, the default optimiser of x, as in the paper."""
SCALED = (
    optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, optim.Adamax, optim.Adagrad, optim.Adadelta, optim.RMSprop,
    optim.Rprop, optim.SparseAdam, optim.Adafactor,
)  # fmt: skip
"""Optimisers that scale the entries of a gradient apart from each other."""


class Part(Protocol):
    """An optimiser or a scheduler: something with a state that can be saved."""

    def state_dict(self) -> dict[str, Any]:
        """What to save."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from there."""
        ...


class Optimised(Method[S]):
    """A method whose variables are moved by torch optimisers, which belong to the run and to its checkpoints."""

    @property
    @abstractmethod
    def parts(self) -> dict[str, Part | None]:
        """The optimisers and schedulers, by the names they are saved under; None for one that is not there."""

    @abstractmethod
    def load(self, x: Tree, state: S, saved: dict[str, Any]) -> None:
        """Continue from saved parts, at x and this state."""

    def _load_parts(self, saved: dict[str, Any]) -> None:
        for name, part in self.parts.items():
            if part is not None and saved[name] is not None:
                part.load_state_dict(copy.deepcopy(saved[name]))  # torch would go on in the saved tensors themselves


class Following(Optimised[S]):
    r"""x follows the estimates g of the hypergradient: :math:`x \leftarrow P_X(\mathrm{optimizer}(x, g))`.

    Args:
        estimator: computes g.
        x: the initial upper variable; the optimiser gets copies of its tensors.
        optimizer: maps these tensors to a torch optimiser; Adam with learning rate 0.01 by default, which suits boxes.
        scheduler: maps the optimiser to a learning-rate scheduler, stepped once per step.
        tol: x is stationary if the norm of its projected gradient is at most this; None for never.
        estimate: how estimates are computed, plain or accelerated.
    """

    def __init__(
        self,
        estimator: Estimator[S],
        x: Tree,
        optimizer: OptimizerFactory | None,
        scheduler: SchedulerFactory | None,
        tol: float | None,
        estimate: Estimate,
    ) -> None:
        self.estimator, self.tol, self.estimate = estimator, tol, estimate
        self.parameters = [t.detach().clone().requires_grad_() for t in tree.leaves(x)]
        self.optimizer = made(optimizer or adam, self.parameters)
        self.scheduler = None if scheduler is None else scheduled(scheduler, self.optimizer)
        self.stationary = False

    def init(self, problem: Problem, x: Tree, y: Tree) -> S:
        """The estimator's state."""
        return self.estimator.init(problem, x, y)

    def step(self, problem: Problem, x: Tree, state: S, k: int, data: Data) -> Step[S]:
        """One step of x along an estimate, unless x is stationary already."""
        found = self.estimate(problem, x, state, k, data)
        gradient, state, info = checked_estimate(found, x, self.estimator)
        info = {**info, "grad_norm": problem.world.norm(gradient)}
        if self.tol is not None:
            info["stationarity"] = problem.world.norm(tree.sub(x, problem.project_x(tree.sub(x, gradient))))
            self.stationary = bool(info["stationarity"] <= self.tol) and not bool(info.get("breakdown", 0))
        x = x if self.stationary else self._moved(problem, x, gradient)
        if self.scheduler is not None:
            advance(self.scheduler, info["upper"])
        return x, state, info

    def status(self, state: S) -> Status | None:
        """Converged where x is stationary within tol."""
        return Status.CONVERGED if self.stationary else None

    @torch.no_grad()
    def _moved(self, problem: Problem, x: Tree, gradient: Tree) -> Tree:
        return tree.clone(self._projected(problem, stepped(self.optimizer, self.parameters, x, gradient)))

    def _projected(self, problem: Problem, x: Tree) -> Tree:
        return problem.project_x(x)

    @property
    def parts(self) -> dict[str, Part | None]:
        """The optimiser and the scheduler."""
        return {"optimizer": self.optimizer, "scheduler": self.scheduler}

    @torch.no_grad()
    def load(self, x: Tree, state: S, saved: dict[str, Any]) -> None:
        """Continue from saved states of the optimiser and the scheduler, at x."""
        for p, value in zip(self.parameters, tree.leaves(x), strict=True):
            p.copy_(value)
        self.stationary = False
        self._load_parts(saved)


def checked_estimate(found: Step[S], x: Tree, estimator: Estimator[S]) -> Step[S]:
    """What an estimator returned, which may be a user's own: a gradient shaped like x, the next state, a report."""
    name = f"{type(estimator).__name__}.estimate"
    if not isinstance(found, tuple) or len(found) != 3 or not isinstance(found[2], Mapping):
        raise MethodError(f"{name} must return a gradient, the next state and a dict of what to report")
    shapes = [[getattr(t, "shape", None) for t in tree.leaves(a)] for a in (found[0], x)]
    if shapes[0] != shapes[1] or not tree.same_structure(found[0], x):
        raise MethodError(f"{name} must return a gradient shaped like x")
    return found


@torch.no_grad()
def stepped(optimizer: torch.optim.Optimizer, parameters: list[Tensor], variable: Tree, gradient: Tree) -> Tree:
    """The variable after a step of the optimiser of these parameters, which are what is returned."""
    for p, value, g in zip(parameters, tree.leaves(variable), tree.leaves(gradient), strict=True):
        p.copy_(value)  # which a callback may have moved, and the projection has
        p.grad = g
    optimizer.step()
    return tree.unflatten(variable, parameters)


def watches(scheduler: Scheduler) -> TypeGuard[ReduceLROnPlateau]:
    """Whether a scheduler looks at a value: it waits for a plateau."""
    return isinstance(scheduler, ReduceLROnPlateau)


def advance(scheduler: Scheduler, value: Tensor | float) -> None:
    """One step of a scheduler; one that waits for a plateau looks at the value."""
    if watches(scheduler):
        scheduler.step(float(value))
    else:
        scheduler.step()


def adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
    """The default optimiser of x along hypergradients."""
    return torch.optim.Adam(parameters, lr=LEARNING_RATE)


def caution(optimizer: optim.Optimizer, own: SetTree, name: str) -> None:
    """Warn of an optimiser that is at odds with the projection onto a set.

    Where a diagonal D scales the gradient, the iterates rest where :math:`x = P(x - D g)`. On a box that is the
    first-order condition, whatever D > 0; on other sets it is so only for multiples of the identity.

    Args:
        optimizer: what moves the variable.
        own: its set.
        name: what the user knows the set by.
    """
    if isinstance(optimizer, SCALED) and not entrywise(own):
        warn(
            f"{name}: {type(optimizer).__name__} scales each entry by itself, so with a set that is no box it comes to "
            "rest away from the optimum; take bvfim.OneScale or torch.optim.SGD"
        )


def cosine(steps: int, power: int = 1, share: Callable[[], float] = lambda: 1.0) -> SchedulerFactory:
    """Steps that follow half a cosine down to zero, or a power of it, and stay there, times the share of the moment."""

    def factor(k: int) -> float:
        return share() * pace(k, steps) ** power

    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def scheduled(scheduler: SchedulerFactory, optimizer: torch.optim.Optimizer) -> Scheduler:
    """The scheduler of an optimiser, with an error for anything that is none."""
    check_function(scheduler, "scheduler", 1, "a function from an optimiser to its scheduler")
    found = scheduler(optimizer)
    if not callable(getattr(found, "step", None)):
        raise MethodError(f"scheduler must return a learning-rate scheduler, not a {type(found).__name__}")
    return found


def made(optimizer: OptimizerFactory, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """The optimiser of these tensors, with an error for anything that is none or can't be used here."""
    if isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer) and not accepts(optimizer, 1):
        name = optimizer.__name__
        raise MethodError(f"optimizer={name}: the class has no default step; pass lambda p: {name}(p, lr=0.01)")
    check_function(optimizer, "optimizer", 1, "a function from tensors to a torch optimiser")
    made = optimizer(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise MethodError(
            f"optimizer must be a function from tensors to a torch optimiser, but returned a {type(made).__name__}"
        )
    if isinstance(made, torch.optim.LBFGS):
        raise MethodError("LBFGS evaluates the objective several times per step, which hypergradients do not allow")
    if [id(p) for group in made.param_groups for p in group["params"]] != [id(p) for p in parameters]:
        raise MethodError("optimizer must optimise exactly the tensors it is given, in the given order")
    return made
