"""Several points a row that are worth remembering, the best first."""

from __future__ import annotations

import torch
from torch import Tensor

APART = 0.03
"""Points that differ by no more than this, in units, are the same. A box is about 14 units wide."""


def distinct(points: Tensor, among: Tensor) -> Tensor:
    """Which of some points (B, k, n) are apart from all of them that come before."""
    same = torch.cdist(points, points, p=torch.inf) <= APART
    return among & ~(same & among[:, None]).tril(-1).any(-1)


def ranked(points: Tensor, scores: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best distinct points, by rising score, their scores and which they are; free places have an infinite score.

    Free places hold copies of the best point.
    """
    order = scores.argsort(dim=1, stable=True)
    return first(points.gather(1, order[..., None].expand_as(points)), scores.gather(1, order), size, order)


def first(points: Tensor, scores: Tensor, size: int, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first distinct points with finite scores, as they come."""
    new = distinct(points, scores.isfinite())
    place = (~new).to(torch.uint8).argsort(dim=1, stable=True)[:, :size]
    valid = new.gather(1, place)
    place = torch.where(valid, place, place[:, :1])
    found = points.gather(1, place[..., None].expand(-1, -1, points.shape[2]))
    return found, torch.where(valid, scores.gather(1, place), torch.inf), order.gather(1, place)
