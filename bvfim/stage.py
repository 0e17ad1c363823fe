"""One stage of the interior point for many starts at once: enter, minimise the barrier, judge, tighten."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior import BARRIER_STEPS, Barrier, Interior, Seen, best_of, reach, remember
from bvfim.lbfgs import Memory, dot, minimise
from bvfim.rows import Rows

LAST_DRAW = 1_000
"""The number of the draw that judges a stage, beyond those of its steps."""
STALLED = 3
"""For how many stages in a row a gap may hold mu2 up before y jumps."""
NUDGE = 1e-3
"""By how much the first point is moved, relative to its size."""
PROBES = 4
"""How many descents look for a lower f before a start is called solved."""
FIRST_Z = 1e-2
"""How much finer the first z of a stage is: what it leaves open, every later one would close, and so feign progress."""
UNDER_WAY, SOLVED, STUCK, OPEN, UNBOUNDED, BROKEN = range(6)


class Starts(NamedTuple):
    """All starts between two stages; every field has a row or an entry for each."""

    w: Tensor
    w_steps: Tensor
    w_changes: Tensor
    """The L-BFGS memory of w."""
    z: Tensor
    z_steps: Tensor
    z_changes: Tensor
    """The L-BFGS memory of z."""
    archive: Tensor
    """Lower points that once were the best."""
    mu2: Tensor
    tau: Tensor
    gap: Tensor
    slack: Tensor
    stalled: Tensor
    ended: Tensor
    spread: Tensor
    """The range of f over samples at the start: what the first mu2 is measured by."""
    scale: Tensor
    """How much f varies over near samples: what a gap is measured by."""
    size: Tensor
    """The largest size of F so far."""
    reach: Tensor
    """The size of w at the start."""
    lower: Tensor
    relaxed: Tensor
    """F inside the barrier, at most the optimum nearby."""
    upper: Tensor
    """F at the polished y, at least the optimum nearby."""
    value: Tensor
    grad_norm: Tensor
    stationarity: Tensor
    """The free gradient of B against the gradient of F."""
    modes: Tensor
    """Whether f(x, .) was seen to have a second minimum."""
    counts: Tensor
    """Gradients of F, gradients of f, values."""

    def take(self, rows: Tensor) -> Starts:
        """Some of the starts."""
        return Starts(*(field[rows] for field in self))

    def put(self, rows: Tensor, part: Starts) -> Starts:
        """These starts with some replaced."""
        return Starts(*(field.index_copy(0, rows, new.to(field)) for field, new in zip(self, part, strict=True)))


def begin(interior: Interior, w: Tensor) -> Starts:
    """mu2 above the range of sampled f, and tau such that the barrier's pull is weak against that of F."""
    members = torch.arange(len(w), device=w.device)
    x, y = interior.split(w)
    at = interior.batch.at(x, members)
    candidates = torch.cat([y[:, None], interior.around(members, y, 0)], 1)
    _, z, lowest, sampled = best_of(at, candidates)
    high = torch.where(sampled.isfinite(), sampled, torch.nan).nanquantile(0.9, 1)
    spread = (high - lowest).clamp_min(1e-14 * high.abs()).clamp_min(1e-20)
    memory = Memory.empty(y)
    z, f_z, _ = interior.descend(at, z, 1e-3 * spread, memory)
    fallen = f_z < lowest - 1e8 * torch.maximum(spread, high.abs())
    spread = torch.where(fallen, spread, torch.maximum(spread, high - f_z))
    f = at.lower(y)
    mu2 = torch.maximum(1.5 * (f - f_z), 2 * spread)
    F, of_F = at.upper_grad(y)
    tau = 0.02 * mu2 * weakest_ratio(interior, at, candidates[:, :3], z, F.abs() / spread)
    blank, of_w = torch.zeros_like(mu2), Memory.empty(w)
    return Starts(
        w=w, w_steps=of_w.steps, w_changes=of_w.changes,
        z=z, z_steps=memory.steps, z_changes=memory.changes, archive=z[:, None].repeat(1, 2, 1), mu2=mu2, tau=tau,
        gap=torch.full_like(blank, torch.inf), slack=mu2 - (f - f_z), stalled=blank,
        ended=torch.where(fallen, UNBOUNDED, UNDER_WAY), spread=spread, scale=spread,
        reach=1 + w.abs().amax(1).double(),
        size=F.abs() + reach(interior, of_F, w), lower=f, relaxed=F, upper=F, value=F,
        grad_norm=blank, stationarity=torch.full_like(blank, torch.inf), modes=blank.bool(),
        counts=interior.batch.counts,
    )  # fmt: skip


