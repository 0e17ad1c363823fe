r"""How far an entry of x or y has to go to matter: the units that the interior point measures each start in.

Along random signs s from a start, the block b (x or y) has the length

.. math:: L_F = t\,\frac{|F_b|}{|F_b(w + t s) - F_b|}, \qquad L_f = t\,\frac{|f_y|}{|f_y(w + t s) - f_y|},

at the shortest t at which a gradient changes by a tenth; its unit is their geometric mean. Entries of a block differ
where its curvature says so. In a finite box the unit is a share of its width. All units are powers of two, so that
measuring in them rounds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior.batch import Batch
from bvfim.interior.lbfgs import dot

BOX_SHARE = 0.07
"""The unit in a finite box, as a share of its width: what served the logarithms of regularisers in [-10, 5]."""
CHANGED = 0.1
"""A gradient has changed once it differs by this share of its size."""
FIRST, LONGER = 2.0**-12, 16.0
"""The first t, as a share of the size of the block, and by how much the next one is longer, or shorter."""
SHORTEST, TRIALS = 1000, 20
"""The shortest t, in rounding errors of the block; how often t changes before the search is given up."""
ROUNDS, TRIAL_STEP = 4, 0.125
"""How often the entries of a block are balanced, and the step that their curvature is measured with, in units."""
UNEVEN = 30
"""Entries of a block keep units of their own where these differ by more than this factor."""
MANY = 100
"""Blocks of more entries keep one unit: the weights of a network that hardly matter would get very long ones."""
SIGNS_DRAW = 1_002
"""The number of the draw of the signs, beyond those of the stages and of the probes."""

Uniform = Callable[[Tensor, int, int, int], Tensor]


class Slopes(NamedTuple):
    """The gradients of F and f in w."""

    F: Tensor
    f: Tensor


class Blocks(NamedTuple):
    """Some starts: which, their points, random signs (one row for each round), and the width of the boxes."""

    batch: Batch
    members: Tensor
    w: Tensor
    signs: Tensor
    width: Tensor

    def slopes(self, w: Tensor) -> Slopes:
        """The gradients there; what is not finite counts as zero."""
        x, y = self.split(w)
        return Slopes(*(g.nan_to_num(0.0, 0.0, 0.0) for g in self.batch.at(x, self.members).both_grads(y)))

    def split(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """x and y of w."""
        return w[:, : self.batch.x.size], w[:, self.batch.x.size :]

    def in_block(self, i: int) -> Tensor:
        """1 at the entries of x (0) or y (1) that no finite box measures."""
        found = torch.zeros_like(self.w)
        self.split(found)[i].fill_(1.0)
        return found * (~self.width.isfinite())

    def moved(self, step: Tensor) -> Tensor:
        """The points after a step, reflected where that leaves a box with one bound."""
        x, y = self.batch.x, self.batch.y
        low, high = torch.cat([x.low, y.low]), torch.cat([x.high, y.high])
        there = self.w + step
        return torch.where((there < low) | (there > high), self.w - step, there)

    def take(self, rows: Tensor) -> Blocks:
        """Some of them."""
        return self._replace(members=self.members[rows], w=self.w[rows], signs=self.signs[rows])


def units(batch: Batch, w: Tensor, members: Tensor, uniform: Uniform) -> Tensor:
    """The unit of every entry of w, for each row; ``members`` says which starts these are."""
    signs = torch.where(uniform(members, SIGNS_DRAW, ROUNDS + 1, w.shape[1]) < 0.5, -1.0, 1.0).to(w)
    width = torch.cat([space.high - space.low for space in (batch.x, batch.y)])
    blocks = Blocks(batch, members, w, signs, width)
    boxed = BOX_SHARE * width.expand_as(w)
    if bool(width.isfinite().all()):
        return rounded(boxed)
    first = blocks.slopes(w)
    shape = torch.ones_like(w)
    unit = with_lengths(blocks, first, shape)
    shape = balanced(blocks, first, torch.where(width.isfinite(), boxed, unit))
    again = (shape != 1).any(1).nonzero()[:, 0]
    if len(again):
        part = with_lengths(blocks.take(again), Slopes(*(g[again] for g in first)), shape[again])
        unit = unit.index_copy(0, again, part)
    return rounded(torch.where(width.isfinite(), boxed, unit))


def rounded(unit: Tensor) -> Tensor:
    """The nearest powers of two."""
    return torch.exp2(unit.log2().round())


def with_lengths(blocks: Blocks, first: Slopes, shape: Tensor) -> Tensor:
    """``shape`` times the length of each block.

    At a minimiser of f(x, .), f_y is zero: the change of f_y with x takes its place. A block that no gradient tells
    about gets its length from the other, by how both change f_y, or from the size of its start.
    """
    of_y = torch.zeros_like(shape)
    blocks.split(of_y)[1].copy_(blocks.split(shape)[1])
    x, y = blocks.in_block(0) * shape, blocks.in_block(1) * shape
    size = norm(first.f, of_y)

    def change_along_x(length: Tensor) -> Tensor:
        """Of f_y, when x moves by so much."""
        moved = blocks.moved(length[:, None] * x * blocks.signs[:, 0])
        return norm(blocks.slopes(moved).f - first.f, of_y)

    L_x, _ = length(blocks, first, x, size, of_y)
    shift = change_along_x(finite(L_x))
    L_y, f_yy = length(blocks, first, y, torch.maximum(size, shift), of_y)
    if bool((~L_x.isfinite() & L_y.isfinite()).any()):
        f_yx = change_along_x(finite(L_y))
        L_x = torch.where(L_x.isfinite(), L_x, L_y * (f_yy * L_y) / f_yx)
    return shape * (known_length(L_x, blocks.w, x) + known_length(L_y, blocks.w, y))


def finite(length: Tensor) -> Tensor:
    """The length, or zero where it is not known."""
    return torch.where(length.isfinite(), length, 0.0)


def known_length(length: Tensor, w: Tensor, block: Tensor) -> Tensor:
    """At the entries of a block its length, or the size of the start where that is not known; else zero."""
    found = torch.where(length.isfinite() & (length > 0), length, sized(w, block)).to(w)
    return found[:, None] * (block > 0)


def sized(w: Tensor, block: Tensor) -> Tensor:
    """The size of the largest entry of a block, in its shape; 1 at zero."""
    size = torch.where(block > 0, w / block, 0.0).abs().amax(1)
    return torch.where(size > 0, size, 1.0)


def norm(g: Tensor, shape: Tensor) -> Tensor:
    """The size of a gradient in entries of these units."""
    return dot(g * shape, g * shape).sqrt()


def length(blocks: Blocks, first: Slopes, block: Tensor, size: Tensor, of_y: Tensor) -> tuple[Tensor, Tensor]:
    """The length of a block, not a number where nothing is known, and how fast f_y changes along its signs."""
    pull = norm(first.F, block)
    step = block * blocks.signs[:, 0]
    dF, df = torch.zeros_like(pull), torch.zeros_like(pull)

    def changes(rows: Tensor, t: Tensor) -> Tensor:
        """The larger change of the two gradients, relative to its size."""
        there = blocks.take(rows)
        found = there.slopes(there.moved(t[rows, None].to(block) * step[rows]))
        dF[rows] = norm(found.F - first.F[rows], block[rows])
        df[rows] = norm(found.f - first.f[rows], of_y[rows])
        ratios = torch.stack([dF[rows] / pull[rows], df[rows] / size[rows]])
        return torch.where(ratios.isfinite(), ratios, 0.0).amax(0)

    t, crossed = shortest(changes, sized(blocks.w, block).double(), torch.finfo(block.dtype).eps)
    told = torch.stack([pull / dF, size / df])
    visible = torch.finfo(block.dtype).eps * SHORTEST
    told = torch.where((told > 0) & (told * visible < 1), told, torch.nan)
    L = t * told.log().nanmean(0).exp()
    return torch.where(crossed & (block > 0).any(1), L, torch.nan), df / t


def shortest(changes: Callable[[Tensor, Tensor], Tensor], size: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The shortest power of two at which the gradients have changed, and whether there is one."""
    t = rounded(size) * FIRST
    least = SHORTEST * eps * size
    everyone = torch.arange(len(t), device=t.device)
    large = changes(everyone, t) >= CHANGED
    going = everyone
    for _ in range(TRIALS):  # down where the first was too long, else up
        t[going] = torch.where(large[going], t[going] / LONGER, t[going] * LONGER)
        now = changes(going, t) >= CHANGED
        turned = now != large[going]
        going = going[~turned & (t[going] > least[going])]
        if len(going) == 0:
            break
    crossed = torch.ones_like(large).index_fill(0, going, False) & (t > least)
    t = torch.where(large, t * LONGER, t)  # now the gradients have changed at t, and not at t / LONGER
    for exponent in (-2, -1):
        t = t * 2.0**exponent
        now = changes(everyone, t) >= CHANGED
        t = torch.where(now, t, t * 2.0**-exponent)
    changes(everyone, t)
    return t, crossed


