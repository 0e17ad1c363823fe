"""The barrier problem of one stage, for many starts at once; :class:`bvfim.AdaptiveBVFIM` has the mathematics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bvfim.flat import Flat
from bvfim.lbfgs import Memory, Points, dot, minimise, unit
from bvfim.rows import Batch, Rows

LOWER_STEPS, BARRIER_STEPS = 60, 40


def reach(interior: Interior, of_F: Tensor, w: Tensor) -> Tensor:
    """What F may change by when x and y change by their own sizes, to first order."""
    blocks = zip(interior.split(of_F), interior.split(w), strict=True)
    return torch.stack([dot(g, g).sqrt() * (1 + dot(v, v).sqrt()) for g, v in blocks]).sum(0)


class Lower:
    """f(x, .) for each row x. The first trial of a search is mostly taken: it brings its gradient along."""

    def __init__(self, at: Rows, tol: Tensor) -> None:
        self.at, self.tol = at, tol
        self.first = torch.ones_like(tol, dtype=torch.bool)
        self.gradients = torch.empty(0)

    def trial(self, rows: Tensor, w: Tensor, attempt: int, ceiling: Tensor) -> Tensor:
        """f."""
        if attempt > 0:
            self.first[rows] = False
            return self.at.take(rows).lower(w)
        value, gradient = self.at.take(rows).lower_grad(w)
        self.gradients = w.new_empty(len(self.tol), w.shape[1]).index_copy(0, rows, gradient)
        self.first[rows] = True
        return value

    def gradient(self, rows: Tensor, w: Tensor) -> Tensor:
        """f_y, from the first trial where that was taken."""
        later = ~self.first[rows]
        if bool(later.any()):
            self.gradients[rows[later]] = self.at.take(rows[later]).lower_grad(w[later])[1]
        return self.gradients[rows]

    def scale(self, reduced: Tensor) -> Tensor:
        """A unit first step."""
        return unit(reduced)

    def enough(self, rows: Tensor, reduced: Tensor, decrease: Tensor) -> Tensor:
        """f can fall by no more than the tolerance."""
        return decrease <= self.tol[rows]


@dataclass
class Interior:
    """What a stage needs: the problem, the spaces of x, y and w = (x, y), and where its random numbers come from."""

    batch: Batch
    w: Flat
    scouts: int
    seed: int
    stage: int

    def split(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """x and y of w."""
        return w[:, : self.batch.x.size], w[:, self.batch.x.size :]

    def uniform(self, members: Tensor, draw: int, count: int, size: int) -> Tensor:
        """Numbers in [0, 1) that depend on the start, the stage and the number of the draw alone."""
        tables = []
        for member in members.tolist():
            seed = ((self.seed + member) * 1_000_003 + self.stage) * 1_009 + draw
            generator = torch.Generator().manual_seed(seed % 2**63)
            tables.append(torch.rand(count, size, generator=generator, dtype=torch.float64))
        return torch.stack(tables)

    def around(self, members: Tensor, y: Tensor, draw: int) -> Tensor:
        """Scouts: near y at random scales, with one entry resampled, and far off, in turn; (B, scouts, n)."""
        low, high = (bound[:, None] for bound in self.batch.y.region(y))
        numbers = self.uniform(members, draw, self.scouts, y.shape[1] + 1).to(y)
        choice, u = numbers[..., :1], numbers[..., 1:]
        far, centre = low + (high - low) * u, y[:, None]
        near = centre + (high - low) * 10 ** (-2 * choice) * (u - 0.5)
        entry = (choice * y.shape[1]).long().clamp_max(y.shape[1] - 1)
        one = torch.where(torch.arange(y.shape[1], device=y.device) == entry, far, centre)
        turn = torch.arange(self.scouts, device=y.device)[:, None] % 3
        found = torch.where(turn == 0, near, torch.where(turn == 1, one, far))
        return self.batch.y.project(found)

    def descend(self, at: Rows, y: Tensor, tol: Tensor, memory: Memory | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """L-BFGS on f(x, .) until it can fall by no more than ``tol``: where, f there, and whether that was reached."""
        memory = Memory.empty(y) if memory is None else memory
        points = Points(y, *at.lower_grad(y))
        tol = torch.maximum(tol, torch.finfo(y.dtype).eps * points.value.abs())
        settled = minimise(Lower(at, tol), points, self.batch.y, memory, LOWER_STEPS)
        return points.w, points.value, settled


def best_of(at: Rows, candidates: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The candidate of lowest f for each row: which, the point, the value; and the values of all."""
    values = at.lower_many(candidates)
    values = torch.where(values.isfinite(), values, torch.inf)
    best = values.argmin(1)
    everyone = torch.arange(len(best), device=best.device)
    return best, candidates[everyone, best], values[everyone, best], values


def remember(archive: Tensor, rows: Tensor, z: Tensor) -> None:
    """Put z in the place of the oldest entry of the rows' archives."""
    archive[rows] = torch.cat([archive[rows, 1:], z[:, None]], 1)


@dataclass
class Seen:
    """What is known of each start's point w: z, f(x, z), F and f."""

    z: Tensor
    f_z: Tensor
    F: Tensor
    f: Tensor

    def copy(self) -> Seen:
        """A copy to write on."""
        return Seen(*(t.clone() for t in vars(self).values()))

    def put(self, rows: Tensor, z: Tensor, f_z: Tensor, F: Tensor, f: Tensor) -> None:
        """Overwrite some rows."""
        self.z[rows], self.f_z[rows], self.F[rows], self.f[rows] = z, f_z, F, f

    def take(self, rows: Tensor) -> Seen:
        """Some of the starts."""
        return Seen(*(t[rows] for t in vars(self).values()))

    def improve(self, z: Tensor, f_z: Tensor, rows: Tensor | None = None) -> None:
        """Take z where it is lower."""
        rows = torch.arange(len(self.f), device=z.device) if rows is None else rows
        better = f_z < self.f_z[rows]
        self.z[rows[better]], self.f_z[rows[better]] = z[better], f_z[better]

    @property
    def gap(self) -> Tensor:
        """f(x, y) - f(x, z)."""
        return self.f - self.f_z