def weakest_ratio(interior: Interior, at: Rows, points: Tensor, z: Tensor, otherwise: Tensor) -> Tensor:
    """The least ratio of F's gradient to f's over some points and the blocks x and y: one point may be stationary."""
    found = []
    for y in points.unbind(1):
        parts = map(interior.split, at.barrier_grad(y, z, torch.ones_like(otherwise)))
        found += [(dot(a, a) / dot(b, b)).sqrt() for a, b in zip(*parts, strict=True)]
    ratios = torch.stack(found)
    least = torch.where((ratios > 0) & ratios.isfinite(), ratios, torch.inf).amin(0)
    return torch.where(least.isfinite(), least, otherwise.clamp_min(1e-200))


def advance(interior: Interior, members: Tensor, at_start: Starts, tol: float, rate: float) -> Starts:
    """Minimise B for the present mu2 and tau, judge the end, tighten."""
    of_w = Memory(at_start.w_steps.clone(), at_start.w_changes.clone())
    of_z, archive = Memory(at_start.z_steps.clone(), at_start.z_changes.clone()), at_start.archive.clone()
    w, mu2 = at_start.w, at_start.mu2
    if interior.stage == 1:  # off a saddle, where no gradient would lead away
        nudge = interior.uniform(members, LAST_DRAW, 1, w.shape[1])[:, 0].to(w) - 0.5
        w = interior.w.project(w + NUDGE * (1 + w.abs()) * nudge)
    # An error e mu2 of f(x, z) makes one of about sqrt(e) in the gradient of B.
    z_tol = mu2 * (1e-3 * mu2 / at_start.spread).clamp(1e-8, 1e-3)
    w, seen, mu2, varies = enter(interior, members, w, at_start.z, mu2, z_tol, of_z, archive)
    # Once the start has come near; at the optimum itself f may not vary at all.
    finer = (varies > 0) & (varies < at_start.scale) & (interior.stage <= 5)
    scale = torch.where(finer, varies, at_start.scale)
    barrier = Barrier(interior, members, mu2, at_start.tau, z_tol, of_z, archive)
    # A slack of mu2 leaves an error of about its root in y, and rounding one of eps |f| / mu2 in the multiplier: the
    # gradient need not be much smaller.
    eps = torch.finfo(w.dtype).eps
    tol = max(tol, 20 * eps**0.5)
    blur = (50 * eps * seen.f.abs() / mu2).clamp(0.3 * tol, 0.3)
    precision = torch.maximum(0.3 * (mu2 / at_start.spread).sqrt().clamp_max(1.0), blur)
    points = barrier.start(w, seen, precision, 1e-4 * at_start.size / (1 + dot(w, w).sqrt()))
    settled = minimise(barrier, points, interior.w, of_w, BARRIER_STEPS)
    w, seen = points.w, barrier.seen
    reduced = interior.w.free(w, points.gradient)(points.gradient)
    stationarity = dot(reduced, reduced).sqrt() / barrier.pull
    # The search may end before the test does: where the slack has an error of eps |f|, the values of B, which curves
    # like |grad F|^2 / tau, do not show a gradient smaller than this.
    rounding = (2 * eps * seen.f.abs() / (mu2 - seen.gap)).sqrt().clamp(0.3 * tol, 0.1)
    settled |= stationarity <= rounding
    x, y = interior.split(w)
    at = interior.batch.at(x, members)
    _, older, f_older, _ = best_of(at, archive)  # a rejected trial may have met a lower z
    seen.improve(older, f_older)
    now = at_start._replace(mu2=mu2, scale=scale, w=w)
    size = torch.maximum(at_start.size, seen.F.abs() + barrier.reach)
    verdict = judge(interior, at, seen, settled, now, seen.F.abs() + barrier.reach + 1e-4 * size, tol)

    gap, slack = seen.gap.clamp_min(0), (mu2 - seen.gap).clamp_min(1e-3 * mu2)
    held = (gap + 0.1 * slack > rate * mu2) & (gap > 0.8 * at_start.gap)
    stalled = torch.where(held, at_start.stalled + 1, 0.0)
    jumping = ((stalled >= STALLED) & (gap > 1e-6 * tol * scale) & (verdict.ended == UNDER_WAY)).nonzero()[:, 0]
    answer, next_gap, next_slack = verdict.y, gap.clone(), slack.clone()
    if len(jumping):
        low = into_basin(interior, at.take(jumping), y[jumping], seen.take(jumping), rate * gap[jumping])
        answer = answer.index_copy(0, jumping, low)
        next_gap[jumping], next_slack[jumping], stalled[jumping] = 0.0, mu2[jumping], 0.0
        of_w.forget(jumping)
    tighter, tau = tighten(mu2, at_start.tau, next_gap, next_slack, rate)
    return at_start._replace(
        w=torch.cat([x, answer], -1), w_steps=of_w.steps, w_changes=of_w.changes,
        z=seen.z, z_steps=of_z.steps, z_changes=of_z.changes, archive=archive,
        scale=scale, size=size, mu2=tighter, tau=tau, gap=next_gap, slack=slack, stalled=stalled,
        ended=verdict.ended, lower=seen.f, relaxed=seen.F, upper=verdict.F, value=points.value,
        grad_norm=dot(points.gradient, points.gradient).sqrt(),
        stationarity=stationarity, modes=at_start.modes | verdict.modes,
        counts=interior.batch.counts[members],
    )  # fmt: skip


