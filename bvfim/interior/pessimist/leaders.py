"""All starts of a pessimistic run between two stages."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from bvfim.interior.pessimist.response import Response

NOT_ATTAINED = 7
"""A state of a start, beside those of :mod:`bvfim.interior.starts`."""
TRAIL = 12
"""The number of last stages of which x and F are kept."""


class Leaders(NamedTuple):
    """All starts between two stages; every field has a row or an entry for each. x and y are in units."""

    unit: Tensor
    """Of the entries of w = (x, y)."""
    x: Tensor
    x_steps: Tensor
    x_changes: Tensor
    """The L-BFGS memory of x."""
    branches: Tensor
    f: Tensor
    answers: Tensor
    cost: Tensor
    F: Tensor
    f_y: Tensor
    """The response at x."""
    mu2: Tensor
    tau: Tensor
    spread: Tensor
    """The range of f over samples: what mu2 is measured by."""
    size: Tensor
    """The range and size of F: what a fall of phi is measured by."""
    local: Tensor
    """The same at x, as the audit finds it: what a difference of F is measured by."""
    reach: Tensor
    """The size of w at the start."""
    ended: Tensor
    y: Tensor
    """The bottom of the lower-level basin of the worst answer."""
    upper: Tensor
    lower: Tensor
    """F and f there."""
    relaxed: Tensor
    """F at the worst answer within the slack."""
    value: Tensor
    grad_norm: Tensor
    stationarity: Tensor
    slack: Tensor
    gap: Tensor
    reopened: Tensor
    """Whether the start has gone on after an audit."""
    edge: Tensor
    """By how much the worst F jumps beside x."""
    trail_x: Tensor
    trail_F: Tensor
    """x without units and F at the ends of the last stages, the newest last; not a number where there was none."""
    counts: Tensor
    """Gradients of F, gradients of f, values."""

    @property
    def response(self) -> Response:
        """The response at x."""
        return Response(self.branches, self.f, self.answers, self.cost, self.F, self.f_y)

    def take(self, rows: Tensor) -> Leaders:
        """Some of the starts."""
        return Leaders(*(field[rows] for field in self))

    def put(self, rows: Tensor, part: Leaders) -> Leaders:
        """These starts with some replaced."""
        return Leaders(*(field.index_copy(0, rows, new.to(field)) for field, new in zip(self, part, strict=True)))
