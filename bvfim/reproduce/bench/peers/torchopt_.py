"""TorchOpt (Ren et al., 2023): reverse mode through the unrolled lower level, and implicit differentiation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from bvfim.reproduce.bench.peers.base import Budget, Loop, Renew, whole
from bvfim.reproduce.experiments import cleaning


def loops(task: cleaning.Task, budget: Budget, renew: Renew = whole) -> dict[str, Callable[[], Loop]]:
    """A builder of a fresh loop for each way that TorchOpt offers.

    Args:
        task: the problem and its start.
        budget: T, J and the step sizes.
        renew: draws a new batch for every lower step and for F; products of second order see the last one of f.

    Raises:
        ImportError: TorchOpt is not installed.
    """
    torchopt = import_module("torchopt")
    # Its default rtol would let CG end before J steps.
    cg = torchopt.linear_solve.solve_cg(maxiter=budget.J, rtol=0.0)
    series = torchopt.linear_solve.solve_inv(ns=True, maxiter=budget.J, alpha=budget.lr)
    return {
        "TorchOpt unrolled": lambda: Unrolled(torchopt, task, budget, renew),
        "TorchOpt CG": lambda: Implicit(torchopt, task, budget, cg, renew),
        "TorchOpt Neumann": lambda: Implicit(torchopt, task, budget, series, renew),
    }


class _Loop:
    """x with its Adam, and y as the tuple of tensors that TorchOpt works on."""

    def __init__(self, task: cleaning.Task, budget: Budget, y: tuple[Tensor, ...]) -> None:
        self.x = task.x.clone().requires_grad_()
        self._adam = torch.optim.Adam([self.x], lr=budget.x_lr)
        self._keys, self._problem, self._y = list(task.y), task.problem, y

    @property
    def y(self) -> dict[str, Tensor]:
        """The network."""
        return self._named(self._y)

    def _named(self, y: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return dict(zip(self._keys, y, strict=True))

    def _move(self, gradient: Tensor) -> Tensor:
        self.x.grad = gradient
        self._adam.step()
        return gradient


class Unrolled(_Loop):
    """T steps of the functional SGD, which keeps their graph; then autograd back to x.

    ``MetaSGD`` on a module does the same; the functional form was the faster one.
    """

    def __init__(self, torchopt: ModuleType, task: cleaning.Task, budget: Budget, renew: Renew = whole) -> None:
        super().__init__(task, budget, tuple(t.detach().requires_grad_() for t in task.y.values()))
        self._sgd, self._steps = torchopt.FuncOptimizer(torchopt.sgd(lr=budget.lr)), budget.T
        self._renew = renew

    def step(self) -> Tensor:
        """One upper step."""
        y = self._y
        for _ in range(self._steps):
            self._renew("lower")
            y = self._sgd.step(self._problem.lower(self.x, self._named(y)), y)
        self._renew("upper")
        (gradient,) = torch.autograd.grad(self._problem.upper(self.x, self._named(y)), self.x)
        self._y = tuple(t.detach().requires_grad_() for t in y)
        return self._move(gradient)


class Implicit(_Loop):
    """T steps of the functional SGD in place, and ``custom_root`` around them for the gradient in x.

    Args:
        torchopt: the library.
        task: the problem and its start.
        budget: T and the step sizes.
        solve: one of TorchOpt's linear solvers.
        renew: draws a new batch.
    """

    def __init__(
        self, torchopt: ModuleType, task: cleaning.Task, budget: Budget, solve: Any, renew: Renew = whole
    ) -> None:
        super().__init__(task, budget, tuple(t.clone().requires_grad_() for t in task.y.values()))
        sgd = torchopt.sgd(lr=budget.lr)

        def lower(y: tuple[Tensor, ...], x: Tensor) -> Tensor:
            return task.problem.lower(x, self._named(y))

        @torchopt.diff.implicit.custom_root(torch.func.grad(lower), argnums=1, solve=solve)
        def descend(y: tuple[Tensor, ...], x: Tensor) -> tuple[Tensor, ...]:
            state = sgd.init(y)
            with torch.enable_grad():
                for _ in range(budget.T):
                    renew("lower")
                    updates, state = sgd.update(torch.autograd.grad(lower(y, x), y), state, inplace=True)
                    torchopt.apply_updates(y, updates, inplace=True)
            return y

        self._descend, self._renew = descend, renew

    def step(self) -> Tensor:
        """One upper step; y is moved in place, and so is where the next one begins."""
        y = self._descend(self._y, self.x)
        self._renew("upper")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "We've integrated functorch", FutureWarning)
            (gradient,) = torch.autograd.grad(self._problem.upper(self.x, self._named(y)), self.x)
        return self._move(gradient)
