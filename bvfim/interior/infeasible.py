"""What becomes of a start whose constraints stay violated: what can't be met, or the nearest point where they hold."""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.batch import BatchAt
from bvfim.interior.feasible import local_sizes, pulled_in, reach, y_pulled_in
from bvfim.interior.lbfgs import Memory
from bvfim.interior.lower import Interior
from bvfim.interior.multipliers import allowed_of, away, settled
from bvfim.interior.starts import INFEASIBLE, OPEN, STUCK, UNDER_WAY, Starts

ROUNDS = 4
"""How often the search for the nearest point, and the lower level there, go on from where they ended."""


def given_up(interior: Interior, members: Tensor, starts: Starts, w: Tensor) -> Starts:
    """Starts at w whose constraints stay violated end where the violations are least, if they can't be lowered there.

    If they can, the constraints agree, and it is f that leads away from where they hold, or a multiplier that grows
    without bound: that may take longer, and ends at the nearest lower-level solution where all hold, if there is one.
    It is not claimed to be stationary.
    """
    hard = (starts.hard % tol.HARD == 0) & (starts.hard > 0) & (starts.ended == UNDER_WAY)
    rows = (hard | (starts.ended == INFEASIBLE)).nonzero()[:, 0]
    if len(rows) == 0:
        return starts
    last = (starts.hard[rows] >= tol.HOPELESS) | (starts.ended[rows] == INFEASIBLE)
    nearest = _nearest(interior, members[rows], w[rows])
    apart = ~_held(interior, members[rows], nearest)
    ended = torch.where(apart | last, INFEASIBLE, UNDER_WAY).to(starts.ended)
    at = torch.where(apart[:, None], nearest, torch.where(last[:, None], w[rows], starts.w[rows]))
    starts = starts._replace(w=starts.w.index_copy(0, rows, at), ended=starts.ended.index_copy(0, rows, ended))
    chance = (last & ~apart).nonzero()[:, 0]
    return starts if len(chance) == 0 else _solved(interior, members, starts, rows[chance], nearest[chance])


def _nearest(interior: Interior, members: Tensor, w: Tensor) -> Tensor:
    """Where all constraints hold, or nearly; near a cusp they change ever more slowly, and are measured anew."""
    terms = interior.terms.take(members)
    for _ in range(ROUNDS):
        interior.put_terms(members, local_sizes(interior, members, w, interior.terms.take(members)))
        w = pulled_in(interior, members, w)
    interior.put_terms(members, terms)
    return w


def _held(interior: Interior, members: Tensor, w: Tensor) -> Tensor:
    """Where all constraints hold, as well as is asked of what is called solved."""
    x, y = interior.split(w)
    return away(interior, interior.batch.at(x, members), y).amax(1) <= allowed_of(w)


def _solved(interior: Interior, members: Tensor, starts: Starts, rows: Tensor, w: Tensor) -> Starts:
    """With the lower level solved at x of w, and the start ended there if the constraints hold.

    Where its multipliers do not settle, it is not known to be solved.
    """
    x, y = interior.split(w)
    at = interior.batch.at(x, members[rows])
    memory, spread = Memory.empty(y), starts.spread[rows]
    z, f_z, _ = interior.descend(at, y, tol.ROUGH_Z * spread, memory)
    for _ in range(ROUNDS):
        z, f_z = settled(interior, at, z, f_z, spread, memory, reach(w))
    sound = _allowed(interior, at, z, w) & ((at.bare.lower(z) - f_z).abs() <= tol.TERMS_LEFT * spread)
    z = y_pulled_in(at, interior, z)
    lower = at.bare.lower(z) < at.bare.lower(y)
    y = torch.where((lower & _allowed(interior, at, z, w))[:, None], z, y)
    w = torch.cat([x, y], -1)
    F, f = at.bare.values(y)
    held = (_held(interior, members[rows], w) & F.isfinite()).nonzero()[:, 0]
    part = starts.take(rows[held])._replace(
        w=w[held], z=y[held], gap=torch.zeros_like(f[held]), lower=f[held], relaxed=F[held], upper=F[held],
        ended=torch.where(sound, STUCK, OPEN)[held],
    )  # fmt: skip
    return starts.put(rows[held], part)


def _allowed(interior: Interior, at: BatchAt, z: Tensor, w: Tensor) -> Tensor:
    """Where the constraints of the lower level hold at z."""
    left = away(interior, at, z)[:, : interior.layout.lower]
    return (left <= allowed_of(w)).all(1)
