"""The regularisers: where mu2 and tau begin, and how they tighten from stage to stage."""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.barrier import first_order_change
from bvfim.interior.batch import BatchAt
from bvfim.interior.curvature import Curvature
from bvfim.interior.lbfgs import Memory, dot
from bvfim.interior.lower import Interior, best_of
from bvfim.interior.starts import UNBOUNDED, UNDER_WAY, Starts


def begin(interior: Interior, w: Tensor) -> Starts:
    """mu2 above the range of sampled f, and tau such that the barrier's pull is weak against that of F."""
    members = torch.arange(len(w), device=w.device)
    x, y = interior.split(w)
    at = interior.batch.at(x, members)
    candidates = torch.cat([y[:, None], interior.around(members, y, 0)], 1)
    _, z, lowest, sampled = best_of(at, candidates)
    high = torch.where(sampled.isfinite(), sampled, torch.nan).nanquantile(tol.HIGH_SHARE, 1)
    spread = (high - lowest).clamp_min(tol.NO_RANGE * high.abs()).clamp_min(tol.NOTHING)
    of_z, of_w = Memory.empty(y), Memory.empty(w)
    z, f_z, _ = interior.descend(at, z, tol.FIRST_DESCENT * spread, of_z)
    fallen = f_z < lowest - tol.BOTTOMLESS * torch.maximum(spread, high.abs())
    spread = torch.where(fallen, spread, torch.maximum(spread, high - f_z))
    f = at.lower(y)
    mu2 = torch.maximum(tol.LOOSE_GAP * (f - f_z), tol.LOOSE_RANGE * spread)
    F, of_F = at.upper_grad(y)
    tau = tol.WEAK_PULL * mu2 * weakest_ratio(interior, at, candidates[:, : tol.PULL_POINTS], z, F.abs() / spread)
    blank = torch.zeros_like(mu2)
    bend = dot(of_F, of_F).sqrt() / (1 + dot(w, w).sqrt())
    curvature = Curvature.unknown(x, y, bend, interior.batch.counts)
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
        seen=torch.stack([w, w], 1), seen_F=torch.full_like(blank, torch.inf)[:, None].repeat(1, 2),
        reopened=blank.bool(),
        counts=interior.batch.counts,
    )  # fmt: skip
    return begun.noticed(0, w, F, f - f_z <= tol.BOTTOM * spread)


def weakest_ratio(interior: Interior, at: BatchAt, points: Tensor, z: Tensor, otherwise: Tensor) -> Tensor:
    """The least ratio of F's gradient to f's over some points and the blocks x and y: one point may be stationary."""
    found = []
    for y in points.unbind(1):
        parts = map(interior.split, at.barrier_grads(y, z, torch.ones_like(otherwise)))
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
