"""The part shared by methods that differentiate F(x, y_T(x)) in reverse mode."""

from __future__ import annotations

from typing import ClassVar

from bvfim.core.evaluator import At
from bvfim.core.unroll import Direction, reverse
from bvfim.methods.base import LowerSolver, LowerState, Step
from bvfim.schedules import require_count


class Explicit(LowerSolver):
    """Reverse mode through the last steps of a lower trajectory."""

    capturable: ClassVar[bool] = True
    segment: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "segment")

    def differentiate(self, at: At, state: LowerState, k: int, direction: Direction, keep: int) -> Step[LowerState]:
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
