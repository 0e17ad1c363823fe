"""Probes: descents of f from elsewhere, before a start counts as solved."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bvfim.interior import tolerances as tol
from bvfim.interior.batch import BatchAt
from bvfim.interior.lbfgs import Points, dot
from bvfim.interior.lower import Interior, best_of
from bvfim.interior.starts import Known

PROBE_DRAW, NEAR_DRAW = 1_001, 1_003
"""The numbers of the draws of the probes, beyond those of a stage's steps, of the nudge and of the units."""


class Probed(NamedTuple):
    """What descents from elsewhere found: the lowest z, f there, and whether minima differ; of those, the least F."""

    z: Tensor
    f_z: Tensor
    modes: Tensor
    tied: Tensor
    tied_F: Tensor


def probe(interior: Interior, at: BatchAt, known: Known, tolerance: Tensor) -> Probed:
    """Descents of f from the best of some samples and from others: the lowest, f there, whether minima differ.

    In one and two dimensions, the lowest hollows of a grid of values begin descents too; in more, the best of some
    points around z, and z with those entries moved along their axes that promise a lower f.
    """
    if interior.scouts == 0:
        return Probed(known.z, known.f_z, torch.zeros_like(tolerance, dtype=torch.bool), known.z, known.F)
    count, size = known.z.shape
    samples = interior.uniform(at.members, PROBE_DRAW, tol.PROBE_SAMPLES * interior.scouts, size).to(known.z)
    low, high = (bound[:, None] for bound in at.of_y.region(known.z))
    samples = at.of_y.project(low + (high - low) * samples)
    firsts = [best_of(at, samples).y[:, None], samples[:, : tol.PROBES - 1]]
    if size <= len(tol.GRID):
        firsts.append(hollows(at, at.of_y.grid(known.z, tol.GRID[size - 1])))
    else:
        firsts.append(best_of(at, interior.around(at.members, known.z, NEAR_DRAW)).y[:, None])
        firsts.append(moved_along_axes(interior, at, known))
    first = torch.cat(firsts, 1)
    each = first.shape[1]
    everyone = torch.arange(count, device=first.device)
    own = at.take(everyone.repeat_interleave(each))
    first, allowed = first.flatten(0, 1), tolerance.repeat_interleave(each)
    ends, settled = interior.descended(own, Points(first, *own.lower_grad(first)), tol.PROBE_FINE * allowed)
    ends = ends._replace(value=torch.where(ends.value.isfinite(), ends.value, torch.inf))
    lowest = ends.value.unflatten(0, (count, each)).argmin(1) + each * everyone
    best = known.improved(ends.w[lowest], ends.value[lowest])
    ends, higher = higher_minima(interior, own, ends, settled, best.take(everyone.repeat_interleave(each)), allowed)
    F = own.upper(ends.w)
    end, f, F, higher = (t.unflatten(0, (count, each)) for t in (ends.w, ends.value, F, higher))
    lowest = f.argmin(1)
    level = f <= torch.minimum(known.f_z, f.amin(1))[:, None] + tol.LEVEL * tolerance[:, None]
    F = torch.where(level & F.isfinite(), F, torch.inf)
    tied = F.argmin(1)
    return Probed(end[everyone, lowest], f[everyone, lowest], higher.any(1), end[everyone, tied], F[everyone, tied])


def higher_minima(
    interior: Interior, at: BatchAt, ends: Points, settled: Tensor, low: Known, tolerance: Tensor
) -> tuple[Points, Tensor]:
    r"""The ends of descents, and which of them are minima above the lowest, z; those in doubt descend further.

    Along the way to z a convex f falls at once by at least all that it will,
    :math:`f_y (z - y) \le f(z) - f(y)`; from a minimum it does not. So where f is badly conditioned, a descent that
    came to rest too early is told from a minimum by its gradient.
    """

    def higher(ends: Points, low: Known, tolerance: Tensor) -> Tensor:
        return ends.value > low.f_z + tolerance

    def downhill(ends: Points, low: Known) -> Tensor:
        return -dot(ends.gradient, low.z - ends.w) >= tol.DOWNHILL * (ends.value - low.f_z)

    others = settled & higher(ends, low, tolerance)
    rows = (others & downhill(ends, low)).nonzero()[:, 0]
    if len(rows) == 0:
        return ends, others
    low, tolerance = low.take(rows), tolerance[rows]
    further, settled = interior.descended(at.take(rows), ends.take(rows), tol.PROBE_FINER * tolerance)
    apart = settled & higher(further, low, tolerance) & ~downhill(further, low)
    return ends.put(rows, *further), others.index_copy(0, rows, apart)


