"""One stage of the interior point for many starts at once: enter, minimise the barrier, judge, tighten."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.barrier import Barrier, Settings
from bvfim.interior.batch import BatchAt
from bvfim.interior.judging import Judgement, judge
from bvfim.interior.lbfgs import Memory, dot, minimise
from bvfim.interior.lower import Interior, best_of, remembered
from bvfim.interior.schedule import tighten
from bvfim.interior.starts import UNDER_WAY, Known, Starts

NUDGE_DRAW = 1_000
"""The number of the draw that begins the first stage, beyond those of its steps."""
BARRIER_STEPS = 40
"""Steps of L-BFGS on B in one stage; the next stage goes on from there."""


def advance(interior: Interior, members: Tensor, starts: Starts, tolerance: float, rate: float) -> Starts:
    """Minimise B for the present mu2 and tau, judge the end, tighten."""
    of_w = Memory(starts.w_steps.clone(), starts.w_changes.clone())
    of_z = Memory(starts.z_steps.clone(), starts.z_changes.clone())
    entered = enter(interior, members, starts, of_z)
    settings = _settings(entered, starts, tolerance)
    barrier = Barrier(interior, members, settings, entered.w, entered.known, of_z, entered.archive)
    points, settled = minimise(barrier, barrier.points, interior.w, of_w, BARRIER_STEPS)
    reduced = interior.w.free(points.w, points.gradient)(points.gradient)
    stationarity = dot(reduced, reduced).sqrt() / barrier.pull
    settled = settled | (stationarity <= _hidden(barrier.known, entered.mu2, points.w, tolerance))
    x, y = interior.split(points.w)
    at = interior.batch.at(x, members)
    best = best_of(at, barrier.archive)  # a rejected trial may have met a lower z
    known = barrier.known.improved(best.y, best.f)
    size = torch.maximum(starts.size, known.F.abs() + barrier.change)
    now = starts._replace(mu2=entered.mu2, scale=entered.scale, w=points.w, size=size)
    local = known.F.abs() + barrier.change + tol.FAINT * size
    verdict = judge(interior, at, known, settled, now, local, tolerance)
    tightened = _tightened(interior, at, y, now, verdict, tolerance, rate)
    of_w.forget(tightened.jumped)
    return now._replace(
        w=torch.cat([x, tightened.y], -1), w_steps=of_w.steps, w_changes=of_w.changes,
        z=verdict.known.z, z_steps=of_z.steps, z_changes=of_z.changes, archive=barrier.archive,
        mu2=tightened.mu2, tau=tightened.tau, gap=tightened.gap, slack=tightened.slack, stalled=tightened.stalled,
        ended=verdict.ended, lower=known.f, relaxed=known.F, upper=verdict.F, value=points.value,
        grad_norm=dot(points.gradient, points.gradient).sqrt(),
        stationarity=stationarity, modes=starts.modes | verdict.modes,
        counts=interior.batch.counts[members],
    )  # fmt: skip


class Entered(NamedTuple):
    """Feasible first points of a stage: w, what is known there, mu2, how fine z is, the scale of f, older minima."""

    w: Tensor
    known: Known
    mu2: Tensor
    z_tol: Tensor
    scale: Tensor
    archive: Tensor


def enter(interior: Interior, members: Tensor, starts: Starts, of_z: Memory) -> Entered:
    """Feasible first points. Where y is outside, it descends f in its own basin, or mu2 is raised."""
    w, mu2 = starts.w, starts.mu2
    if interior.stage == 1:
        nudge = interior.uniform(members, NUDGE_DRAW, 1, w.shape[1])[:, 0].to(w) - 0.5
        w = interior.w.project(w + tol.NUDGE * (1 + w.abs()) * nudge)
    z_tol = mu2 * (tol.Z_SHARE * mu2 / starts.spread).clamp(tol.Z_FINEST, tol.Z_SHARE)
    x, y = interior.split(w)
    at = interior.batch.at(x, members)
    older = torch.cat([starts.z[:, None], y[:, None], starts.archive], 1)
    best = best_of(at, torch.cat([older, interior.around(members, y, 0)], 1))
    switched = best.which.nonzero()[:, 0]
    of_z.forget(switched)
    z, f_z, _ = interior.descend(at, best.y, tol.FIRST_Z * z_tol, of_z)
    archive = remembered(starts.archive, switched, z[switched])
    scale = starts.scale
    if interior.scouts and interior.stage <= tol.COMING_NEAR:  # what a gap is measured by may only become finer
        varies = best.values[:, older.shape[1] :].nanquantile(tol.NEAR_SHARE, 1) - f_z
        scale = torch.where((varies > 0) & (varies < scale), varies, scale)
    F, f = at.values(y)
    y, mu2, known = _brought_inside(interior, at, y, mu2, Known(z, f_z, F, f))
    return Entered(torch.cat([x, y], -1), known, mu2, z_tol, scale, archive)


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
    precision = torch.maximum(tol.PRECISION * (mu2 / starts.spread).sqrt().clamp_max(1.0), blur)
    least = tol.FAINT * starts.size / (1 + dot(w, w).sqrt())
    return Settings(mu2, starts.tau, entered.z_tol, precision, least)


def _hidden(known: Known, mu2: Tensor, w: Tensor, tolerance: float) -> Tensor:
    """The gradient of B, against F's, that the values of B do not show: the search may end before the test does."""
    rounding = tol.HIDDEN * torch.finfo(w.dtype).eps * known.f.abs()
    return (rounding / (mu2 - known.gap)).sqrt().clamp(tol.FINE * tolerance, tol.VISIBLE)