def balanced(blocks: Blocks, first: Slopes, unit: Tensor) -> Tensor:
    """Factors of the units of the entries of each block that make the rows of the scaled curvature equally large."""
    shape = torch.ones_like(unit)
    parts = [blocks.in_block(i) * free_to_differ(blocks.batch) for i in (0, 1)]
    parts = [part for part in parts if 2 <= int(part[0].sum()) <= MANY]
    if not parts:
        return shape
    for i in range(1, ROUNDS + 1):
        step = TRIAL_STEP * unit * shape
        there = blocks.slopes(blocks.moved(step * blocks.signs[:, i]))
        for part in parts:
            row = sum_of_shares([(a - b).abs() * unit * shape * part for a, b in zip(there, first, strict=True)])
            known = row > 0
            mean = (torch.where(known, row.log(), 0.0).sum(1) / known.sum(1).clamp_min(1)).exp()
            shape = torch.where(known, shape * (mean[:, None] / row).sqrt(), shape)
    for part in parts:
        inside = part > 0
        highest = torch.where(inside, shape, 0.0).amax(1)
        lowest = torch.where(inside, shape, math.inf).amin(1)
        even = (highest <= UNEVEN * lowest)[:, None]
        shape = torch.where(inside & even, 1.0, shape)
    return shape


def sum_of_shares(rows: list[Tensor]) -> Tensor:
    """The rows of both curvatures, each as a share of its sum: F and f may be of any size."""
    sums = [row.sum(1, keepdim=True) for row in rows]
    return torch.stack([torch.where(s > 0, row / s, 0.0) for row, s in zip(rows, sums, strict=True)]).sum(0)


def free_to_differ(batch: Batch) -> Tensor:
    """1 at entries whose leaf is in a box or in no set: others have one unit for the whole leaf."""
    return torch.cat([batch.x.separable, batch.y.separable])