class Barrier:
    """B as a function of w, for each row with its own mu2 and tau."""

    def __init__(
        self, interior: Interior, members: Tensor, mu2: Tensor, tau: Tensor, z_tol: Tensor, z_memory: Memory,
        archive: Tensor,
    ) -> None:  # fmt: skip
        self.interior, self.members, self.mu2, self.tau, self.z_tol = interior, members, mu2, tau, z_tol
        self.z_memory, self.archive = z_memory, archive
        self.draws = 0

    def start(self, w: Tensor, seen: Seen, precision: Tensor, least: Tensor) -> Points:
        """The first points; ``precision`` is how small the gradient has to become, against that of F."""
        x, _ = self.interior.split(w)
        self.seen, self.tried, self.precision, self.least = seen.copy(), seen.copy(), precision, least
        self.gradients = torch.zeros_like(self.mu2)
        self.pull, self.reach = torch.zeros_like(self.mu2), torch.zeros_like(self.mu2)
        self.x, self.dx, self.dz = x.clone(), 0 * x, 0 * seen.z
        rows = torch.arange(len(w), device=w.device)
        return Points(w, self.value(rows, seen), self.gradient(rows, w))

    def value(self, rows: Tensor, seen: Seen) -> Tensor:
        """B, infinite where the slack is not positive."""
        slack = self.mu2[rows] + (seen.f_z - seen.f)
        return torch.where(slack > 0, seen.F - self.tau[rows] * slack.clamp_min(1e-300).log(), torch.inf)

    def trial(self, rows: Tensor, w: Tensor, attempt: int, ceiling: Tensor) -> Tensor:
        """B at w, with z solved for, except where the best of z's starts shows already that B is too high."""
        value = torch.full_like(ceiling, torch.inf)
        x, y = self.interior.split(w)
        at = self.interior.batch.at(x, self.members[rows])
        F, f = at.values(y)
        best, z, f_z, _ = best_of(at, self.candidates(rows, x, y, attempt))
        bound = self.value(rows, Seen(z, f_z, F, f))
        self.tried.put(rows, z, f_z, F, f)
        hopeful = (bound <= ceiling).nonzero()[:, 0]
        if len(hopeful) == 0:
            return value
        going = rows[hopeful]
        switched = best[hopeful] > 1
        self.z_memory.forget(going[switched])
        memory = self.z_memory.take(going)
        z, f_z, _ = self.interior.descend(at.take(hopeful), z[hopeful], self.z_tol[going], memory)
        self.z_memory.put(going, memory)
        self.tried.put(going, z, f_z, F[hopeful], f[hopeful])
        remember(self.archive, going[switched], z[switched])
        value[hopeful] = self.value(going, Seen(z, f_z, F[hopeful], f[hopeful]))
        return value

    def candidates(self, rows: Tensor, x: Tensor, y: Tensor, attempt: int) -> Tensor:
        """Where z may start: the last z, where it is expected, y, and scouts or what the last trial found."""
        z = self.seen.z[rows]
        if attempt > 0:
            other = self.tried.z[rows]
            return torch.stack([z, z + 0.4 * (other - z), y, other], 1)
        self.draws += 1
        dx, along = self.dx[rows], x - self.x[rows]
        ratio = (dot(dx, along) / dot(dx, dx).clamp_min(1e-300)).clamp(-10, 10)
        expected = self.interior.batch.y.project(z + ratio.to(z)[:, None] * self.dz[rows])
        scouts = self.interior.around(self.members[rows], y, self.draws)
        return torch.cat([torch.stack([z, expected, y], 1), self.archive[rows], scouts], 1)

    def gradient(self, rows: Tensor, w: Tensor) -> Tensor:
        """The gradient of B at points that are taken."""
        x, y = self.interior.split(w)
        tried = self.tried.take(rows)
        self.dx[rows], self.dz[rows], self.x[rows] = x - self.x[rows], tried.z - self.seen.z[rows], x
        self.seen.put(rows, *vars(tried).values())
        weight = self.tau[rows] / (self.mu2[rows] - tried.gap)
        of_F, of_f = self.interior.batch.at(x, self.members[rows]).barrier_grad(y, tried.z, weight)
        self.pull[rows] = torch.maximum(dot(of_F, of_F).sqrt(), self.least[rows])
        self.gradients[rows] += 1
        self.reach[rows] = reach(self.interior, of_F, w)
        return of_F + of_f

    def scale(self, reduced: Tensor) -> Tensor:
        """A unit first step in x and in y, each by itself."""
        return torch.cat([unit(part) for part in self.interior.split(reduced)], -1)

    def enough(self, rows: Tensor, reduced: Tensor, decrease: Tensor) -> Tensor:
        """B can fall by little against tau, and its gradient is small against that of F: one alone may mislead.

        The curvature of the last stage may mislead too: one step has to be made in this one.
        """
        small = dot(reduced, reduced).sqrt() <= self.precision[rows] * self.pull[rows]
        return (self.gradients[rows] > 1) & small & (decrease < 0.05 * self.tau[rows])
