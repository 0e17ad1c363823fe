"""What a loop of another library must offer to be timed beside ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from torch import Tensor

from bvfim.core.problem import Problem
from bvfim.reproduce.experiments import cleaning

Renew: TypeAlias = Callable[[str], None]
"""Called with "upper" or "lower" before a gradient of F or f that is to see a new batch."""


@dataclass(frozen=True)
class Budget:
    """The same budget for every library.

    Args:
        T: lower gradient steps in an upper step.
        J: steps of a linear solver, or terms of a series.
        lr: the lower step.
        x_lr: of Adam, which moves x.
    """

    T: int = 100
    J: int = 20
    lr: float = 0.01
    x_lr: float = 0.01


class Loop(Protocol):
    """A run under way in some library."""

    x: Tensor
    """The upper variable."""

    @property
    def y(self) -> dict[str, Tensor]:
        """The lower variable, the network."""
        ...

    def step(self) -> Tensor:
        """One upper step: T lower steps from where the last ended, the hypergradient, an Adam step on x.

        Returns:
            The hypergradient that moved x.
        """
        ...


def whole(level: str) -> None:
    """The :data:`Renew` of objectives that hold all of their data: nothing is drawn."""


class OnBatches:
    """A task on batches for libraries whose objectives take (x, y) alone: F and f see the batches drawn last.

    Args:
        task: the problem and its start.
        size: the rows of a batch.

    Attributes:
        task: the same task with these objectives.
    """

    def __init__(self, task: cleaning.Task, size: int) -> None:
        problem, batches = cleaning.on_batches(task, size)
        self._streams = {"upper": batches.upper, "lower": batches.lower}
        self._drawn = {level: next(stream) for level, stream in self._streams.items()}

        def upper(x: Tensor, y: dict[str, Tensor]) -> Tensor:
            return problem.upper(x, y, self._drawn["upper"])

        def lower(x: Tensor, y: dict[str, Tensor]) -> Tensor:
            return problem.lower(x, y, self._drawn["lower"])

        self.task = replace(task, problem=Problem(upper, lower))

    def renew(self, level: str) -> None:
        """Draw the next batch of F ("upper") or of f ("lower")."""
        self._drawn[level] = next(self._streams[level])