class Tightened(NamedTuple):
    """The next y, mu2 and tau, the gap and slack that they come from, how long each gap has stalled, and who jumped."""

    y: Tensor
    mu2: Tensor
    tau: Tensor
    gap: Tensor
    slack: Tensor
    stalled: Tensor
    jumped: Tensor


def _tightened(
    interior: Interior, at: BatchAt, y: Tensor, starts: Starts, verdict: Judgement, tolerance: float, rate: float
) -> Tightened:
    """Tighten mu2 and tau; where the gap has held mu2 up for long, y first jumps into its basin, or to z."""
    mu2, known = starts.mu2, verdict.known
    gap, slack = known.gap.clamp_min(0), (mu2 - known.gap).clamp_min(tol.LEAST_SLACK * mu2)
    held = (gap + tol.INSIDE * slack > rate * mu2) & (gap > tol.HARDLY * starts.gap)
    stalled = torch.where(held, starts.stalled + 1, 0.0)
    open_gap = gap > tol.WORTH_A_JUMP * tolerance * starts.scale
    jumping = ((stalled >= tol.STALLED) & open_gap & (verdict.ended == UNDER_WAY)).nonzero()[:, 0]
    answer, next_gap, next_slack = verdict.y, gap.clone(), slack.clone()
    if len(jumping):
        low = into_basin(interior, at.take(jumping), y[jumping], known.take(jumping), rate * gap[jumping])
        answer = answer.index_copy(0, jumping, low)
        next_gap[jumping], next_slack[jumping], stalled[jumping] = 0.0, mu2[jumping], 0.0
    tighter, tau = tighten(mu2, starts.tau, next_gap, next_slack, rate)
    return Tightened(answer, tighter, tau, next_gap, slack, stalled, jumping)


def into_basin(interior: Interior, at: BatchAt, y: Tensor, known: Known, gap: Tensor) -> Tensor:
    """The bottom of y's own basin where that is within ``gap`` of the lowest, else z."""
    end, f, _ = interior.descend(at, y, tol.BASIN * gap)
    return torch.where((f - known.f_z <= gap)[:, None], end, known.z)
