"""Betty (PyPI ``betty-ml`` 0.1.1): two problems and an engine that steps them in turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import ParameterDict

from bvfim.reproduce.bench.peers.base import Budget, Loop, Renew, whole
from bvfim.reproduce.experiments import cleaning


class _Loop:
    """An engine whose run is T lower steps and the upper step that follows them."""

    def __init__(self, engine: Any, upper: Any, y: ParameterDict) -> None:
        self.engine, self.upper = engine, upper
        self.x: Tensor = upper.module["x"]
        self.y = dict(y.items())

    def step(self) -> Tensor:
        self.engine.run()
        return self.upper.gradient


def loops(
    task: cleaning.Task, budget: Budget, renew: Renew = whole, optimizer: Any = torch.optim.SGD
) -> dict[str, Callable[[], Loop]]:
    """Builders of Betty's loops on a task, by name.

    All three are implicit, at the y_T of the lower steps, with Betty's own defaults beyond the budget. CG takes J steps
    and Neumann J terms at the lower step size; finite differences put the identity for the inverse of the Hessian.
    As of 0.1.1, CG makes its next direction of the last residual but one, and finite differences leave y where their
    second evaluation was: neither is mended here.

    Args:
        task: the problem and its start.
        budget: T, J and the step sizes.
        renew: draws a new batch for every step of either level, where Betty asks for one.
        optimizer: the class that takes the lower steps.

    Raises:
        ImportError: if Betty is not installed.
    """
    configs = import_module("betty.configs")
    build = partial(_build, task, budget, renew, optimizer, configs)
    methods = {
        "Betty CG": configs.Config(type="cg", cg_iterations=budget.J, unroll_steps=budget.T),
        "Betty Neumann": configs.Config(
            type="neumann", neumann_iterations=budget.J, neumann_alpha=budget.lr, unroll_steps=budget.T
        ),
        "Betty finite differences": configs.Config(type="darts", unroll_steps=budget.T),
    }
    return {name: partial(build, config) for name, config in methods.items()}


def _build(task: cleaning.Task, budget: Budget, renew: Renew, optimizer: Any, configs: Any, config: Any) -> Loop:
    base = import_module("betty.problems").ImplicitProblem
    import_module("betty.logging").get_logger().setLevel(logging.WARNING)  # it prints the problems otherwise

    class Level(base):  # type: ignore[misc, valid-type]  # known only where the library is installed
        def get_batch(self) -> None:
            """The objectives hold their data, or what was drawn of them."""
            renew(self.name)

    class Upper(Level):
        def training_step(self, batch: None) -> Tensor:
            return task.problem.upper(self.module["x"], self.lower.module)

        def param_callback(self, parameters: list[Tensor]) -> None:
            """Called after Adam's step and before the gradient is dropped."""
            self.gradient = parameters[0].grad

    class Lower(Level):
        def training_step(self, batch: None) -> Tensor:
            return task.problem.lower(self.upper.module["x"], self.module)

    x = ParameterDict({"x": task.x.clone()})
    y = ParameterDict({key: t.clone() for key, t in task.y.items()})
    device = task.x.device
    upper = Upper(
        "upper",
        configs.Config(retain_graph=True),
        module=x,
        optimizer=torch.optim.Adam(x.parameters(), lr=budget.x_lr),
        device=device,
    )
    lower = Lower("lower", config, module=y, optimizer=optimizer(y.parameters(), lr=budget.lr), device=device)
    engine = import_module("betty.engine").Engine(
        problems=[upper, lower],
        config=configs.EngineConfig(train_iters=budget.T),
        dependencies={"u2l": {upper: [lower]}, "l2u": {lower: [upper]}},
    )
    return _Loop(engine, upper, y)
