"""One stage of the pessimistic solver for many starts at once: minimise phi over x, polish y, tighten mu2 and tau."""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.lbfgs import Memory, dot, minimise
from bvfim.interior.lower import Interior, best_of
from bvfim.interior.pessimist.ascent import Settings, values_many
from bvfim.interior.pessimist.leaders import TRAIL, Leaders
from bvfim.interior.pessimist.phi import Phi
from bvfim.interior.pessimist.response import ANSWERS, BRANCHES, Response, followed, verified
from bvfim.interior.starts import BROKEN, SOLVED, UNBOUNDED, UNDER_WAY

STEPS = 30
"""Steps of L-BFGS on phi in one stage."""
FIRST_TAU = 0.05
"""The first tau, as a share of the range of F over samples."""
TIGHT = 0.03
"""Every other start begins with this share of the mu2 of the others: it stays in its own valley of phi."""
END, LAST = 1e-6, 1e-9
"""The last mu2, as a share of the range of f. Where the optimum is not attained, x comes within about mu2 of where the
lower solution jumps: a smaller one hides that. Only where F still uses the slack does mu2 fall to the second share."""
USES, FAINT_SIZE = 1e-2, 1e-3
"""F uses the slack if it is higher there by this share of |F|, which counts as at least the second share of its range
over samples."""
MULTIPLIER_SHARE = 0.5
"""tau follows the multiplier found, at this share of it."""
POLISHED = 1e-3
"""y descends f to this share of mu2."""


def begin(interior: Interior, x: Tensor, y: Tensor, tight: Tensor) -> Leaders:
    """mu2 and tau from the ranges of f and F over samples, and a first response."""
    members = torch.arange(len(x), device=x.device)
    at = interior.batch.at(x, members)
    samples = torch.cat([y[:, None], interior.around(members, y, 0)], 1)
    F, f = values_many(at, samples)
    best = best_of(at, samples)
    spread = (_quantile(f, tol.HIGH_SHARE) - best.f).clamp_min(tol.NO_RANGE * best.f.abs()).clamp_min(tol.NOTHING)
    z, f_z, _ = interior.descend(at, best.y, tol.FIRST_DESCENT * spread)
    fallen = f_z < best.f - tol.BOTTOMLESS * torch.maximum(spread, best.f.abs())
    spread = torch.where(fallen, spread, torch.maximum(spread, _quantile(f, tol.HIGH_SHARE) - f_z))
    range_F = _quantile(F, 1.0) - torch.where(F.isfinite(), F, torch.inf).amin(1)
    size = (F[:, 0].abs() + range_F).clamp_min(tol.NOTHING)
    share = torch.where(tight, TIGHT, 1.0)
    mu2, tau = share * spread, share * FIRST_TAU * range_F.clamp_min(tol.FAINT * size)
    blank = torch.zeros_like(mu2)
    settings = Settings(mu2, tau, interior.fineness(mu2, spread))
    free = torch.full_like(blank, torch.inf)[:, None]
    first = Response(
        z[:, None].repeat(1, BRANCHES, 1), torch.cat([f_z[:, None], free.repeat(1, BRANCHES - 1)], 1),
        y[:, None].repeat(1, ANSWERS, 1), torch.cat([-F[:, :1], free.repeat(1, ANSWERS - 1)], 1), F[:, 0], f[:, 0],
    )  # fmt: skip
    found = verified(interior, at, first, settings, 1, blank + torch.inf)
    memory = Memory.empty(x)
    nan = torch.full_like(blank, torch.nan)
    return Leaders(
        unit=interior.unit, x=x, x_steps=memory.steps, x_changes=memory.changes, **found._asdict(),
        mu2=mu2, tau=tau, spread=spread, size=size, local=size, reach=1 + torch.cat([x, y], 1).abs().amax(1).double(),
        ended=torch.where(fallen, UNBOUNDED, UNDER_WAY), y=found.y, upper=found.F, lower=found.f_y, relaxed=found.F,
        value=found.phi, grad_norm=blank, stationarity=blank + torch.inf, slack=found.slack(mu2), gap=blank,
        edge=nan, reopened=blank.bool(), trail_x=x.new_full((len(x), TRAIL, x.shape[1]), torch.nan),
        trail_F=nan[:, None].repeat(1, TRAIL), counts=interior.batch.counts,
    )  # fmt: skip


