"""All starts between two stages, and what is known of a point."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

UNDER_WAY, SOLVED, STUCK, OPEN, UNBOUNDED, BROKEN = range(6)
"""The states of a start."""


class Starts(NamedTuple):
    """All starts between two stages; every field has a row or an entry for each."""

    w: Tensor
    w_steps: Tensor
    w_changes: Tensor
    """The L-BFGS memory of w."""
    z: Tensor
    z_steps: Tensor
    z_changes: Tensor
    """The L-BFGS memory of z."""
    archive: Tensor
    """Lower points that once were the best."""
    mu2: Tensor
    tau: Tensor
    gap: Tensor
    slack: Tensor
    stalled: Tensor
    ended: Tensor
    spread: Tensor
    """The range of f over samples at the start: what the first mu2 is measured by."""
    scale: Tensor
    """How much f varies over near samples: what a gap is measured by."""
    size: Tensor
    """The largest size of F so far."""
    reach: Tensor
    """The size of w at the start."""
    lower: Tensor
    relaxed: Tensor
    """F inside the barrier, at most the optimum nearby."""
    upper: Tensor
    """F at the polished y, at least the optimum nearby."""
    value: Tensor
    grad_norm: Tensor
    stationarity: Tensor
    """The free gradient of B against the gradient of F."""
    modes: Tensor
    """Whether f(x, .) was seen to have a second minimum."""
    counts: Tensor
    """Gradients of F, gradients of f, values."""

    def take(self, rows: Tensor) -> Starts:
        """Some of the starts."""
        return Starts(*(field[rows] for field in self))

    def put(self, rows: Tensor, part: Starts) -> Starts:
        """These starts with some replaced."""
        return Starts(*(field.index_copy(0, rows, new.to(field)) for field, new in zip(self, part, strict=True)))


class Known(NamedTuple):
    """What is known of each start's point w: z, f(x, z), F and f."""

    z: Tensor
    f_z: Tensor
    F: Tensor
    f: Tensor

    @property
    def gap(self) -> Tensor:
        """f(x, y) - f(x, z)."""
        return self.f - self.f_z

    def take(self, rows: Tensor) -> Known:
        """Some of the starts."""
        return Known(*(t[rows] for t in self))

    def put(self, rows: Tensor, part: Known) -> Known:
        """These with some replaced."""
        if len(rows) == len(self.f):  # rows rise, so that these are all of them
            return part
        return Known(*(t.index_copy(0, rows, new) for t, new in zip(self, part, strict=True)))

    def improved(self, z: Tensor, f_z: Tensor) -> Known:
        """With z where it is lower."""
        better = f_z < self.f_z
        return self._replace(z=torch.where(better[:, None], z, self.z), f_z=torch.where(better, f_z, self.f_z))
