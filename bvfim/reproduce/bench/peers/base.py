"""What a loop of another library must offer to be timed beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


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
