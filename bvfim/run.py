"""A run under way: all that a checkpoint holds."""

from __future__ import annotations

import math
import os
import re
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bvfim import checkpoint, tree
from bvfim.batches import Draws
from bvfim.problem import Problem
from bvfim.status import BvfimWarning, CheckpointError
from bvfim.tree import Tree


@dataclass
class Run:
    """A run under way: what callbacks see after each step, and what a checkpoint holds.

    Attributes:
        problem: the problem, with the evaluations so far.
        method: what runs.
        x: the upper variable after the last complete step.
        state: the method's state, likewise.
        k: how many steps were taken; steps: how many are asked for; k_before: how many were taken before a resume.
        rows: the history so far, a dict a step.
        complete: whether the last step was taken to its end, so that the run can be saved.
        estimate: what takes the estimates of a method that gives a hypergradient, plain or accelerated.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum())
        >>> def below(run: bvfim.Run) -> bool:
        ...     return run.row["upper"] < 0.9
        >>> start = torch.zeros(1)
        >>> solution = bvfim.solve(problem, start, start, bvfim.RHG(lr=0.1), callbacks=[below])
        >>> solution.status, solution.steps
        (<Status.STOPPED: 'stopped'>, 7)
    """

    problem: Problem
    method: Any
    x: Tree
    state: Any
    optimizer: torch.optim.Optimizer | None
    scheduler: Any
    draws: Draws
    steps: int
    k: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    k_before: int = 0
    seconds_before: float = 0.0
    started: float = field(default_factory=time.monotonic)
    complete: bool = True
    estimate: Any = None

    @property
    def row(self) -> dict[str, float]:
        """The last row of the history."""
        return self.rows[-1] if self.rows else {}

    @property
    def seconds(self) -> float:
        """How long the run took so far, earlier parts of a resumed run included."""
        return self.seconds_before + time.monotonic() - self.started

    @property
    def parameters(self) -> list[Tensor]:
        """The tensors that the optimiser moves in place."""
        groups = [] if self.optimizer is None else self.optimizer.param_groups
        return [p for group in groups for p in group["params"]]

    @property
    def _kinds(self) -> dict[str, str]:
        parts = {"method": self.method, "optimizer": self.optimizer, "scheduler": self.scheduler}
        return {name: type(part).__name__ for name, part in parts.items()}

    @property
    def _settings(self) -> str:
        """The method's settings in words; functions have no words of their own that last."""
        return re.sub(r"<function .*?>", "<function>", repr(self.method))

    def save(self, path: str | os.PathLike[str], keep: int = 1) -> None:
        """Write a checkpoint, atomically; ``keep`` files in all, with those before it."""
        checkpoint.write(
            path,
            {
                "kinds": self._kinds,
                "settings": self._settings,
                "k": self.k,
                "seconds": self.seconds,
                "x": tree.leaves(self.x),
                "state": tree.leaves(self.state),
                "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
                "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
                "draws": self.draws.state_dict(),
                "evaluations": self.problem.evaluations.as_dict(),
                "rows": _columns(self.rows),
                "random": checkpoint.random_state(),
            },
            keep,
        )

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint of the same problem and method; from one kept before it where it is damaged."""
        path, saved = checkpoint.newest(path, stacklevel=4)
        try:
            self._take_over(saved, path)
        except CheckpointError:
            raise
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise CheckpointError(f"{path}: the checkpoint belongs to another run ({error})") from error

    def _take_over(self, saved: dict[str, Any], path: str | os.PathLike[str]) -> None:
        for part, kind in self._kinds.items():
            if saved["kinds"][part] != kind:
                raise CheckpointError(
                    f"{path}: the checkpoint belongs to another run: its {part} is {saved['kinds'][part]}, not {kind}"
                )
        if saved["settings"] != self._settings:
            warnings.warn(
                f"{path}: the checkpoint was made by {saved['settings']}, and goes on with {self._settings}",
                BvfimWarning,
                stacklevel=4,
            )
        checkpoint.check_like(saved["x"], tree.leaves(self.x), "x", path)
        checkpoint.check_like(saved["state"], tree.leaves(self.state), "lower-level state", path)
        device = tree.leaves(self.x)[0].device
        self.x = tree.unflatten(self.x, [t.to(device) for t in saved["x"]])
        self.state = tree.unflatten(self.state, [t.to(device) for t in saved["state"]])
        if self.optimizer is not None:
            self.reset_parameters()
            self.optimizer.load_state_dict(saved["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(saved["scheduler"])
        self.draws.load_state_dict(saved["draws"])
        for name, number in saved["evaluations"].items():
            setattr(self.problem.evaluations, name, number)
        self.k, self.rows = saved["k"], _rows(saved["rows"])
        self.k_before, self.seconds_before = saved["k"], saved["seconds"]
        checkpoint.restore_random_state(saved["random"])

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Put the optimiser's tensors back to x."""
        for p, value in zip(self.parameters, tree.leaves(self.x), strict=True):
            p.copy_(value)

    @torch.no_grad()
    def moved(self, gradient: Tree) -> Tree:
        """x after one step of the optimiser along the gradient, projected onto X."""
        assert self.optimizer is not None
        self.reset_parameters()
        for p, g in zip(self.parameters, tree.leaves(gradient), strict=True):
            p.grad = g
        self.optimizer.step()
        return tree.clone(self.problem.project_x(tree.unflatten(self.x, self.parameters)))

    def complete_step(self, x: Tree, state: Any) -> None:
        """Take over what a step found, and move the learning rate on."""
        self.x, self.state, self.k = x, state, self.k + 1
        if isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(self.row["upper"])
        elif self.scheduler is not None:
            self.scheduler.step()
        self.complete = True


def _columns(rows: list[dict[str, float]]) -> dict[str, Tensor]:
    """The history as one tensor a column; NaN where a row lacks it."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name, math.nan) for row in rows] for name in names}
    return {
        name: torch.tensor(column, dtype=torch.int64 if all(isinstance(v, int) for v in column) else torch.float64)
        for name, column in columns.items()
    }


def _rows(columns: dict[str, Tensor]) -> list[dict[str, float]]:
    lists = {name: column.tolist() for name, column in columns.items()}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
