"""A run in progress: everything that a checkpoint holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

from bvfim import checkpoint, tree
from bvfim.core.batches import Draws
from bvfim.core.problem import Problem
from bvfim.core.stepper import Stepper
from bvfim.distributed.world import world_of
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

    draws: Draws
    drawn: Any = None
    """The last batch that was drawn."""

    def __init__(
        self, problem: Problem, x: Tree, y: Tree, method: Chosen, steps: int, batches: Any, **options: Any
    ) -> None:
        self._pending: list[Any] = []
        # Before there is a problem to be on several ranks: on one of them there may be nothing to draw.
        world_of(options.get("mesh"), x).together(lambda: self._begin_drawing(batches, method.turns))
        super().__init__(problem, x, y, method, **options, steps=steps, batch=self.drawn, check=True)

    def _begin_drawing(self, batches: Any, turns: int) -> None:
        self.draws = Draws(batches, turns)
        self.drawn = self.draws.draw()
        self._pending = [self.drawn]

    def draw(self) -> Any:
        """The next batch; the first was already drawn to check the problem."""
        self.drawn = self._pending.pop() if self._pending else self.draws.draw()
        return self.drawn

    def save(self, path: str | os.PathLike[str], keep: int = 1) -> None:
        """Write a checkpoint atomically, where there is a mesh on all ranks together.

        ``keep`` is the number of files to keep, including its predecessors. With a mesh the checkpoint is a folder, of
        which one is kept; it can be resumed on any number of processes.
        """
        content = self.world.together(self.state_dict)
        drawn = self.world.together(lambda: {"draws": self.draws.state_dict(), "random": checkpoint.random_state()})
        if self.world.group is None and not checkpoint.is_folder(path):
            checkpoint.write(path, {**content, **drawn}, keep)
            return
        from bvfim.distributed import saving  # which takes half a second to load

        saving.save(path, content, drawn, self.world, self._likes)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint of the same problem and method, or from an earlier one if it is damaged."""
        if self.world.group is None and not checkpoint.is_folder(path):
            source, saved = checkpoint.newest(path)
        else:
            from bvfim.distributed import saving

            source, saved = saving.load(path, self.world, self._likes)
        self.world.together(lambda: self.load_state_dict(saved, str(source)))

    @property
    def _likes(self) -> dict[str, list[Any]]:
        """For each part of the run that may lie on several ranks, tensors that say how."""
        x, z = tree.leaves(self.world.whole(self.x)), self.method.minimiser(self.state)
        lower = {"optimizer_y": tree.leaves((self.y, z)), "optimizer_z": tree.leaves(z)}
        return {"x": x, "optimizer": x, "state": tree.leaves(self.state), **lower}

    def _take_over(self, saved: dict[str, Any], source: str) -> None:
        super()._take_over(saved, source)
        self.draws.load_state_dict(saved["draws"])
        self._pending.clear()
        checkpoint.restore_random_state(saved["random"])


Callback: TypeAlias = Callable[[Run], bool | None]
"""Called after each step; returning True stops the run. An optional ``finish(run)`` is called at the end."""
