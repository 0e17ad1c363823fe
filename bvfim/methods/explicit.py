"""What the methods share that differentiate F(x, y_T(x)) in reverse mode."""

from __future__ import annotations

from typing import ClassVar

from bvfim.methods.base import Info, LowerSolver, LowerState
from bvfim.problem import At
from bvfim.schedules import require_count
from bvfim.tree import Tree
from bvfim.unroll import Direction, reverse


class Explicit(LowerSolver):
    """Reverse mode through the last steps of a lower trajectory."""

    capturable: ClassVar[bool] = True
    segment: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "segment")

    def differentiate(
        self, at: At, state: LowerState, k: int, direction: Direction, keep: int
    ) -> tuple[Tree, LowerState, Info]:
        """d F(x, y_T(x)) / d x through the last ``keep`` steps, the next state, and what to report."""
        y, F, gradient = reverse(
            at,
            direction,
            self.dynamics_at(k),
            self.start_of(state),
            steps=self.steps,
            keep=keep,
            segment=self.segment,
        )
        return at.pull(gradient), LowerState(state.start, y), {"upper": F, "lower": at.lower(y), "value": F}
