r"""The second derivatives of a large lower level whose entries meet one another in constraints alone.

If no entry of :math:`f_y` changes with more than one entry of y, and no entry of :math:`f_x` with more than one of y,
then :math:`f_{yy}` and :math:`f_{xy}` have one entry a row. Its place and its size are told by :math:`1 + \log_2 n`
differences of gradients: one along :math:`(1, \dots, 1)`, and one for each binary digit of the place, along signs
that are -1 where the digit is 1. A row with several entries shows itself: its sums differ in more than the sign. The
terms of constraints add :math:`\sum c\, \hat g_y \hat g_y^\top` over those that are felt. What comes out is held
against one more difference along a random direction, and not used where that disagrees.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bvfim.interior.batch import BatchAt
from bvfim.interior.lbfgs import dot

FEWEST = 30
"""With fewer entries of y, one difference for each costs as much."""
ALIKE = 1e-3
"""Sums differ in sign alone if their sizes agree to this share."""
NOTHING = 1e-10
"""Sums below this share of the largest are rounding: a small curvature is none, and one that is taken for zero would
send z far away."""
AGREES = 1e-3
"""What is found has to tell the difference along a random direction to this share."""
SEED = 0
"""Of that direction."""


class Found(NamedTuple):
    """K and C, and for which rows they were found."""

    K: Tensor
    C: Tensor
    known: Tensor


def separable(at: BatchAt, z: Tensor) -> Found:
    """K and C of psi at (x, z), where f has one entry a row."""
    n = z.shape[1]
    of_x, of_y = along(at.bare, z, torch.cat([torch.ones(1, n), signs(n)]).to(z))
    (K, whole), (of_x_of_y, whole_x) = placed(of_y, n), placed(of_x, n)
    K_terms, C_terms = of_terms(at, z)
    K, C = K + K_terms, of_x_of_y.mT + C_terms
    p = torch.randn(n, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64).to(z)
    seen, told = torch.cat(along(at, z, p[None]), -1)[:, 0], torch.cat([C.mT @ p, K @ p], 1)
    known = whole & whole_x & (dot(seen - told, seen - told) <= AGREES**2 * dot(seen, seen))
    K, C = (torch.where(known[:, None, None], found, 0.0) for found in (K, C))
    return Found(K, C, known)


def of_terms(at: BatchAt, z: Tensor) -> tuple[Tensor, Tensor]:
    """What the terms of constraints that are felt add to K and C."""
    assert at.current is not None
    count, terms = at.current.layout.lower, at.current.terms.take(at.members).at(at.x.double())
    values, slopes = (found[:, :count] for found in at.jacobian(z))
    felt = at.current.layout.equal[:count] | (terms.u + terms.c * values > 0)
    in_x, in_y = slopes[..., : at.x.shape[1]], slopes[..., at.x.shape[1] :]
    along_u, c = (felt[..., None] * in_y).mT, terms.c[..., None]
    return along_u @ (c * in_y), along_u @ (c * in_x + terms.slope)


def signs(n: int) -> Tensor:
    """For each binary digit, -1 at the places that have it."""
    places = torch.arange(n)
    return torch.stack([1.0 - 2.0 * (places >> digit & 1) for digit in range(max(1, (n - 1).bit_length()))])


def along(at: BatchAt, z: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
    """Differences of the gradients in x and in y along each direction: (B, directions, entries)."""
    each = torch.arange(len(z), device=z.device).repeat_interleave(len(directions))
    step = torch.finfo(z.dtype).eps ** (1 / 3) * (1 + z.abs().amax(1))[:, None, None]
    _, (here_x,), here_y = at.lower_grads(z)
    _, (there_x,), there_y = at.take(each).lower_grads((z[:, None] + step * directions).flatten(0, 1))
    pairs = ((there_x, here_x), (there_y, here_y))
    in_x, in_y = ((there.unflatten(0, (len(z), -1)) - here[:, None]) / step for there, here in pairs)
    return in_x, in_y


def placed(sums: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Matrices with one entry a row from its sums (B, 1 + digits, rows), and where all rows have no more than one."""
    sizes = sums.abs()
    blank = sizes.amax(1) <= NOTHING * sizes.amax((1, 2))[:, None]
    first = torch.where(blank, 1.0, sums[:, 0])
    alike = (sizes - first.abs()[:, None]).abs() <= ALIKE * first.abs()[:, None]
    digits = (sums[:, 1:] * first[:, None] < 0).long()
    place = (digits << torch.arange(digits.shape[1], device=sums.device)[:, None]).sum(1)
    whole = (blank | (alike.all(1) & (place < n))).all(1)
    found = sums.new_zeros(len(sums), sums.shape[2], n)
    entries = torch.where(blank, 0.0, sums[:, 0])
    return found.scatter(2, place.clamp_max(n - 1)[..., None], entries[..., None]), whole
