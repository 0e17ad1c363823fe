"""What the points of all starts say of the lower level at one of them."""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.interior.feasible import lowest_feasible, reach
from bvfim.interior.lower import Interior
from bvfim.interior.multipliers import allowed_of
from bvfim.interior.starts import Starts


def gaps(interior: Interior, starts: Starts, rows: Tensor) -> Tensor:
    """f at the y of some starts, less the lowest f at their x over every y, z and older minimum of all starts.

    With constraints, those points are pulled in to where they hold, and f is without their terms; not a number where
    none of them gets there.
    """
    x, y = interior.split(starts.w)
    of_y = interior.batch.y
    plain = [of_y.plain(y), of_y.plain(starts.z), of_y.plain(starts.archive).flatten(0, 1)]
    at = interior.batch.at(x[rows], rows)
    points = at.of_y.measured(torch.cat(plain).expand(len(rows), -1, -1))
    if interior.constrained and interior.layout.lower:
        w = starts.w[rows]
        lowest = lowest_feasible(interior, at, points, allowed_of(w) * reach(w))
        return at.bare.lower(y[rows]) - torch.where(lowest.isfinite(), lowest, torch.nan)
    found = at.lower_many(points)
    return at.lower(y[rows]) - torch.where(found.isfinite(), found, torch.inf).amin(1)
