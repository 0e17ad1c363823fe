"""Where starts begin: far from each other, where a first look shows a low F."""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.interior.lower import Interior
from bvfim.interior.pessimist.stages import begin

SIZE = 5
"""The number of points that are looked at for each start."""
POOL_DRAW = 200
"""The number of the draw of these points, beyond those of stages and audits."""
FAR, NEARER = 0.2, 0.5
"""Chosen points are this far from each other, as a share of the region of x; where none is left, this much nearer."""


def pool(interior: Interior, w: Tensor) -> Tensor:
    """Points in units, as many as the interior has starts, around the first point or in its box; each with its worst y.

    Every other one is chosen for a low F, far from those before it, and the rest as they were drawn.
    """
    count = len(interior.unit)
    low, high = interior.w.region(w)
    numbers = interior.uniform(torch.zeros(1, dtype=torch.long), POOL_DRAW, count, w.shape[1])[0].to(w)
    x, y = interior.split(interior.w.project(low + (high - low) * numbers))
    found = begin(interior, x, y, torch.ones(count, dtype=torch.bool, device=w.device))
    width = interior.split(high - low)[0]
    order = _order(x / width, torch.where(found.F.isfinite(), found.F, torch.inf), count // SIZE)
    return torch.cat([x, found.answers[:, 0]], 1)[order]


def _order(x: Tensor, F: Tensor, count: int) -> Tensor:
    """The chosen rows."""
    gaps = (x[:, None] - x[None]).abs().amax(-1)
    taken: list[int] = []
    far = FAR
    while len(taken) < count:
        left = [i for i in F.argsort(stable=True).tolist() if i not in taken] if len(taken) % 2 == 0 else []
        best = next((i for i in left if all(gaps[i, j] >= far for j in taken)), None)
        if left and best is None:
            far *= NEARER
            continue
        taken.append(next(i for i in range(len(F)) if i not in taken) if best is None else best)
    return torch.tensor(taken, device=x.device)
