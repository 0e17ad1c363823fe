"""One stage of the interior point for many starts at once: enter, minimise the barrier, judge, tighten."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.barrier import Barrier, Settings
from bvfim.interior.batch import BatchAt
from bvfim.interior.best import never_worse, with_answer
from bvfim.interior.curvature import Curvature
from bvfim.interior.feasible import reach
from bvfim.interior.infeasible import given_up
from bvfim.interior.judging import Judgement, judge
from bvfim.interior.lbfgs import Memory, dot, minimise
from bvfim.interior.lower import Interior, best_of, refreshed, remembered
from bvfim.interior.multipliers import holds, of_lower, of_upper
from bvfim.interior.path import Ahead, Path, followed, parted
from bvfim.interior.response import responding
from bvfim.interior.schedule import tighten
from bvfim.interior.starts import UNDER_WAY, Known, Starts

NUDGE_DRAW = 1_000
"""The number of the draw that begins the first stage, beyond those of its steps."""
BARRIER_STEPS = 40
"""Steps of L-BFGS on B in one stage; the next stage goes on from there."""


def advance(interior: Interior, members: Tensor, starts: Starts, tolerance: float, rate: float) -> Starts:
    """Minimise B for the present mu2 and tau, judge the end, tighten."""
    of_w, of_z = _memories(starts)
    entered = enter(interior, members, starts, of_z)
    if interior.stage == 1 and not interior.constrained:
        starts = with_answer(interior, members, starts, entered.w, entered.known.z)
    settings = _settings(entered, starts, tolerance)
    barrier = Barrier(
        interior, members, settings, entered.w, entered.known, of_z, of_w, entered.curvature, entered.archive
    )
    space = interior.w.of(members)
    points, settled = minimise(barrier, barrier.points, space, of_w, BARRIER_STEPS)
    reduced = space.free(points.w, points.gradient)(points.gradient)
    stationarity = dot(reduced, reduced).sqrt() / barrier.pull
    settled = settled | (stationarity <= _hidden(barrier.known, entered.mu2, points.w, tolerance))
    at = interior.batch.at(interior.split(points.w)[0], members)
    archive = refreshed(interior, at, barrier.archive, barrier.known, entered.mu2, entered.z_tol)
    best = best_of(at, archive)  # a rejected trial may have met a lower z
    known = barrier.known.improved(best.y, best.f)
    size = torch.maximum(starts.size, known.F.abs() + barrier.change)
    now = starts._replace(
        mu2=entered.mu2, scale=entered.scale, w=points.w, size=size, archive=archive, **barrier.curvature._asdict()
    )
    local = known.F.abs() + barrier.change + tol.FAINT * size
    eps = known.slack(entered.mu2) / starts.tau
    path = Path(points.w, known.z, eps, starts.last_w, starts.last_z, starts.last_eps)
    feasible, local = holds(interior, at, points.w, known, local, tolerance * entered.scale, tolerance)
    verdict = judge(interior, at, known, settled, now, path, local, tolerance, feasible)
    falling = ~settled & (barrier.points.value - points.value > tol.STILL_FALLING * starts.tau)
    if interior.constrained:  # where u moved f*, y creeps along the edge of the slack: that takes a larger tau
        falling = falling & (known.slack(entered.mu2) > tol.LEAST_SLACK * entered.mu2)
    begun = _begun(interior, members, at, now, path, verdict, falling, of_z, tolerance, rate)
    of_w.forget(begun.jumped)
    plain = points.gradient / starts.unit
    after = now._replace(
        **begun.fields, w_steps=of_w.steps, w_changes=of_w.changes, z_steps=of_z.steps, z_changes=of_z.changes,
        gap=known.gap.clamp_min(0), slack=eps * starts.tau,
        ended=verdict.ended, lower=known.f, relaxed=verdict.least, upper=verdict.F, value=points.value,
        grad_norm=dot(plain, plain).sqrt(), stationarity=stationarity, modes=starts.modes | verdict.modes,
    )  # fmt: skip
    if interior.constrained:
        if barrier.multipliers is not None:
            barrier.multipliers.keep()
        hard = of_upper(interior, at, interior.split(points.w)[1], reach(points.w))
        after = given_up(interior, members, after._replace(hard=torch.where(hard, starts.hard + 1, 0.0)), points.w)
        after = after._replace(**interior.terms.take(members)._asdict())
    else:
        after = never_worse(interior, members, after, at, known.z, verdict, local, tolerance)
    return after._replace(counts=interior.batch.counts[members])


def _memories(starts: Starts) -> tuple[Memory, Memory]:
    """Of w and z. Pairs of w are of another tau: where there is a model of B, which is not, they are dropped."""
    side = starts.w.shape[1] if starts.curvature.possible else 0
    of_w = Memory(starts.w_steps.clone(), starts.w_changes.clone(), starts.w.new_zeros(len(starts.w), side, side))
    of_w.forget(starts.curvature.known.nonzero()[:, 0])
    return of_w, Memory(starts.z_steps.clone(), starts.z_changes.clone(), starts.K.clone())


class Entered(NamedTuple):
    """Feasible first points of a stage, with their mu2, the scale of f, and what is known of its second derivatives."""

    w: Tensor
    known: Known
    mu2: Tensor
    z_tol: Tensor
    scale: Tensor
    archive: Tensor
    curvature: Curvature


def enter(interior: Interior, members: Tensor, starts: Starts, of_z: Memory) -> Entered:
    """Feasible first points. Where y is outside, it descends f in its own basin, or mu2 is raised."""
    w, mu2 = starts.w, starts.mu2
    if interior.stage == 1:
        nudge = interior.uniform(members, NUDGE_DRAW, 1, w.shape[1])[:, 0].to(w) - 0.5
        w = interior.w.of(members).project(w + tol.NUDGE * (1 + w.abs()) * nudge)
    z_tol = interior.fineness(mu2, starts.spread)
    x, y = interior.split(w)
    at = interior.batch.at(x, members)
    older = torch.cat([starts.z[:, None], y[:, None], starts.archive], 1)
    best = best_of(at, torch.cat([older, interior.around(members, y, 0)], 1))
    switched = best.which.nonzero()[:, 0]
    of_z.forget(switched)
    z, f_z, _ = interior.descend(at, best.y, tol.FIRST_Z * z_tol, of_z)
    if interior.constrained:
        z, f_z = of_lower(interior, at, z, f_z, tol.FIRST_Z * z_tol, of_z, reach(w))
    curvature = starts.curvature
    if interior.constrained and interior.layout.lower and curvature.possible:
        curvature = responding(interior, at, z, curvature)
        of_z.begin_with(curvature.K)
    archive = remembered(starts.archive, switched, z[switched])
    scale = starts.scale
    if interior.scouts and interior.stage <= tol.COMING_NEAR:  # what a gap is measured by may only become finer
        varies = best.values[:, older.shape[1] :].nanquantile(tol.NEAR_SHARE, 1) - f_z
        scale = torch.where((varies > 0) & (varies < scale), varies, scale)
    F, f = at.values(y)
    y, mu2, known = _brought_inside(interior, at, y, mu2, Known(z, f_z, F, f))
    return Entered(torch.cat([x, y], -1), known, mu2, z_tol, scale, archive, curvature)


def _brought_inside(
    interior: Interior, at: BatchAt, y: Tensor, mu2: Tensor, known: Known
) -> tuple[Tensor, Tensor, Known]:
    """y, mu2 and what is known where every slack is positive."""
    outside = (~(known.gap < mu2)).nonzero()[:, 0]
    if len(outside) == 0:
        return y, mu2, known
    own, there, allowed = at.take(outside), known.take(outside), mu2[outside]
    inner, f_inner, _ = interior.descend(own, y[outside], tol.OUTSIDE_DESCENT * allowed)
    near = f_inner - there.f_z < tol.NEAR_ENOUGH * allowed
    lost = ~there.f.isfinite()
    moved = torch.where(near[:, None], inner, torch.where(lost[:, None], there.z, y[outside]))
    raised = torch.where(near | lost, allowed, tol.RAISE * there.gap)
    F, f = own.values(moved)
    known = known.put(outside, Known(there.z, there.f_z, F, f))
    return y.index_copy(0, outside, moved), mu2.index_copy(0, outside, raised), known


def _settings(entered: Entered, starts: Starts, tolerance: float) -> Settings:
    """How accurately B is minimised: as far as is meaningful for this mu2 and the rounding of f."""
    w, mu2 = entered.w, entered.mu2
    eps = torch.finfo(w.dtype).eps
    blur = (tol.BLUR * eps * entered.known.f.abs() / mu2).clamp(tol.FINE * tolerance, tol.LOOSEST)
    rough = tol.PRECISION * (mu2 / starts.spread).sqrt().clamp_max(1.0)
    ripe = mu2 <= tolerance * entered.scale  # such a stage may be the last, and x is as good as its gradient is small
    precision = torch.maximum(torch.where(ripe, rough.clamp_max(tol.FINE * tolerance), rough), blur)
    least = tol.FAINT * starts.size / (1 + dot(w, w).sqrt())
    return Settings(mu2, starts.tau, entered.z_tol, precision, least, parted(mu2, starts.spread))


def _hidden(known: Known, mu2: Tensor, w: Tensor, tolerance: float) -> Tensor:
    """The gradient of B, against F's, that the values of B do not show: the search may end before the test does."""
    rounding = tol.HIDDEN * torch.finfo(w.dtype).eps * known.f.abs()
    return (rounding / (mu2 - known.gap)).sqrt().clamp(tol.FINE * tolerance, tol.VISIBLE)


