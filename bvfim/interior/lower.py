"""The lower level for many starts at once: where z may start, and its descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.core.augmented import Terms
from bvfim.core.constraints import Layout
from bvfim.interior import tolerances as tol
from bvfim.interior.batch import Batch, BatchAt
from bvfim.interior.lbfgs import Memory, Points, dot, minimise, unit
from bvfim.interior.space import Space
from bvfim.interior.starts import Known

LOWER_STEPS = 60
"""Steps of L-BFGS in one descent of f; what is left is done by the next, which begins where it ended."""
SEED_OF_START, SEED_OF_STAGE = 1_000_003, 1_009
"""Primes that keep the random numbers of starts, stages and draws apart."""


class LowerFunction:
    """f(x, .) for each row x. The first trial of a search is mostly taken: it brings its gradient along."""

    def __init__(self, at: BatchAt, tol: Tensor) -> None:
        self.at, self.tol = at, tol
        self.at_first = torch.ones_like(tol, dtype=torch.bool)
        self.gradients = torch.empty(0)

    def trial(self, rows: Tensor, w: Tensor, attempt: int, ceiling: Tensor) -> Tensor:
        """f."""
        if attempt > 0:
            self.at_first[rows] = False
            return self.at.take(rows).lower(w)
        value, gradient = self.at.take(rows).lower_grad(w)
        self.gradients = w.new_empty(len(self.tol), w.shape[1]).index_copy(0, rows, gradient)
        self.at_first[rows] = True
        return value

    def gradient(self, rows: Tensor, w: Tensor) -> Tensor:
        """f_y, from the first trial where that was taken."""
        later = ~self.at_first[rows]
        if bool(later.any()):
            self.gradients[rows[later]] = self.at.take(rows[later]).lower_grad(w[later])[1]
        return self.gradients[rows]

    def scale(self, reduced: Tensor) -> Tensor:
        """A unit first step."""
        return unit(reduced)

    def enough(self, rows: Tensor, reduced: Tensor, decrease: Tensor) -> Tensor:
        """f can fall by no more than the tolerance."""
        return decrease <= self.tol[rows]


class Descended(NamedTuple):
    """The end of a descent of f: where, f there, and whether the tolerance was reached."""

    y: Tensor
    f: Tensor
    settled: Tensor


@dataclass(frozen=True)
class Interior:
    """What a stage needs: the problem, the spaces of x, y and w = (x, y), and where its random numbers come from."""

    batch: Batch
    w: Space
    scouts: int
    seed: int
    stage: int

    @property
    def unit(self) -> Tensor:
        """Of every entry of w, for every start."""
        assert self.w.unit is not None
        return self.w.unit

    @property
    def constrained(self) -> bool:
        """Whether the problem has constraints."""
        return self.batch.augmented is not None

    @property
    def layout(self) -> Layout:
        """The entries of the vector of constraints."""
        assert self.batch.augmented is not None
        return self.batch.augmented.layout

    @property
    def terms(self) -> Terms:
        """What they are multiplied with, for every start."""
        assert self.batch.augmented is not None
        return self.batch.augmented.terms

    def put_terms(self, members: Tensor, terms: Terms) -> None:
        """Other terms for some of the starts, from now on."""
        assert self.batch.augmented is not None
        self.batch.augmented = self.batch.augmented._replace(terms=self.terms.put(members, terms))

    def split(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """x and y of w."""
        return w[:, : self.batch.x.size], w[:, self.batch.x.size :]

    def uniform(self, members: Tensor, draw: int, count: int, size: int) -> Tensor:
        """Numbers in [0, 1) that depend on the start, the stage and the number of the draw alone."""
        return uniform(self.seed, self.stage, members, draw, count, size)

    def around(self, members: Tensor, y: Tensor, draw: int) -> Tensor:
        """Scouts: near y at random scales, with one entry resampled, and far off, in turn; (B, scouts, n)."""
        space = self.batch.y.of(members)
        low, high = (bound[:, None] for bound in space.region(y))
        numbers = self.uniform(members, draw, self.scouts, y.shape[1] + 1).to(y)
        choice, u = numbers[..., :1], numbers[..., 1:]
        far, centre = low + (high - low) * u, y[:, None]
        near = centre + (high - low) * 10 ** (-2 * choice) * (u - 0.5)
        entry = (choice * y.shape[1]).long().clamp_max(y.shape[1] - 1)
        one = torch.where(torch.arange(y.shape[1], device=y.device) == entry, far, centre)
        turn = torch.arange(self.scouts, device=y.device)[:, None] % 3
        found = torch.where(turn == 0, near, torch.where(turn == 1, one, far))
        return space.project(found)

    @staticmethod
    def fineness(mu2: Tensor, spread: Tensor) -> Tensor:
        """How far z is solved for in a stage: an error e mu2 in f(x, z) causes one of sqrt(e) in the gradient of B."""
        return mu2 * (tol.Z_SHARE * mu2 / spread).clamp(tol.Z_FINEST, tol.Z_SHARE)

    def descend(self, at: BatchAt, y: Tensor, fine: Tensor, memory: Memory | None = None) -> Descended:
        """L-BFGS on f(x, .) until it can fall by no more than ``fine``."""
        points, settled = self.descended(at, Points(y, *at.lower_grad(y)), fine, memory)
        return Descended(points.w, points.value, settled)

    def descended(
        self, at: BatchAt, points: Points, fine: Tensor, memory: Memory | None = None
    ) -> tuple[Points, Tensor]:
        """:meth:`descend` from points whose f and gradient are known, with the gradients at its end."""
        memory = Memory.empty(points.w) if memory is None else memory
        fine = torch.maximum(fine, torch.finfo(points.w.dtype).eps * points.value.abs())
        return minimise(LowerFunction(at, fine), points, at.of_y, memory, LOWER_STEPS)


def uniform(seed: int, stage: int, members: Tensor, draw: int, count: int, size: int) -> Tensor:
    """A table of numbers in [0, 1) for each start."""
    tables = []
    for member in members.tolist():
        own = ((seed + member) * SEED_OF_START + stage) * SEED_OF_STAGE + draw
        generator = torch.Generator().manual_seed(own % 2**63)
        tables.append(torch.rand(count, size, generator=generator, dtype=torch.float64))
    return torch.stack(tables)


def first_order_change(interior: Interior, of_F: Tensor, w: Tensor) -> Tensor:
    """What F may change by when x and y change by their own sizes, to first order."""
    blocks = zip(interior.split(of_F), interior.split(w), strict=True)
    return torch.stack([dot(g, g).sqrt() * (1 + dot(v, v).sqrt()) for g, v in blocks]).sum(0)


class Best(NamedTuple):
    """The candidate of lowest f for each row: which, the point, its value; and the values of all."""

    which: Tensor
    y: Tensor
    f: Tensor
    values: Tensor


def best_of(at: BatchAt, candidates: Tensor) -> Best:
    """The best of (B, k, n) candidates; of those that only rounding tells apart, the first."""
    values = at.lower_many(candidates)
    values = torch.where(values.isfinite(), values, torch.inf)
    lowest = values.amin(1, keepdim=True)
    rounding = tol.SAME_VALUE * torch.finfo(candidates.dtype).eps * lowest.abs()
    which = (values <= lowest + torch.where(rounding.isfinite(), rounding, 0.0)).double().argmax(1)
    everyone = torch.arange(len(which), device=which.device)
    return Best(which, candidates[everyone, which], values[everyone, which], values)


def remembered(archive: Tensor, rows: Tensor, z: Tensor) -> Tensor:
    """The archives, with z in the place of the entry nearest to it in some rows: that of its own basin, if any."""
    own = archive[rows]
    nearest = (own - z[:, None]).norm(dim=-1).argmin(1)
    own = own.index_put((torch.arange(len(z), device=z.device), nearest), z)
    return archive.index_copy(0, rows, own)


def refreshed(interior: Interior, at: BatchAt, archive: Tensor, known: Known, mu2: Tensor, fine: Tensor) -> Tensor:
    """The archives, with those entries minimised again that may hide a lower minimum than z."""
    values = at.lower_many(archive)
    size = 1 + known.z.norm(dim=1)
    apart = (archive - known.z[:, None]).norm(dim=-1) > tol.APART * size[:, None]
    rivals = apart & (values - known.f_z[:, None] <= tol.RIVAL * mu2[:, None])
    rows, slots = rivals.nonzero().unbind(1)
    if len(rows) == 0:
        return archive
    found = interior.descend(at.take(rows), archive[rows, slots], fine[rows])
    return archive.index_put((rows, slots), found.y)
