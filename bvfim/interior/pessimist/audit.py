"""What is looked at once every start has ended: whether a worse answer was missed, and whether F jumps beside x."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.batch import BatchAt
from bvfim.interior.lbfgs import unit
from bvfim.interior.lower import Interior
from bvfim.interior.pessimist.ascent import Settings, values_many
from bvfim.interior.pessimist.leaders import NOT_ATTAINED, Leaders
from bvfim.interior.pessimist.response import Response, followed, verified
from bvfim.interior.pessimist.stages import POLISHED
from bvfim.interior.probing import hollows
from bvfim.interior.starts import SOLVED, STUCK, UNBOUNDED, UNDER_WAY

ROUNDS = 3
"""How often the audit searches for answers that were missed."""
AGREE = 10
"""Estimates of F agree if they differ by this many tolerances."""
REOPEN = 1e-3
"""A start whose F was too low, or that sees a lower one, goes on once, with a mu2 of this share of the range of f."""
BESIDE = (1e-3, 2e-2, -1e-3, -2e-2)
"""Where F is looked at beside x, along the gradient of phi, in units."""
FARTHER = (1.0, -1.0, 5.0, -5.0)
"""And farther off, in a random direction: where F is lower there, x goes on from there."""
HALVINGS, LEFT = 6, 0.5
"""A rise of F is a jump if this share of it is left when the way is halved so many times; of a slope, 1/64 would be."""
EDGE, LEAST_RANGE = 0.05, 0.1
"""A jump counts from this share of the size of F: |F| at x or beside it, up to the range of F over samples of y, and at
least the second share of that range."""
CHECK_DRAW = 100
"""The number of the first draw of the audit, beyond those of a stage."""


class Judged(NamedTuple):
    """What an audit finds for each start."""

    known: Response
    y: Tensor
    F: Tensor
    f: Tensor
    local: Tensor
    """What a difference of F is measured by at x."""
    around: Around


class Around(NamedTuple):
    """What is seen around x: how far F jumps, its highest value close by, the x of the lowest, the response there."""

    edge: Tensor
    highest: Tensor
    x: Tensor
    response: Response


def audited(interior: Interior, leaders: Leaders, tolerance: float) -> Leaders:
    """How each start that has come to its last mu2 ends.

    One whose F was too low, or that sees a lower F around it, goes on from there, once.
    """
    rows = (leaders.ended == SOLVED).nonzero()[:, 0]
    if len(rows) == 0:
        return leaders
    own = leaders.take(rows)
    found = _looked_at(interior, leaders, rows)
    allowed = AGREE * tolerance * found.local
    missed = own.upper + allowed < found.F
    lower = found.F - allowed > found.around.response.F
    apart = ((found.known.F - found.F).abs() > allowed) | ((own.upper - own.trail_F[:, -2]).abs() > allowed)
    ended = torch.where(apart | missed | lower, STUCK, SOLVED)
    ended = torch.where((found.around.edge > EDGE * found.local) & ~lower, NOT_ATTAINED, ended)
    far = torch.cat([own.x, found.y], 1).abs().amax(1) > tol.FAR * own.reach
    ended = torch.where(far, UNBOUNDED, ended)
    again = ~far & (missed | lower) & ~own.reopened
    moving = (lower & again).nonzero()[:, 0]
    x = own.x.index_copy(0, moving, found.around.x[moving])
    known = found.known.put(moving, found.around.response.take(moving))
    mu2 = torch.where(again, torch.maximum(own.mu2, REOPEN * own.spread), own.mu2)
    part = own._replace(
        x=x, **known._asdict(), y=found.y, upper=found.F, lower=found.f, relaxed=found.known.F, edge=found.around.edge,
        local=found.local, ended=torch.where(again, UNDER_WAY, ended), reopened=own.reopened | again, mu2=mu2,
        tau=own.tau * (mu2 / own.mu2), gap=(found.f - found.known.lowest).clamp_min(0),
    )  # fmt: skip
    return leaders.put(rows, part)._replace(counts=interior.batch.counts)


def _looked_at(interior: Interior, leaders: Leaders, rows: Tensor) -> Judged:
    """The worst answers at the x of some starts, from what all starts have found, scouts, and a grid of a small y."""
    own = leaders.take(rows)
    settings = Settings(own.mu2, own.tau, interior.fineness(own.mu2, own.spread))
    at = interior.batch.at(own.x, rows)
    of_y = interior.batch.y
    points = torch.cat([of_y.plain(leaders.y), of_y.plain(leaders.response.z)])
    more = at.of_y.measured(points.expand(len(rows), -1, -1))
    if of_y.size <= len(tol.GRID):
        more = torch.cat([more, hollows(at, at.of_y.grid(own.y, tol.GRID[of_y.size - 1]))], 1)
    limit = torch.full_like(own.mu2, torch.inf)
    known = followed(interior, at, own.response, settings, limit)
    for i in range(ROUNDS):
        known = verified(interior, at, known, settings, CHECK_DRAW + i, limit, more if i == 0 else None)
    y, f, _ = interior.descend(at, known.y, POLISHED * settings.fine)
    F = at.upper(y)
    sampled, _ = values_many(at, interior.around(rows, y, CHECK_DRAW + ROUNDS))
    sampled = torch.where(sampled.isfinite(), sampled, torch.nan)
    spread = sampled.nanquantile(0.9, 1) - sampled.nanquantile(0.1, 1)
    around = _around(interior, at, own, known, settings)
    size = torch.maximum(F.abs(), torch.minimum(around.highest.abs(), spread))
    return Judged(known, y, F, f, torch.maximum(size, LEAST_RANGE * spread), around)


def _around(interior: Interior, at: BatchAt, own: Leaders, known: Response, settings: Settings) -> Around:
    """F of the worst answers a little beside x, along the gradient of phi, and farther off."""
    weight = settings.tau / known.slack(settings.mu2)
    of_F, of_f = (interior.split(g)[0] for g in at.barrier_grads(known.y, known.z, weight))
    reduced = at.of_x.free(own.x, of_F - of_f)(of_F - of_f)
    signs = 2 * interior.uniform(at.members, CHECK_DRAW, 1, reduced.shape[1])[:, 0].to(reduced) - 1
    limit = torch.full_like(own.mu2, torch.inf)

    def response(x: Tensor) -> Response:
        """The response at another x."""
        there = interior.batch.at(x, at.members)
        found = followed(interior, there, known, settings, limit)
        return verified(interior, there, found, settings, CHECK_DRAW, limit)

    beside = [at.of_x.project(own.x - step * unit(reduced) * reduced) for step in BESIDE]
    x, lowest, top, highest = own.x, known, own.x, known.F
    for other in beside + [at.of_x.project(own.x - step * unit(signs) * signs) for step in FARTHER]:
        found = response(other)
        better = (found.F < lowest.F).nonzero()[:, 0]
        x, lowest = x.index_copy(0, better, other[better]), lowest.put(better, found.take(better))
        if any(other is one for one in beside):
            higher = highest < found.F
            top, highest = torch.where(higher[:, None], other, top), torch.where(higher, found.F, highest)
    edge = _left(response, own.x, known.F, top, highest)
    return Around(torch.where(edge >= LEFT * (highest - known.F), edge, 0.0), highest, x, lowest)


def _left(response: Callable[[Tensor], Response], x: Tensor, F: Tensor, top: Tensor, highest: Tensor) -> Tensor:
    """What is left of a rise of F from x to ``top`` when the way is halved again and again, towards the larger rise."""
    for _ in range(HALVINGS):
        middle = (x + top) / 2
        found = response(middle).F
        steep = found - F > highest - found
        x, F = torch.where(steep[:, None], x, middle), torch.where(steep, F, found)
        top, highest = torch.where(steep[:, None], middle, top), torch.where(steep, found, highest)
    return highest - F