def worth(F: Tensor, size: Tensor) -> Tensor:
    """What a difference of F is measured by: |F|, which does not count as much smaller than it can be."""
    return torch.maximum(F.abs(), FAINT_SIZE * size)


def _quantile(values: Tensor, share: float) -> Tensor:
    """A quantile of the finite values of each row."""
    return torch.where(values.isfinite(), values, torch.nan).nanquantile(share, 1)


def advance(interior: Interior, members: Tensor, leaders: Leaders, rate: float) -> Leaders:
    """Minimise phi for the present mu2 and tau, polish, tighten."""
    mu2, tau = leaders.mu2, leaders.tau
    settings = Settings(mu2, tau, interior.fineness(mu2, leaders.spread))
    at = interior.batch.at(leaders.x, members)
    no_limit = torch.full_like(mu2, torch.inf)
    known = followed(interior, at, leaders.response, settings, no_limit)
    known = verified(interior, at, known, settings, 0, no_limit)
    phi = Phi(interior, members, settings, leaders.x, known, worth(known.F, leaders.size))
    memory = Memory(leaders.x_steps.clone(), leaders.x_changes.clone())
    space = interior.batch.x.of(members)
    points, _ = minimise(phi, phi.points, space, memory, STEPS)
    known, at = phi.known, interior.batch.at(points.w, members)
    y, f, _ = interior.descend(at, known.y, POLISHED * settings.fine)
    F = at.upper(y)
    reduced = space.free(points.w, points.gradient)(points.gradient)
    slack, gap = known.slack(mu2), (known.f_y - known.lowest).clamp_min(0)
    size = torch.maximum(leaders.size, F.abs())
    x = interior.batch.x.of(members).plain(points.w)
    rounding = tol.ROUNDINGS * torch.finfo(points.w.dtype).eps * f.abs()
    least, tiniest = (torch.maximum(share * leaders.spread, rounding) for share in (END, LAST))
    late, last = mu2 <= least, mu2 <= tiniest
    settled = (known.F - F).abs() <= USES * worth(F, size)
    ended = torch.where(last | (late & settled), SOLVED, UNDER_WAY)
    far = torch.cat([points.w, known.y], 1).abs().amax(1) > tol.FAR * leaders.reach
    ended = torch.where(far, UNBOUNDED, ended)
    ended = torch.where(F.isfinite() & f.isfinite(), ended, BROKEN)
    tighter = torch.maximum(rate * mu2, torch.where(late, tiniest, least))
    tighter = torch.where(ended == UNDER_WAY, tighter, mu2)
    following = MULTIPLIER_SHARE * tau / slack.clamp_min(tol.LEAST_SLACK * mu2) * (mu2 * tighter).sqrt()
    plain = points.gradient / interior.split(leaders.unit)[0]
    return leaders._replace(
        x=points.w, x_steps=memory.steps, x_changes=memory.changes, **known._asdict(),
        mu2=tighter, tau=torch.minimum(torch.maximum(following, rate * tau), tau),
        size=size, ended=ended, y=y, upper=F, lower=f, relaxed=known.F, value=points.value,
        grad_norm=dot(plain, plain).sqrt(), stationarity=dot(reduced, reduced).sqrt() / phi.pull,
        slack=slack, gap=gap, trail_x=torch.cat([leaders.trail_x[:, 1:], x[:, None]], 1),
        trail_F=torch.cat([leaders.trail_F[:, 1:], F[:, None]], 1), counts=interior.batch.counts[members],
    )  # fmt: skip
