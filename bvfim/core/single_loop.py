"""Runs StochasticBVFIM: holds the torch optimisers of x, y and z, which move together on one draw per step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.following import Optimised, Part, advance, made, stepped
from bvfim.core.one_scale import OneScale
from bvfim.core.problem import Problem
from bvfim.core.range_test import scales
from bvfim.methods.base import Data, OptimizerFactory, SchedulerFactory, Step
from bvfim.methods.stochastic import (
    WAIT,
    WHOLE,
    StochasticBVFIM,
    StochasticState,
    pace,
)
from bvfim.tree import Tree

EPS = 1e-30
"""Of the default Adam: small enough that the scale of the objectives does not matter."""


class Moved:
    """One variable, and the optimiser and scheduler that move it."""

    def __init__(
        self, variable: Tree, optimizer: OptimizerFactory, scheduler: SchedulerFactory | None, steps: int
    ) -> None:
        self.parameters = [t.detach().clone().requires_grad_() for t in tree.leaves(variable)]
        self.optimizer = made(optimizer, self.parameters)
        self.scheduler = cosine(self.optimizer, steps) if scheduler is None else scheduler(self.optimizer)

    def step(self, at: Tree, gradient: Tree) -> Tree:
        """The variable after a step from where it is now."""
        return tree.clone(stepped(self.optimizer, self.parameters, at, gradient))


def cosine(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    """Steps that follow half a cosine down to zero, and stay there."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: pace(k, steps))


class SingleLoop(Optimised[StochasticState]):
    """The loop of :class:`bvfim.StochasticBVFIM`, with its equations.

    Args:
        method: the hyper-parameters.
        x: the initial upper variable.
        optimizer: of x; :class:`bvfim.OneScale` by default.
        scheduler: of x's optimiser; a cosine to zero by default.
        steps: the number of steps of the run.
    """

    def __init__(
        self,
        method: StochasticBVFIM,
        x: Tree,
        optimizer: OptimizerFactory | None,
        scheduler: SchedulerFactory | None,
        steps: int,
    ) -> None:
        self.method, self.steps = method, steps
        own = optimizer or (lambda parameters: OneScale(parameters, wait=math.ceil(WAIT * steps)))
        self.x = Moved(x, own, scheduler, steps)
        self.lower: list[Moved] = []  # of y and of z, after the first step: the range test needs a batch

    def init(self, problem: Problem, x: Tree, y: Tree) -> StochasticState:
        """The method's state."""
        return self.method.init(problem, x, y)

    def step(self, problem: Problem, x: Tree, state: StochasticState, k: int, data: Data) -> Step[StochasticState]:
        """z, y and x each take a step on one draw; with inner steps, z and y take several."""
        at, noisy = problem.at(x, data), data is not None
        y, z, tracking = state
        if not self.lower:
            found = scales(at, y)
            self._build(y, found.step)
            tracking = tracking._replace(scale=torch.full_like(tracking.scale, found.upper))
        of_y, of_z = self.lower
        a, b = (w.to(tree.leaves(y)[0].dtype) for w in tracking.weights())
        for t in range(max(self.method.inner_steps, 1 if noisy else WHOLE)):
            seen = at.turn(t).saddle_grad(y, z, a, b)
            y = problem.project_y(of_y.step(y, seen.in_y))
            z = problem.project_y(of_z.step(z, tree.scale(-1 / b, seen.in_z)))
        gradient = tree.scale(1 / a, seen.in_x)
        x = problem.project_x(self.x.step(x, gradient))
        tracking = tracking.followed(k, seen.lower, seen.lower_z, self.steps, noisy)
        info = {
            "upper": seen.upper,
            "lower": seen.lower,
            "value": seen.upper + b / a * (seen.lower - seen.lower_z),
            "gap": tracking.gap,
            "mu": tracking.mu(self.steps),
            "multiplier": b / a,
            "grad_norm": tree.norm(gradient),
        }
        for moved, value in ((self.x, seen.upper), (of_y, seen.lower), (of_z, seen.lower_z)):
            advance(moved.scheduler, value)
        return x, StochasticState(y, z, tracking), info

    def _build(self, y: Tree, step: float) -> None:
        """The optimisers of y and z, the default ones with this step."""

        def adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
            return torch.optim.Adam(parameters, lr=step, eps=EPS)

        how = self.method.y_optimizer or adam
        self.lower = [Moved(y, how, self.method.y_scheduler, self.steps) for _ in range(2)]

    # -- saving --

    @property
    def parts(self) -> dict[str, Part | None]:
        """Every optimiser and scheduler, by the name it is saved under."""
        found: dict[str, Part | None] = {}
        for ending, moved in zip(("", "_y", "_z"), (self.x, *(self.lower or (None, None))), strict=True):
            found["optimizer" + ending] = None if moved is None else moved.optimizer
            found["scheduler" + ending] = None if moved is None else moved.scheduler
        return found

    def load(self, x: Tree, state: StochasticState, saved: dict[str, Any]) -> None:
        """Continue from saved states; y and z have optimisers as soon as the run has taken a step."""
        if saved["optimizer_y"] is not None:
            self._build(state.y, 1.0)  # the step is in the saved state
        self._load_parts(saved)