def hollows(at: BatchAt, grid: Tensor) -> Tensor:
    """The lowest points of a grid (B, k, .., k, n) that lie below all their neighbours: (B, PROBES, n)."""
    count, size = len(grid), grid.shape[-1]
    points = grid.flatten(1, -2)
    values = at.lower_many(points).unflatten(1, grid.shape[1:-1])
    values = torch.where(values.isfinite(), values, torch.inf)
    around = functional.max_pool1d if size == 1 else functional.max_pool2d
    lowest_near = -around(-values[:, None], 3, stride=1, padding=1)[:, 0]
    order = torch.where(values <= lowest_near, values, torch.inf).flatten(1).argsort(1)[:, : tol.PROBES]
    return points[torch.arange(count, device=grid.device)[:, None], order]


def axes_for(size: int) -> int:
    """The number of axes that are looked along: all, or as many as there is room for."""
    return min(size, tol.AXES, max(1, tol.ROOM // (tol.ALONG * size)))


def axes(interior: Interior, members: Tensor, size: int) -> Tensor:
    """The entries whose axes are looked along, at random where not all are; (B, k)."""
    return interior.uniform(members, PROBE_DRAW, 1, size)[:, 0].argsort(1)[:, : axes_for(size)]


def moved_along_axes(interior: Interior, at: BatchAt, known: Known) -> Tensor:
    """z with each entry in the lowest hollow of its axis, where f promises to be lower there; and with only the best.

    The depth of a hollow is that of the parabola through three values. (B, 2, n)
    """
    z = known.z
    entries = axes(interior, at.members, z.shape[1])
    low, high = (bound.gather(1, entries) for bound in at.of_y.region(z))
    shares = (torch.arange(tol.ALONG, dtype=z.dtype, device=z.device) + 0.5) / tol.ALONG
    along = low[..., None] + (high - low)[..., None] * shares  # (B, axes, values)
    index = entries[:, :, None, None].expand(*along.shape, 1)
    points = z[:, None, None].expand(*along.shape, -1).scatter(-1, index, along[..., None])
    values = at.lower_many(at.of_y.project(points.flatten(1, 2))).unflatten(1, along.shape[1:])
    before, here, after = values[..., :-2], values[..., 1:-1], values[..., 2:]
    bend = before - 2 * here + after
    depth = here - torch.where(bend > 0, (after - before).square() / (8 * bend), 0.0)
    hollow = (here <= before) & (here <= after) & depth.isfinite()
    depth, which = torch.where(hollow, depth, torch.inf).min(-1)
    place = along[..., 1:-1].gather(-1, which[..., None])[..., 0]
    lower, old = depth < known.f_z[:, None], z.gather(1, entries)
    lowest = torch.zeros_like(lower).scatter(1, depth.argmin(1, keepdim=True), True)
    moved = [z.scatter(1, entries, torch.where(among, place, old)) for among in (lower, lower & lowest)]
    return at.of_y.project(torch.stack(moved, 1))


def searched(interior: Interior) -> str:
    """How other minima of f were looked for, in words."""
    size = interior.batch.y.size
    if interior.scouts == 0:
        return ""
    if size <= len(tol.GRID):
        return f"a grid of {tol.GRID[size - 1] ** size} values and {2 * tol.PROBES} descents"
    return f"{tol.ALONG} values along {axes_for(size)} of {size} axes and {tol.PROBES + 3} descents"
