"""higher (Grefenstette et al., 2019): reverse mode through the whole unrolled lower level."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor, nn

from bvfim.reproduce.bench.peers.base import Budget, Loop
from bvfim.reproduce.experiments import cleaning

Objective = Callable[[Tensor, dict[str, Tensor]], Tensor]


def loops(task: cleaning.Task, budget: Budget) -> dict[str, Callable[[], Loop]]:
    """A builder of a fresh loop for each way that higher offers.

    Args:
        task: the problem and its start.
        budget: T and the step sizes.

    Raises:
        ImportError: higher is not installed.
    """
    higher = import_module("higher")
    return {"higher unrolled": lambda: Unrolled(higher, task, budget)}


class Network(nn.Module):
    """The lower variable as a module, whose output is the value of an objective."""

    def __init__(self, y: dict[str, Tensor]) -> None:
        super().__init__()
        self.hidden = nn.Parameter(y["hidden"])
        self.weight = nn.Parameter(y["weight"])
        self.bias = nn.Parameter(y["bias"])

    def forward(self, objective: Objective, x: Tensor) -> Tensor:
        """F or f at x and the parameters."""
        return objective(x, {"hidden": self.hidden, "weight": self.weight, "bias": self.bias})


class Unrolled:
    """``innerloop_ctx`` around T steps of SGD, which keeps their graph; then autograd back to x."""

    def __init__(self, higher: ModuleType, task: cleaning.Task, budget: Budget) -> None:
        self.x = task.x.clone().requires_grad_()
        self._adam = torch.optim.Adam([self.x], lr=budget.x_lr)
        self._network = Network(task.y)
        self._sgd = torch.optim.SGD(self._network.parameters(), lr=budget.lr)
        self._higher, self._problem, self._steps = higher, task.problem, budget.T

    @property
    def y(self) -> dict[str, Tensor]:
        """The network."""
        return dict(self._network.named_parameters())

    def step(self) -> Tensor:
        """One upper step."""
        with self._higher.innerloop_ctx(self._network, self._sgd) as (network, sgd):
            for _ in range(self._steps):
                sgd.step(network(self._problem.lower, self.x))
            (gradient,) = torch.autograd.grad(network(self._problem.upper, self.x), self.x)
        # higher copies the parameters when it enters the context, so that these need not be copied here.
        for parameter, end in zip(self._network.parameters(), network.parameters(), strict=True):
            parameter.data = end.detach()
        self.x.grad = gradient
        self._adam.step()
        return gradient
