"""Whether a start has ended, and how: the bracket of F, the gap of f, and probes for a lower minimum."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.batch import BatchAt
from bvfim.interior.lower import Interior, best_of
from bvfim.interior.starts import BROKEN, OPEN, SOLVED, STUCK, UNBOUNDED, UNDER_WAY, Known, Starts

PROBE_DRAW = 1_001
"""The number of the draw of the probes, beyond those of a stage's steps and of the nudge."""


class Judgement(NamedTuple):
    """How each start stands: whether it has ended, with which y and F, whether f has other minima, and the lowest z."""

    ended: Tensor
    y: Tensor
    F: Tensor
    modes: Tensor
    known: Known


class Allowed(NamedTuple):
    """What may be left, for each start: of the gap of f, and between the two estimates of F."""

    gap: Tensor
    bracket: Tensor


def judge(
    interior: Interior, at: BatchAt, known: Known, settled: Tensor, starts: Starts, size: Tensor, tolerance: float
) -> Judgement:
    """F(x, y) and F(x, y'), y' the end of a descent of f from y, bracket the optimum locally: solved if they agree.

    If the lower solution jumps at the optimum, they never agree, and f* has a kink at which no gradient vanishes;
    a gap far below the tolerance must then suffice. Before a start counts as solved, f is minimised from other points:
    if one ends lower, it becomes the new z, and the start continues. ``size`` is that of F.
    """
    scale, mu2 = starts.scale, starts.mu2
    _, y = interior.split(starts.w)
    rounding = tol.ROUNDINGS * torch.finfo(y.dtype).eps * torch.maximum(known.f.abs(), known.f_z.abs())
    closed = _closed(known.gap, mu2, scale * tolerance, rounding, scale, settled)
    verdict = Judgement(torch.zeros_like(starts.ended), y, known.F, torch.zeros_like(settled), known)
    ripe = (closed | (settled & (mu2 <= tolerance * scale))).nonzero()[:, 0]
    if len(ripe):
        allowed = Allowed((tolerance * scale)[ripe], (tol.MEET * tolerance * size)[ripe])
        part = _bracket(interior, at.take(ripe), known.take(ripe), y[ripe], settled[ripe], closed[ripe], allowed)
        verdict = _put(verdict, ripe, part)
    ended = verdict.ended
    floor = (ended == UNDER_WAY) & (mu2 <= torch.maximum(tol.FLOOR * scale, rounding))
    ended = torch.where(floor, torch.where(verdict.known.gap <= tolerance * scale, STUCK, OPEN), ended)
    far = torch.maximum(starts.w.abs().amax(1), verdict.known.z.abs().amax(1)) > tol.FAR * starts.reach
    ended = torch.where((ended != SOLVED) & far, UNBOUNDED, ended)
    finite = known.F.isfinite() & known.f.isfinite() & size.isfinite()
    return verdict._replace(ended=torch.where(finite, ended, BROKEN))


def _closed(gap: Tensor, mu2: Tensor, allowed: Tensor, rounding: Tensor, scale: Tensor, settled: Tensor) -> Tensor:
    """Where the gap is far below the tolerance, or down to rounding where that can be told."""
    fine = torch.where((rounding <= tol.TELLS * allowed) | (scale <= rounding), rounding, 0.0)
    share = torch.where(settled, tol.SETTLED_SHARE, 1.0) * allowed
    low = gap <= torch.maximum(tol.CLOSED_GAP * share, fine)
    return low & (mu2 <= torch.maximum(tol.CLOSED_MU2 * share, tol.CLOSED_ROUNDING * fine))


def _bracket(
    interior: Interior, at: BatchAt, known: Known, y: Tensor, settled: Tensor, closed: Tensor, allowed: Allowed
) -> Judgement:
    """The judgement on starts that are ripe for it."""
    close = torch.maximum(tol.POLISHED_GAP * known.gap, tol.POLISHED * allowed.gap)
    polished, _, flat = interior.descend(at, y, close)
    F, f = at.values(polished)
    flat = flat | (known.f - f <= close)
    left = torch.minimum(tol.GAP_LEFT * known.gap.clamp_min(allowed.gap * tol.LEAST_GAP), allowed.gap)
    meet = settled & flat & (f - known.f_z <= left) & ((F - known.F).abs() <= allowed.bracket)
    done = (meet | closed).nonzero()[:, 0]
    found = Judgement(torch.full_like(settled, UNDER_WAY, dtype=torch.long), y, F, torch.zeros_like(settled), known)
    if len(done) == 0:
        return found
    own = known.take(done)
    z, f_z, modes = probe(interior, at.take(done), own, allowed.gap[done])
    own = own.improved(z, f_z)
    reached = torch.where(meet[done], f[done], own.f)
    low = reached - own.f_z <= allowed.gap[done]
    return Judgement(
        ended=found.ended.index_copy(0, done, torch.where(low, torch.where(meet[done], SOLVED, STUCK), UNDER_WAY)),
        y=y.index_copy(0, done, torch.where((low & meet[done])[:, None], polished[done], y[done])),
        F=F,
        modes=found.modes.index_copy(0, done, modes),
        known=known.put(done, own),
    )


def _put(verdict: Judgement, rows: Tensor, part: Judgement) -> Judgement:
    """The judgement with some rows replaced."""
    return Judgement(
        ended=verdict.ended.index_copy(0, rows, part.ended.to(verdict.ended)),
        y=verdict.y.index_copy(0, rows, part.y),
        F=verdict.F.index_copy(0, rows, part.F),
        modes=verdict.modes.index_copy(0, rows, part.modes),
        known=verdict.known.put(rows, part.known),
    )


def probe(interior: Interior, at: BatchAt, known: Known, tolerance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Descents of f from the best of some samples and from others: the lowest, f there, whether minima differ."""
    if interior.scouts == 0:
        return known.z, known.f_z, torch.zeros_like(tolerance, dtype=torch.bool)
    count, size = known.z.shape
    samples = interior.uniform(at.members, PROBE_DRAW, tol.PROBE_SAMPLES * interior.scouts, size).to(known.z)
    low, high = (bound[:, None] for bound in interior.batch.y.region(known.z))
    samples = interior.batch.y.project(low + (high - low) * samples)
    first = torch.cat([best_of(at, samples).y[:, None], samples[:, : tol.PROBES - 1]], 1).flatten(0, 1)
    everyone = torch.arange(count, device=first.device)
    own = at.take(everyone.repeat_interleave(tol.PROBES))
    found = interior.descend(own, first, tol.PROBE_FINE * tolerance.repeat_interleave(tol.PROBES))
    end, f, settled = (t.unflatten(0, (count, tol.PROBES)) for t in found)
    f = torch.where(f.isfinite(), f, torch.inf)
    higher = settled & (f > torch.minimum(known.f_z, f.amin(1))[:, None] + tolerance[:, None])
    lowest = f.argmin(1)
    return end[everyone, lowest], f[everyone, lowest], higher.any(1)
