"""A run in progress: everything that a checkpoint holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

from bvfim import checkpoint
from bvfim.core.batches import Draws
from bvfim.core.problem import Problem
from bvfim.core.stepper import Stepper
from bvfim.methods import Chosen
from bvfim.tree import Tree


class Run(Stepper):
    """A run in progress: what callbacks see after each step, and what a checkpoint holds.

    It is a :class:`bvfim.Stepper` that draws its own batches and has a fixed number of steps to take.

    Attributes:
        problem: the problem, with the evaluations so far.
        method: the method.
        x: the upper variable after the last complete step.
        state: the method's state, likewise.
        k: the number of steps taken; steps: the number requested; k_before: the number taken before a resume.
        rows: the history so far, one dict per step.
        complete: whether the last step was completed, so that the run can be saved.

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

    def __init__(
        self, problem: Problem, x: Tree, y: Tree, method: Chosen, steps: int, batches: Any, **options: Any
    ) -> None:
        self.draws = Draws(batches, method.turns)
        first = self.draws.draw()
        super().__init__(problem, x, y, method, **options, steps=steps, batch=first, check=True)
        self.steps = steps
        self._pending = [first]

    def draw(self) -> Any:
        """The next batch; the first was already drawn to check the problem."""
        return self._pending.pop() if self._pending else self.draws.draw()

    def save(self, path: str | os.PathLike[str], keep: int = 1) -> None:
        """Write a checkpoint atomically; ``keep`` is the number of files to keep, including its predecessors."""
        drawn = {"draws": self.draws.state_dict(), "random": checkpoint.random_state()}
        checkpoint.write(path, {**self.state_dict(), **drawn}, keep)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint of the same problem and method, or from an earlier one if it is damaged."""
        path, saved = checkpoint.newest(path)
        self.load_state_dict(saved, str(path))

    def _take_over(self, saved: dict[str, Any], source: str) -> None:
        super()._take_over(saved, source)
        self.draws.load_state_dict(saved["draws"])
        self._pending.clear()
        checkpoint.restore_random_state(saved["random"])


Callback: TypeAlias = Callable[[Run], bool | None]
"""Called after each step; returning True stops the run. An optional ``finish(run)`` is called at the end."""
