"""The multipliers of the constraints, which move between stages, and how far the constraints are from holding."""

from __future__ import annotations

import torch
from torch import Tensor

from bvfim.core.augmented import moved, violation
from bvfim.interior import tolerances as tol
from bvfim.interior.batch import BatchAt
from bvfim.interior.feasible import SIZE_DRAW, reach, slopes
from bvfim.interior.lbfgs import Memory
from bvfim.interior.lower import Interior, first_order_change
from bvfim.interior.starts import TINIEST, Known


def of_lower(
    interior: Interior, at: BatchAt, z: Tensor, f_z: Tensor, fine: Tensor, memory: Memory, size: Tensor
) -> tuple[Tensor, Tensor]:
    """Move u to where the minimiser of psi is that of f under the constraints, and z with it; c grows if that is slow.

    Args:
        interior, at: the problem.
        z, f_z: the minimiser of psi, and psi there.
        fine: how far z is solved for.
        memory: the curvature of psi, kept up to date.
        size: of w.
    """
    layout = interior.layout
    if layout.lower == 0:
        return z, f_z
    old = interior.terms.take(at.members)
    x = at.x.double()
    interior.put_terms(at.members, old._replace(u=old.at(x).u, origin=x))
    last, steeper = torch.full_like(f_z, torch.inf), torch.zeros_like(f_z, dtype=torch.bool)
    near = (old.violated[:, : layout.lower] <= tol.NEARLY_FEASIBLE * size[:, None]).all(1)
    for _ in range(tol.MULTIPLIER_ROUNDS):
        terms = interior.terms.take(at.members)
        u = moved(at.distances(z)[:, : layout.lower], terms.u, terms.c, layout.equal[: layout.lower])
        change = ((u - terms.u).square() / terms.c).amax(1)
        told = torch.maximum(tol.MULTIPLIERS_TOLD * fine, (tol.MULTIPLIERS_REST * size).square() * terms.c.amax(1))
        slow = near & ~steeper & (change > tol.CONTRACTS**2 * last) & (change > told)
        last, steeper = change, steeper | slow
        c = torch.where(slow[:, None], tol.HEAVIER_LOWER * terms.c, terms.c)
        interior.put_terms(at.members, terms._replace(u=u, c=c))
        rows = (change > told).nonzero()[:, 0]
        if len(rows) == 0:
            break
        memory.forget(slow.nonzero()[:, 0])
        own = memory.take(rows)
        end = interior.descend(at.take(rows), z[rows], fine[rows], own)
        memory.put(rows, own)
        z, f_z = z.index_copy(0, rows, end.y), f_z.index_copy(0, rows, end.f)
    return z, at.lower(z)


def settled(
    interior: Interior, at: BatchAt, z: Tensor, f_z: Tensor, spread: Tensor, memory: Memory, size: Tensor
) -> tuple[Tensor, Tensor]:
    """The lower level solved under its constraints, roughly, from the first multipliers on."""
    for _ in range(tol.SETTLING):
        z, f_z = of_lower(interior, at, z, f_z, tol.ROUGH_Z * spread, memory, size)
    return z, f_z


def of_upper(interior: Interior, at: BatchAt, y: Tensor, size: Tensor) -> Tensor:
    """Move v at the end of a stage; k grows where a violation has not halved. Returns where the largest has not."""
    layout, terms = interior.layout, interior.terms.take(at.members)
    scaled = at.distances(y)
    left = violation(scaled, layout.equal)
    slow = (left > tol.HALVED * terms.violated) & (left > tol.HOLDS_FINE * size[:, None])
    interior.put_terms(
        at.members,
        terms._replace(
            v=moved(scaled, terms.v, terms.k, layout.equal),
            k=torch.where(slow, tol.HEAVIER_UPPER * terms.k, terms.k),
            violated=left,
        ),
    )
    worst = left.amax(1)
    return (worst > tol.HALVED * terms.violated.amax(1)) & (worst > tol.HOLDS * size)


def bend_of_terms(interior: Interior, at: BatchAt, y: Tensor) -> Tensor:
    """The Hessian of the terms in F, without that of the constraints themselves: (B, size of w, size of w)."""
    terms = interior.terms.take(at.members)
    values, slopes = at.jacobian(y)
    felt = interior.layout.equal | (terms.v + terms.k * values > 0)
    return slopes.mT @ (torch.where(felt, terms.k, 0.0)[..., None] * slopes)


def away(interior: Interior, at: BatchAt, y: Tensor) -> Tensor:
    """How far each constraint is from holding, by its gradient there, which may be smaller than around: (B, M).

    Where the gradient vanishes with the constraint, as at a cusp, a small value is a long way.
    """
    left = violation(at.distances(y), interior.layout.equal)
    if not bool((left > 0).any()):
        return left
    steep = slopes(interior, at.members, torch.cat([at.x, y], -1), SIZE_DRAW + 3).nan_to_num(1.0)
    return torch.where(left > 0, left / steep.clamp(TINIEST, 1.0), 0.0)


def allowed_of(w: Tensor) -> float:
    """How far constraints may be from holding, relative to the size of w."""
    return max(tol.HOLDS, tol.HOLDS_ROUNDINGS * torch.finfo(w.dtype).eps)


def holds(
    interior: Interior, at: BatchAt, w: Tensor, known: Known, size: Tensor, of_f: Tensor, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Whether the constraints hold at (x, y), and no multiplier has far to go; and the size of F without the terms.

    At a solution the terms of constraints vanish: F and f differ from what they are without them by less than what is
    allowed of F and of f, at y and at z; and u would not move.

    Args:
        interior, at, w, known: the problem, and the points.
        size: of F with its terms, whose weights may be large.
        of_f: what is allowed of f.
        tolerance: what is allowed of F, as a share of its size.
    """
    if not interior.constrained:
        return torch.ones(len(w), dtype=torch.bool, device=w.device), size
    _, y = interior.split(w)
    layout, terms = interior.layout, interior.terms.take(at.members).at(at.x.double())
    left = away(interior, at, y).amax(1)
    if layout.lower:
        u = moved(at.distances(known.z)[:, : layout.lower], terms.u, terms.c, layout.equal[: layout.lower])
        left = torch.maximum(left, ((u - terms.u) / terms.c).abs().amax(1))
    f, f_z = at.bare.lower(y), at.bare.lower(known.z)
    close = (left <= allowed_of(w) * reach(w)) & ((f - known.f).abs() <= of_f) & ((f_z - known.f_z).abs() <= of_f)
    rows = close.nonzero()[:, 0]
    if len(rows) == 0:
        return close, size
    F, gradient = at.take(rows).bare.upper_grad(y[rows])
    own = F.abs() + first_order_change(interior, gradient, w[rows])
    told = (F - known.F[rows]).abs() <= tolerance * (F.abs() + tol.WIDE_FAINT * own)
    return close.index_copy(0, rows, told), size.index_copy(0, rows, own)