def tighten(mu2: Tensor, tau: Tensor, gap: Tensor, slack: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """The next mu2, so far down as the point stays inside; and tau, such that the multiplier grows like mu2^(-1/2)."""
    tighter = torch.maximum(rate * mu2, gap + 0.1 * slack)
    multiplier = tau / slack
    return tighter, (0.5 * multiplier * (mu2 * tighter).sqrt()).clamp(rate * tau, 4 * tau)


def enter(
    interior: Interior, members: Tensor, w: Tensor, z: Tensor, mu2: Tensor, z_tol: Tensor, memory: Memory,
    archive: Tensor,
) -> tuple[Tensor, Seen, Tensor, Tensor]:  # fmt: skip
    """Feasible first points, and by how much f varies around them.

    Where y is outside, it descends f in its own basin, or mu2 is raised.
    """
    x, y = interior.split(w)
    at = interior.batch.at(x, members)
    known = torch.cat([z[:, None], y[:, None], archive], 1)
    best, z, f_z, sampled = best_of(at, torch.cat([known, interior.around(members, y, 0)], 1))
    memory.forget(best.nonzero()[:, 0])
    z, f_z, _ = interior.descend(at, z, FIRST_Z * z_tol, memory)
    remember(archive, best.nonzero()[:, 0], z[best > 0])
    # What a gap is measured by may only become finer.
    around = sampled[:, known.shape[1] :]
    varies = around.nanquantile(0.2, 1) - f_z if interior.scouts else torch.full_like(f_z, torch.inf)
    F, f = at.values(y)
    outside = (~(f - f_z < mu2)).nonzero()[:, 0]
    if len(outside):
        own = at.take(outside)
        inner, f_inner, _ = interior.descend(own, y[outside], 0.1 * mu2[outside])
        near = f_inner - f_z[outside] < 0.5 * mu2[outside]
        lost = ~f[outside].isfinite()
        moved = torch.where(near[:, None], inner, torch.where(lost[:, None], z[outside], y[outside]))
        raised = torch.where(near | lost, mu2[outside], 1.25 * (f - f_z)[outside])
        y, mu2 = y.index_copy(0, outside, moved), mu2.index_copy(0, outside, raised)
        F[outside], f[outside] = own.values(moved)
    return torch.cat([x, y], -1), Seen(z, f_z, F, f), mu2, varies


def into_basin(interior: Interior, at: Rows, y: Tensor, seen: Seen, gap: Tensor) -> Tensor:
    """The bottom of y's own basin where that is within ``gap`` of the lowest, else z."""
    end, f, _ = interior.descend(at, y, 0.1 * gap)
    return torch.where((f - seen.f_z <= gap)[:, None], end, seen.z)


class Verdict(NamedTuple):
    """How each start stands: whether it has ended, with which y and F, and whether f has other minima."""

    ended: Tensor
    y: Tensor
    F: Tensor
    modes: Tensor


def judge(
    interior: Interior, at: Rows, seen: Seen, settled: Tensor, starts: Starts, size: Tensor, tol: float
) -> Verdict:
    """F(x, y) and F(x, y'), y' the end of a descent of f from y, bracket the optimum locally: solved where they meet.

    Where the lower solution jumps at the optimum they never meet, and f* has a kink on which no gradient vanishes;
    there a gap far below the tolerance has to do. Before a start is called solved, f is descended from other points:
    if one ends lower, that is the new z, and the start goes on. ``size`` is that of F.
    """
    scale, mu2 = starts.scale, starts.mu2
    _, y = interior.split(starts.w)
    rounding = 100 * torch.finfo(y.dtype).eps * torch.maximum(seen.f.abs(), seen.f_z.abs())
    fine = torch.where((rounding <= 1e-2 * tol * scale) | (scale <= rounding), rounding, 0.0)
    # Where a gradient does vanish, the estimates should rather meet.
    share = torch.where(settled, 1e-3, 1.0) * tol * scale
    closed = (seen.gap <= torch.maximum(1e-5 * share, fine)) & (mu2 <= torch.maximum(1e-4 * share, 3 * fine))
    verdict = Verdict(torch.zeros_like(starts.ended), y.clone(), seen.F.clone(), torch.zeros_like(settled))
    ripe = (closed | (settled & (mu2 <= tol * scale))).nonzero()[:, 0]
    if len(ripe):
        _bracket(interior, at, seen, settled, closed, ripe, tol * scale, 0.15 * tol * size, verdict)
    under_way = verdict.ended == UNDER_WAY
    floor = under_way & (mu2 <= torch.maximum(1e-13 * scale, rounding))
    verdict.ended[floor] = torch.where(seen.gap <= tol * scale, STUCK, OPEN)[floor]
    far = torch.maximum(starts.w.abs().amax(1), seen.z.abs().amax(1))
    verdict.ended[far > 1e7 * starts.reach] = UNBOUNDED
    verdict.ended[~(seen.F.isfinite() & seen.f.isfinite() & size.isfinite())] = BROKEN
    return verdict


def _bracket(
    interior: Interior, at: Rows, seen: Seen, settled: Tensor, closed: Tensor, ripe: Tensor, f_tol: Tensor,
    F_tol: Tensor, verdict: Verdict,
) -> None:  # fmt: skip
    """Write the verdict on the ripe starts, and into ``seen`` any lower z that the probes find."""
    here, own = at.take(ripe), seen.take(ripe)
    y = verdict.y[ripe]
    close = torch.maximum(1e-3 * own.gap, 1e-6 * f_tol[ripe])
    polished, _, flat = interior.descend(here, y, close)
    F, f = here.values(polished)
    flat |= own.f - f <= close
    verdict.F[ripe] = F
    low = f - own.f_z <= torch.minimum(0.1 * own.gap.clamp_min(f_tol[ripe] * 1e-3), f_tol[ripe])
    meet = settled[ripe] & flat & low & ((F - own.F).abs() <= F_tol[ripe])
    done = (meet | closed[ripe]).nonzero()[:, 0]
    if len(done) == 0:
        return
    rows, by_bracket = ripe[done], meet[done]
    z, f_z, modes = probe(interior, here.take(done), own.take(done), f_tol[rows])
    seen.improve(z, f_z, rows)
    reached = torch.where(by_bracket, f[done], own.f[done])
    solved = reached - seen.f_z[rows] <= f_tol[rows]
    verdict.ended[rows] = torch.where(solved, torch.where(by_bracket, SOLVED, STUCK), UNDER_WAY)
    verdict.y[rows] = torch.where((solved & by_bracket)[:, None], polished[done], y[done])
    verdict.modes[rows] = modes


def probe(interior: Interior, at: Rows, seen: Seen, tol: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Descents of f from the best of some samples and from others: the lowest, f there, whether minima differ."""
    if interior.scouts == 0:
        return seen.z, seen.f_z, torch.zeros_like(tol, dtype=torch.bool)
    count, size = seen.z.shape
    samples = interior.uniform(at.members, LAST_DRAW, 4 * interior.scouts, size).to(seen.z)
    low, high = (bound[:, None] for bound in interior.batch.y.region(seen.z))
    samples = interior.batch.y.project(low + (high - low) * samples)
    _, best, _, _ = best_of(at, samples)
    first = torch.cat([best[:, None], samples[:, : PROBES - 1]], 1).flatten(0, 1)
    everyone = torch.arange(count, device=first.device)
    own = at.take(everyone.repeat_interleave(PROBES))
    found = interior.descend(own, first, 1e-2 * tol.repeat_interleave(PROBES))
    end, f, settled = (t.unflatten(0, (count, PROBES)) for t in found)
    f = torch.where(f.isfinite(), f, torch.inf)
    higher = settled & (f > torch.minimum(seen.f_z, f.amin(1))[:, None] + tol[:, None])
    lowest = f.argmin(1)
    return end[everyone, lowest], f[everyone, lowest], higher.any(1)
