"""The regularisers: where mu2 and tau begin, and how they tighten from stage to stage."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.core.augmented import none_for
from bvfim.interior import tolerances as tol
from bvfim.interior.batch import BatchAt
from bvfim.interior.curvature import Curvature
from bvfim.interior.feasible import all_pulled_in, prepared, reach, weighed
from bvfim.interior.lbfgs import Memory, dot
from bvfim.interior.lower import Interior, best_of, first_order_change
from bvfim.interior.multipliers import settled
from bvfim.interior.starts import UNBOUNDED, UNDER_WAY, Seen, Starts


class Sampled(NamedTuple):
    """Starts after a first look at f: where they are, some points y, the best of them, its f, the range of f."""

    w: Tensor
    at: BatchAt
    points: Tensor
    z: Tensor
    lowest: Tensor
    high: Tensor
    spread: Tensor


def sampled(interior: Interior, w: Tensor) -> Sampled:
    """Samples of f around each start; with constraints, at points where they hold."""
    members = torch.arange(len(w), device=w.device)
    if interior.constrained:
        w = prepared(interior, members, w)
    x, y = interior.split(w)
    at = interior.batch.at(x, members)
    points, least = torch.cat([y[:, None], interior.around(members, y, 0)], 1), torch.zeros(len(w))
    if interior.constrained:
        points = all_pulled_in(interior, at, points)
        least = weighed(interior, at, w, points[:, : tol.PULL_POINTS])
    _, z, lowest, values = best_of(at, points)
    high = torch.where(values.isfinite(), values, torch.nan).nanquantile(tol.HIGH_SHARE, 1)
    spread = (high - lowest).clamp_min(tol.NO_RANGE * high.abs()).clamp_min(tol.NOTHING)
    return Sampled(w, at, points, z, lowest, high, torch.maximum(spread, least.to(spread)))


def begin(interior: Interior, w: Tensor, varies: Tensor) -> Starts:
    """mu2 above the range of sampled f, and tau such that the barrier's pull is weak against that of F.

    Where it is known how F ``varies`` over other points, which else is infinite, y begins at the lower-level solution
    and mu2 is tight: F may gain little.
    """
    w, at, candidates, z, lowest, high, spread = sampled(interior, w)
    x, y = interior.split(w)
    of_z, of_w = Memory.empty(y), Memory.empty(w)
    z, f_z, _ = interior.descend(at, z, tol.FIRST_DESCENT * spread, of_z)
    fallen = f_z < lowest - tol.BOTTOMLESS * torch.maximum(spread, high.abs())
    spread = torch.where(fallen, spread, torch.maximum(spread, high - f_z))
    tight = varies.isfinite().nonzero()[:, 0]
    if len(tight):
        own, memory = at.take(tight), of_z.take(tight)
        better, f_better = settled(interior, own, z[tight], f_z[tight], spread[tight], memory, reach(w[tight]))
        z, f_z = z.index_copy(0, tight, better), f_z.index_copy(0, tight, f_better)
        y = y.index_copy(0, tight, better)
        w = torch.cat([x, y], -1)
    f = at.lower(y)
    mu2 = torch.maximum(tol.LOOSE_GAP * (f - f_z), tol.LOOSE_RANGE * spread)
    if len(tight):
        mu2 = mu2.index_copy(0, tight, tight_mu2(at.take(tight), y[tight], f[tight], spread[tight], varies[tight]))
    F, of_F = at.upper_grad(y)
    tau = tol.WEAK_PULL * mu2 * weakest_ratio(interior, at, candidates[:, : tol.PULL_POINTS], z, F.abs() / spread)
    blank = torch.zeros_like(mu2)
    bend = dot(of_F, of_F).sqrt() / (1 + dot(w, w).sqrt())
    curvature = Curvature.unknown(x, y, bend, interior.batch.counts, interior.constrained)
    begun = Starts(
        unit=interior.unit, w=w, w_steps=of_w.steps, w_changes=of_w.changes,
        z=z, z_steps=of_z.steps, z_changes=of_z.changes, archive=z[:, None].repeat(1, tol.OLDER, 1), mu2=mu2, tau=tau,
        **curvature._asdict(),
        last_w=w, last_z=z, last_eps=torch.full_like(blank, torch.inf),
        gap=torch.full_like(blank, torch.inf), slack=mu2 - (f - f_z), stalled=blank,
        ended=torch.where(fallen, UNBOUNDED, UNDER_WAY), spread=spread, scale=spread,
        reach=1 + w.abs().amax(1).double(),
        size=F.abs() + first_order_change(interior, of_F, w), lower=f, relaxed=F, upper=F, value=F,
        grad_norm=blank, stationarity=torch.full_like(blank, torch.inf), modes=blank.bool(),
        seen=w[:, None].repeat(1, len(Seen), 1), seen_F=torch.full_like(blank, torch.inf)[:, None].repeat(1, len(Seen)),
        reopened=blank.bool(), **(interior.terms if interior.constrained else none_for(w))._asdict(), hard=blank,
        counts=interior.batch.counts,
    )  # fmt: skip
    return begun.noticed(Seen.START, w, F, f - f_z <= tol.BOTTOM * spread)


def tight_mu2(at: BatchAt, z: Tensor, f_z: Tensor, spread: Tensor, varies: Tensor) -> Tensor:
    """By how much f may rise over z such that F falls by no more than a share of what it varies by."""
    _, gradient = at.bare.upper_grad(z)
    of_y = gradient[:, -z.shape[1] :]
    step = tol.TIGHT_GAIN * varies / dot(of_y, of_y).clamp_min(tol.NOTHING)
    rise = (at.lower(at.of_y.project(z - step.to(z)[:, None] * of_y)) - f_z).abs()
    most = tol.TIGHT_GAIN * spread
    return torch.where(rise.isfinite() & (rise > 0), torch.minimum(rise, most), most)


def weakest_ratio(interior: Interior, at: BatchAt, points: Tensor, z: Tensor, otherwise: Tensor) -> Tensor:
    """The least ratio of F's gradient to f's over some points and the blocks x and y: one point may be stationary."""
    found = []
    for y in points.unbind(1):
        parts = map(interior.split, at.bare.barrier_grads(y, z, torch.ones_like(otherwise)))
        found += [(dot(a, a) / dot(b, b)).sqrt() for a, b in zip(*parts, strict=True)]
    ratios = torch.stack(found)
    least = torch.where((ratios > 0) & ratios.isfinite(), ratios, torch.inf).amin(0)
    return torch.where(least.isfinite(), least, otherwise.clamp_min(tol.SMALLEST))


def tighten(mu2: Tensor, tau: Tensor, gap: Tensor, slack: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """The next mu2, as small as keeps the point inside; and tau, such that the multiplier grows like mu2^(-1/2)."""
    tighter = torch.maximum(rate * mu2, gap + tol.INSIDE * slack)
    multiplier = tau / slack
    following = tol.MULTIPLIER_SHARE * multiplier * (mu2 * tighter).sqrt()
    return tighter, following.clamp(rate * tau, tol.FASTEST_GROWTH * tau)
