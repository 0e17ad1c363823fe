"""Where further starts of a problem with constraints begin: feasible points with a low F, apart from one another.

Where the lower-level solution jumps, valleys of F over x part early, and a loose first mu2 lets y leave the one that it
is in. So every other start is taken from a pool: y solves the lower level there, and its first mu2 lets F gain only a
little of what F varies by over the pool.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.core.augmented import violation
from bvfim.interior import tolerances as tol
from bvfim.interior.feasible import reach
from bvfim.interior.lbfgs import Memory
from bvfim.interior.lower import Interior
from bvfim.interior.multipliers import settled
from bvfim.interior.schedule import sampled

SIZE = 24
"""The number of random points that a pool begins with."""
POOL_DRAW = 1_010
"""The number of the draw of its points, beyond those of stages and probes."""
NEARLY = 0.03
"""Points that violate a constraint by more than this share of the size of w are left out."""
APART = 0.2
"""The least distance of points that are taken, as a share of the region's width in x; halved where none is left."""


class Pool(NamedTuple):
    """The points that are taken, and how far the median of F over the pool lies above its least."""

    w: Tensor
    varies: Tensor


def pool(interior: Interior, around: Tensor, count: int) -> Pool | None:
    """The best few of random points; None where the lower level has no solution at any of them."""
    low, high = interior.w.region(around)
    numbers = interior.uniform(torch.arange(SIZE), POOL_DRAW, 1, around.shape[1])[:, 0].to(around)
    w = interior.w.project(low + (high - low) * numbers)
    w, at, _, z, _, _, spread = sampled(interior, w)
    x, size = interior.split(w)[0], reach(w)
    memory = Memory.empty(z)
    z, f_z, _ = interior.descend(at, z, tol.FIRST_DESCENT * spread, memory)
    z, _ = settled(interior, at, z, f_z, spread, memory, size)
    left = violation(at.distances(z), interior.layout.equal).amax(1)
    F = at.bare.upper(z)
    F = torch.where((left <= NEARLY * size) & F.isfinite(), F, torch.inf)
    good = F.isfinite()
    if not bool(good.any()):
        return None
    low, high = at.of_x.region(x)
    chosen = _apart(F, x / (high - low)[:1].clamp_min(tol.NOTHING), count)
    varies = F[good].median() - F[good].min()
    return Pool(interior.w.plain(torch.cat([x, z], -1))[chosen], varies)


def _apart(F: Tensor, x: Tensor, count: int) -> list[int]:
    """The lowest F first, then the lowest that is far enough from those; fewer where there are fewer points."""
    order = [i for i in F.argsort().tolist() if F[i].isfinite()]
    taken, distance = [order[0]], APART
    while len(taken) < min(count, len(order)):
        left = [i for i in order if i not in taken]
        far = [i for i in left if float((x[taken] - x[i]).abs().amax(1).min()) >= distance]
        taken, distance = (taken + far[:1], distance) if far else (taken, distance / 2)
        if distance < tol.NOTHING:
            taken = taken + left[:1]
    return taken
