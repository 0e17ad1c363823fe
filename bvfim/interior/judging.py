"""Whether a start has ended, and how: the bracket of F, the gap of f, and probes for a lower minimum."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior import tolerances as tol
from bvfim.interior.batch import BatchAt
from bvfim.interior.lbfgs import Memory
from bvfim.interior.lower import Interior
from bvfim.interior.multipliers import holds
from bvfim.interior.path import Path
from bvfim.interior.probing import probe
from bvfim.interior.starts import BROKEN, INFEASIBLE, OPEN, SOLVED, STUCK, UNBOUNDED, UNDER_WAY, Known, Starts


class Judgement(NamedTuple):
    """How each start stands: whether it has ended, with which x, y and F, whether f has other minima, and the lowest z.

    ``least`` is locally below the optimum: F inside the barrier, or its Lagrangian once solved. ``tied`` is the
    minimiser with the lowest F of those that probes found to be as low as z, and ``tied_F`` is F there.
    """

    ended: Tensor
    x: Tensor
    y: Tensor
    F: Tensor
    least: Tensor
    modes: Tensor
    known: Known
    tied: Tensor
    tied_F: Tensor

    def put(self, rows: Tensor, part: Judgement) -> Judgement:
        """With some rows replaced."""
        own = {
            name: getattr(self, name).index_copy(0, rows, getattr(part, name).to(getattr(self, name)))
            for name in TENSORS
        }
        return self._replace(known=self.known.put(rows, part.known), **own)

    def take(self, rows: Tensor) -> Judgement:
        """Some of the rows."""
        return self._replace(known=self.known.take(rows), **{name: getattr(self, name)[rows] for name in TENSORS})


TENSORS = [name for name in Judgement._fields if name != "known"]


class Allowed(NamedTuple):
    """What may be left, for each start: of the gap of f, and between estimates of F.

    ``bracket`` is tol times the size of F, ``wide`` is relative to F itself, and ``meet`` the share of the bracket that
    counts as agreement.
    """

    gap: Tensor
    bracket: Tensor
    wide: Tensor
    meet: float
    tol: float

    def take(self, rows: Tensor) -> Allowed:
        """For some of the starts."""
        return Allowed(self.gap[rows], self.bracket[rows], self.wide[rows], self.meet, self.tol)


def judge(
    interior: Interior,
    at: BatchAt,
    known: Known,
    settled: Tensor,
    starts: Starts,
    path: Path,
    size: Tensor,
    tolerance: float,
    feasible: Tensor,
) -> Judgement:
    """F(x, y) and F(x, y'), y' the end of a descent of f from y, bracket the optimum locally: solved if they agree.

    If the lower solution jumps at the optimum, they never agree, and f* has a kink at which no gradient vanishes;
    a gap far below the tolerance must then suffice. Before a start counts as solved, f is minimised from other points:
    if one ends lower, it becomes the new z, and the start continues. ``size`` is that of F. Nothing counts as solved
    where constraints do not hold, which are not ``feasible``.
    """
    scale, mu2 = starts.scale, starts.mu2
    _, y = interior.split(starts.w)
    rounding = tol.ROUNDINGS * torch.finfo(y.dtype).eps * torch.maximum(known.f.abs(), known.f_z.abs())
    closed = _closed(known.gap, mu2, scale * tolerance, rounding, scale, settled) & feasible
    verdict = _open(known, at.x, y, known.F)
    ripe = (closed | (settled & feasible & (mu2 <= tolerance * scale))).nonzero()[:, 0]
    if len(ripe):
        coarse = tolerance < tol.NEAR_ROUNDING * torch.finfo(y.dtype).eps ** 0.5
        meet = tol.MEET_COARSE if coarse else tol.MEET
        wide = tol.WIDE * tolerance * (known.F.abs() + tol.WIDE_FAINT * size)
        part = _bracket(
            interior,
            at.take(ripe),
            known.take(ripe),
            starts.take(ripe),
            path.take(ripe),
            settled[ripe],
            closed[ripe],
            Allowed(tolerance * scale, tolerance * size, wide, meet, tolerance).take(ripe),
        )
        verdict = verdict.put(ripe, part)
    ended = verdict.ended
    floor = (ended == UNDER_WAY) & (mu2 <= torch.maximum(tol.FLOOR * scale, rounding))
    ended = torch.where(floor, torch.where(verdict.known.gap <= tolerance * scale, STUCK, OPEN), ended)
    ended = torch.where(floor & ~feasible, INFEASIBLE, ended)
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
    interior: Interior,
    at: BatchAt,
    known: Known,
    starts: Starts,
    path: Path,
    settled: Tensor,
    closed: Tensor,
    allowed: Allowed,
) -> Judgement:
    """The judgement on starts that are ripe for it."""
    _, y = interior.split(starts.w)
    rounding = tol.SAME_VALUE * torch.finfo(y.dtype).eps * known.f.abs()
    close = torch.maximum(tol.POLISHED * known.gap, rounding)
    polished, _, flat = interior.descend(at, y, close, Memory.empty(y, starts.K.clone()))
    F, f = at.values(polished)
    flat = flat | (known.f - f <= close)
    left = torch.minimum(tol.GAP_LEFT * known.gap.clamp_min(allowed.gap * tol.LEAST_GAP), allowed.gap)
    least = known.F + (known.f - f) / path.eps
    meet = settled & flat & (f - known.f_z <= left) & _agree(F, known.F, least, starts.upper, allowed)
    found = _open(known, at.x, y, F)
    done = (meet | closed).nonzero()[:, 0]
    if len(done) == 0:
        return found
    met = meet.nonzero()[:, 0]
    answer = found.put(met, _met(found, polished, F, f, least).take(met))
    answer = _end_of_path(interior, at.members, answer, path, starts.K, close, allowed, meet)
    return found.put(
        done, _probed(interior, at.take(done), found.take(done), answer.take(done), meet[done], allowed.take(done))
    )


def _agree(F: Tensor, relaxed: Tensor, least: Tensor, last: Tensor, allowed: Allowed) -> Tensor:
    """Whether the estimates of the optimum agree: F at a polished y, and F inside the barrier or what the path tells.

    The end of the path, F + 2 lambda gap, is of second order; so the polished F of the last stage has to agree too, and
    the Lagrangian F + lambda gap, which the optimum is locally above, must not be far below.
    """
    ahead = 2 * least - relaxed
    near = tol.MEET_AHEAD * allowed.bracket
    wide = torch.minimum(allowed.bracket, allowed.wide)
    return ((F - relaxed).abs() <= allowed.meet * allowed.bracket) | (
        ((F - ahead).abs() <= near) & ((F - last).abs() <= near) & ((F - least).abs() <= wide)
    )


def _met(found: Judgement, y: Tensor, F: Tensor, f: Tensor, least: Tensor) -> Judgement:
    """With the polished y as the answer."""
    return found._replace(y=y, F=F, least=torch.minimum(least, F), known=found.known._replace(F=F, f=f))


def _end_of_path(
    interior: Interior,
    members: Tensor,
    answer: Judgement,
    path: Path,
    K: Tensor,
    close: Tensor,
    allowed: Allowed,
    meet: Tensor,
) -> Judgement:
    """The answers where the estimates meet, at the end of the path where F is lower there."""
    rows = (meet & path.known).nonzero()[:, 0]
    if len(rows) == 0:
        return answer
    old, K, close, allowed = answer.take(rows), K[rows], close[rows], allowed.take(rows)
    w, z = path.take(rows).at(0.0)
    x, y = interior.split(interior.w.of(members[rows]).project(w))
    at = interior.batch.at(x, members[rows])
    z, f_z, _ = interior.descend(at, at.of_y.project(z), close, Memory.empty(z, K.clone()))
    y, f, flat = interior.descend(at, y, close, Memory.empty(y, K.clone()))
    F = at.upper(y)
    better = (flat | (f <= f_z)) & (F < old.F) & (old.least <= F) & (f - f_z <= tol.LEAST_GAP * allowed.gap)
    new = old._replace(x=x, y=y, F=F, known=Known(z, f_z, F, f)).take(better.nonzero()[:, 0])
    return answer.put(rows[better], new)


def _probed(
    interior: Interior, at: BatchAt, found: Judgement, answer: Judgement, meet: Tensor, allowed: Allowed
) -> Judgement:
    """The judgement on starts that would end: with their answers, unless a probe finds a lower f there."""
    there = interior.batch.at(answer.x, at.members)
    probed = probe(interior, there, answer.known, allowed.gap)
    known = answer.known.improved(probed.z, probed.f_z)
    w = torch.cat([answer.x, answer.y], -1)
    sound, _ = holds(interior, there, w, known, allowed.bracket, allowed.gap, allowed.tol)
    low = (known.gap <= allowed.gap) & sound
    moved = (answer.x != at.x).any(1)
    ended = answer._replace(
        ended=torch.where(meet, SOLVED, STUCK), modes=probed.modes, known=known, tied=probed.tied, tied_F=probed.tied_F
    )
    on = found._replace(modes=probed.modes, known=found.known.improved(probed.z, probed.f_z))
    on = on.put(moved.nonzero()[:, 0], found.take(moved.nonzero()[:, 0]))  # what was found elsewhere is no z here
    return on.put(low.nonzero()[:, 0], ended.take(low.nonzero()[:, 0]))


def _open(known: Known, x: Tensor, y: Tensor, F: Tensor) -> Judgement:
    """Nothing has ended."""
    no = torch.zeros_like(F, dtype=torch.bool)
    ended = torch.full_like(F, UNDER_WAY, dtype=torch.long)
    return Judgement(ended, x, y, F, known.F, no, known, y, torch.full_like(F, torch.inf))
