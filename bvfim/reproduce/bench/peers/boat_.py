"""BOAT (PyPI ``boat-torch`` 1.1.1): a problem made of nested dictionaries and of losses named by their path."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from bvfim.reproduce.bench.peers.base import Budget, Loop, Renew, whole
from bvfim.reproduce.experiments import cleaning


class _Upper(Module):
    """x as a module."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.x = Parameter(x.clone())


class _Lower(Module):
    """y as a module that evaluates an objective, which is how ``higher`` puts other tensors for y."""

    def __init__(self, y: dict[str, Tensor]) -> None:
        super().__init__()
        self.names = tuple(y)
        for name, t in y.items():
            self.register_parameter(name, Parameter(t.clone()))

    def forward(self, objective: Callable[..., Tensor], x: Tensor) -> Tensor:
        return objective(x, {name: getattr(self, name) for name in self.names})


def loss(feed: dict[str, Any], upper: _Upper, lower: _Lower, **kwargs: Any) -> Tensor:
    """F or f, whichever was fed, in BOAT's signature, on a new batch; BOAT finds this function by its path."""
    feed["renew"](feed["level"])
    return lower(feed["objective"], upper.x, **kwargs)


class _Loop:
    def __init__(
        self, problem: Any, task: cleaning.Task, modules: tuple[_Upper, _Lower], optimizer: Any, renew: Renew
    ) -> None:
        self.problem, self.optimizer = problem, optimizer
        self.x: Tensor = modules[0].x
        self.y: dict[str, Tensor] = dict(modules[1].named_parameters())
        self.feeds = [
            {"objective": getattr(task.problem, level), "level": level, "renew": renew} for level in ("lower", "upper")
        ]
        self.count = 0

    def step(self) -> Tensor:
        (gradient,), _ = self.problem.run_iter(*self.feeds, self.count)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.count += 1
        return gradient


def loops(task: cleaning.Task, budget: Budget, renew: Renew = whole) -> dict[str, Callable[[], Loop]]:
    """Builders of BOAT's loops on a task, by name.

    RAD is reverse mode through T lower steps; CG (J steps) and NS (a Neumann series of J terms at the lower step size)
    are implicit at y_T. VSO is BVFIM as printed, with T/2 steps on z and T/4 on y, which cost as many gradients as T
    lower steps; y starts at z, takes its last step twice, and the regularisers are 1/(1 + k/100). BOAT evaluates both
    losses once more in every step for a log of its own; only the file can be switched off.

    Args:
        task: the problem and its start.
        budget: T, J and the step sizes.
        renew: draws a new batch for every value of a loss: for each lower step, but also for each side of VSO's gap.

    Raises:
        ImportError: if BOAT is not installed.
    """
    boat = import_module("boat_torch")
    methods: dict[str, dict[str, Any]] = {
        name: {"gm_op": ["NGD"], "na_op": [name], "lower_iters": budget.T} for name in ("RAD", "CG", "NS")
    }
    methods["VSO"] = {"fo_op": "VSO", "lower_iters": max(budget.T // 4, 1)}
    return {f"BOAT {name}": partial(_build, boat, task, budget, renew, method) for name, method in methods.items()}


def _build(boat: Any, task: cleaning.Task, budget: Budget, renew: Renew, method: dict[str, Any]) -> Loop:
    upper, lower = _Upper(task.x), _Lower(task.y)
    optimizer = torch.optim.Adam(upper.parameters(), lr=budget.x_lr)
    config = {
        "fo_op": None,
        "gm_op": None,
        "na_op": None,
        "lower_level_model": lower,
        "upper_level_model": upper,
        "lower_level_var": list(lower.parameters()),
        "upper_level_var": list(upper.parameters()),
        "lower_level_opt": torch.optim.SGD(lower.parameters(), lr=budget.lr),
        "upper_level_opt": optimizer,
        "device": task.x.device,
        "return_grad": True,
        "copy_last_param": True,
        "accumulate_grad": False,
        "fo_ol_batch_input": False,
        "loss_log_path": os.devnull,
        "GDA": {"alpha_init": 0.0, "alpha_decay": 1.0},
        "RGT": {"truncate_iter": 0},
        "CG": {"k": budget.J, "tolerance": 1e-10},
        "VSO": {
            "z_loop": max(budget.T // 2, 1),
            "z_lr": budget.lr,
            "ll_l2_reg": 0.5,
            "ul_l2_reg": 0.5,
            "ul_ln_reg": 1.0,
            "reg_decay": 0.01,
        },
        **method,
    }
    losses = {level: {"function": f"{__name__}.loss"} for level in ("lower_level_loss", "upper_level_loss")}
    problem = boat.Problem(config, losses)
    problem.build_ll_solver()
    problem.build_ul_solver()
    return _Loop(problem, task, (upper, lower), optimizer, renew)