class Begun(NamedTuple):
    """Where the next stage begins, how long each gap has stalled, who jumped, and what the path leads on from."""

    ahead: Ahead
    stalled: Tensor
    jumped: Tensor
    last_w: Tensor
    last_z: Tensor
    last_eps: Tensor

    @property
    def fields(self) -> dict[str, Tensor]:
        """As fields of the starts."""
        own = self._asdict()
        del own["jumped"]
        return {**own.pop("ahead")._asdict(), **own}


def _begun(
    interior: Interior,
    members: Tensor,
    at: BatchAt,
    starts: Starts,
    path: Path,
    verdict: Judgement,
    falling: Tensor,
    of_z: Memory,
    tolerance: float,
    rate: float,
) -> Begun:
    """Tighten mu2 and tau, and go on along the path; where B still falls, all stays as it is.

    Where the gap has held mu2 up for long, y first jumps into its basin, or to z.
    """
    _, y = interior.split(starts.w)
    mu2, known, going = starts.mu2, verdict.known, verdict.ended == UNDER_WAY
    gap, slack = known.gap.clamp_min(0), known.slack(mu2)
    wide = (gap + tol.INSIDE * slack > rate * mu2) & (gap > tol.HARDLY * starts.gap)
    stalled = torch.where(wide, starts.stalled + 1, 0.0)
    open_gap = gap > tol.WORTH_A_JUMP * tolerance * starts.scale
    jumping = ((stalled >= tol.STALLED) & open_gap & going).nonzero()[:, 0]
    answer = verdict.y
    if len(jumping):
        low = into_basin(interior, at.take(jumping), y[jumping], known.take(jumping), rate * gap[jumping])
        answer = answer.index_copy(0, jumping, low)
        gap, slack = gap.index_fill(0, jumping, 0.0), slack.index_copy(0, jumping, mu2[jumping])
        stalled = stalled.index_fill(0, jumping, 0.0)
    held = (going & falling).index_fill(0, jumping, False)
    tighter, tau = tighten(mu2, starts.tau, gap, slack, rate)
    tighter, tau = torch.where(held, mu2, tighter), torch.where(held, starts.tau, tau)
    ahead = Ahead(torch.cat([verdict.x, answer], -1), known.z, tighter, tau)
    on = (going & ~held).index_fill(0, jumping, False).nonzero()[:, 0]
    return Begun(
        followed(interior, members, starts, path, known, of_z, ahead, on, rate),
        stalled=torch.where(held, 0.0, stalled),
        jumped=jumping,
        last_w=torch.where(held[:, None], starts.last_w, path.w),
        last_z=torch.where(held[:, None], starts.last_z, path.z),
        last_eps=torch.where(held, starts.last_eps, path.eps).index_fill(0, jumping, torch.inf),
    )


def into_basin(interior: Interior, at: BatchAt, y: Tensor, known: Known, gap: Tensor) -> Tensor:
    """The bottom of y's own basin where that is within ``gap`` of the lowest, else z."""
    end, f, _ = interior.descend(at, y, tol.BASIN * gap)
    return torch.where((f - known.f_z <= gap)[:, None], end, known.z)
