"""Never worse than what was seen: the best lower-level solution that a start has met, and what becomes of it."""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.batch import BatchAt
from bvfim.interior.judging import Judgement
from bvfim.interior.lower import Interior
from bvfim.interior.probing import probe
from bvfim.interior.schedule import weakest_ratio
from bvfim.interior.starts import BROKEN, STUCK, UNDER_WAY, Known, Seen, Starts

SHARES = {Seen.START: tol.MEET, Seen.LATE: tol.SEEN, Seen.ANSWER: tol.SEEN}
"""By how many tolerances F has to be lower at what was seen."""


def with_answer(interior: Interior, members: Tensor, starts: Starts, w: Tensor, z: Tensor) -> Starts:
    """Note the first x with the z there: while mu2 is large w may go where F has no slope left that leads back."""
    x, _ = interior.split(w)
    F = interior.batch.at(x, members).upper(z)
    return starts.noticed(Seen.ANSWER, torch.cat([x, z], -1), F, torch.ones_like(starts.reopened))


def never_worse(
    interior: Interior,
    members: Tensor,
    starts: Starts,
    at: BatchAt,
    z: Tensor,
    verdict: Judgement,
    size: Tensor,
    tolerance: float,
) -> Starts:
    """Note the points of a stage, and look again at the best of all where the start has ended with a higher F.

    (x, z), where the stage ended, is a lower-level solution, as far as is known; so is a y that probes found to be as
    low. A start that ends above its best point goes on from there, once; if that ends no lower, the best point itself
    is the answer, and is not claimed to be stationary. Before, f is minimised again at its x: the point may not have
    been a solution.
    """
    allowed = tolerance * starts.scale
    late = starts.mu2 <= tol.LATE * allowed
    if bool(late.any()):
        starts = starts.noticed(Seen.LATE, torch.cat([at.x, z], -1), at.upper(z), late)
        starts = starts.noticed(Seen.LATE, torch.cat([verdict.x, verdict.tied], -1), verdict.tied_F, late)
    shares = torch.tensor([SHARES[slot] for slot in Seen], dtype=size.dtype, device=size.device)
    least = tolerance * size[:, None] * shares
    for _ in Seen:  # the next best where the best does not hold
        ended = (starts.ended != UNDER_WAY) & (starts.ended != BROKEN)
        lower = ended[:, None] & (starts.seen_F < starts.shown[:, None] - least)
        best, slot = torch.where(lower, starts.seen_F, torch.inf).min(1)
        rows = best.isfinite().nonzero()[:, 0]
        if len(rows) == 0:
            break
        at_least = least[rows, slot[rows]]
        part = _looked_at(interior, members[rows], starts.take(rows), slot[rows], at_least, tolerance)
        starts = starts.put(rows, part)
    return starts


def _looked_at(
    interior: Interior, members: Tensor, starts: Starts, slot: Tensor, least: Tensor, tolerance: float
) -> Starts:
    """Starts that ended above a point they have seen: on from there if it holds what it promised."""
    everyone = torch.arange(len(slot), device=slot.device)
    x, y = interior.split(starts.seen[everyone, slot])
    at = interior.batch.at(x, members)
    allowed = tolerance * starts.scale
    y, f, _ = interior.descend(at, y, tol.BEST * allowed)
    F = at.upper(y)
    probed = probe(interior, at, Known(y, f, F, f), allowed)
    found = Known(y, f, F, f).improved(probed.z, probed.f_z)
    holds = (found.gap <= allowed) & (starts.shown - least > F)
    w = torch.cat([x, y], -1)
    mu2 = found.gap + tol.REOPEN * allowed
    ratio = weakest_ratio(interior, at, y[:, None], found.z, starts.tau / starts.mu2)
    blank = torch.zeros_like(starts.w_steps)
    seen_F = starts.seen_F.clone()
    seen_F[everyone[~holds], slot[~holds]] = torch.inf
    starts, rows = starts._replace(seen_F=seen_F), holds.nonzero()[:, 0]
    again = starts._replace(
        w=w, w_steps=blank, w_changes=blank, z=found.z, mu2=mu2, tau=tol.WEAK_PULL * mu2 * ratio,
        gap=torch.full_like(mu2, torch.inf), last_eps=torch.full_like(mu2, torch.inf), slack=mu2 - found.gap,
        stalled=torch.zeros_like(mu2),
        ended=torch.where(starts.reopened, STUCK, UNDER_WAY).to(starts.ended),
        lower=f, relaxed=F, upper=F, modes=starts.modes | probed.modes, reopened=torch.ones_like(starts.reopened),
    )  # fmt: skip
    return starts.put(rows, again.take(rows))
