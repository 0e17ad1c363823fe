"""Boxes, balls and simplices."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bvfim.sets.base import Tangent
from bvfim.status import ProblemError


@dataclass(frozen=True)
class Box:
    """{ v : lower <= v <= upper }, entry by entry.

    Args:
        lower: a number, a tensor that broadcasts to the leaf, or -inf. Keep tensors on the leaf's device; otherwise
            they are copied there at every projection.
        upper: likewise, or +inf.

    Example:
        >>> import torch, bvfim
        >>> bvfim.Box(0, 1).project(torch.tensor([-2.0, 0.5, 3.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """

    lower: float | Tensor = -torch.inf
    upper: float | Tensor = torch.inf

    def __post_init__(self) -> None:
        if not all(_is_number(bound) or _is_dense(bound) for bound in (self.lower, self.upper)):
            raise ProblemError(
                f"Box: bounds must be numbers or dense tensors, not {_short(self.lower)} and {_short(self.upper)}"
            )
        low, high = torch.as_tensor(self.lower), torch.as_tensor(self.upper)
        try:
            good = bool(((low <= high) & (low < torch.inf) & (high > -torch.inf)).all())
        except RuntimeError:  # shapes that do not broadcast
            good = False
        if not good:
            raise ProblemError(
                f"Box: every lower bound must be at most its upper bound, not {_short(self.lower)} and "
                f"{_short(self.upper)}"
            )

    def project(self, point: Tensor) -> Tensor:
        """Each entry clamped between its bounds."""
        # clamp_min and clamp_max pass the whole derivative on at a tie, where torch.maximum would halve it.
        low, high = self._bounds(point)
        inside = point.clamp_min(low).clamp_max(high)
        pinned = low == high
        if isinstance(pinned, bool):
            return inside.detach() if pinned else inside
        return torch.where(pinned, inside.detach(), inside)

    def tangent(self, point: Tensor, gradient: Tensor) -> Tangent:
        """An entry is free unless a bound stops it from following the negative gradient."""
        low, high = self._bounds(point)
        stopped = ((point <= low) & ((gradient > 0) | (point >= high))) | ((point >= high) & (gradient < 0))
        free = (~stopped).to(point.dtype)
        return Tangent(lambda v: free * v, 0.0)

    def _bounds(self, point: Tensor) -> tuple[Any, Any]:
        low, high = (b.to(point) if isinstance(b, Tensor) else b for b in (self.lower, self.upper))
        return low, high


@dataclass(frozen=True)
class Ball:
    """{ v : |v - centre| <= radius }, in the Euclidean norm of the whole leaf.

    Args:
        radius: a positive number.
        centre: a number or a tensor that broadcasts to the leaf.

    Example:
        >>> import torch, bvfim
        >>> bvfim.Ball(1.0).project(torch.tensor([3.0, 4.0]))
        tensor([0.6000, 0.8000])
    """

    radius: float
    centre: float | Tensor = 0.0

    def __post_init__(self) -> None:
        if not (_is_number(self.radius) and 0 < self.radius < torch.inf):
            raise ProblemError(f"Ball: the radius must be positive and finite, not {_short(self.radius)}")
        given = _is_number(self.centre) or _is_dense(self.centre)
        if not (given and bool(torch.as_tensor(self.centre).isfinite().all())):
            raise ProblemError(f"Ball: the centre must be a finite number or tensor, not {_short(self.centre)}")

    def project(self, point: Tensor) -> Tensor:
        """The point itself, or the nearest point of the sphere."""
        centre = self._centre(point)
        offset = point - centre
        # In units of the largest entry, so that the squares of far points do not overflow.
        unit = offset.detach().abs().amax().clamp_min(self.radius)
        length = (offset / unit).square().sum().clamp_min((self.radius / unit) ** 2).sqrt() * unit
        return centre + offset * (self.radius / length)

    def _centre(self, point: Tensor) -> Any:
        return self.centre.to(point) if isinstance(self.centre, Tensor) else self.centre

    def tangent(self, point: Tensor, gradient: Tensor) -> Tangent:
        """Inside, all directions. On the sphere, those orthogonal to the normal, with curvature |gradient| / radius."""
        normal = (point - self._centre(point)) / self.radius
        rim = normal.square().sum() >= 1 - 100 * torch.finfo(point.dtype).eps
        active = (rim & ((normal * gradient).sum() < 0)).to(point.dtype)
        unit = normal / normal.square().sum().clamp_min(torch.finfo(point.dtype).tiny).sqrt()
        curvature = active * (gradient * unit).sum().abs() / self.radius
        return Tangent(lambda v: v - active * unit * (unit * v).sum(), curvature)


@dataclass(frozen=True)
class Simplex:
    """{ v : v >= 0, sum v = total } along the last dimension: each row is a distribution.

    Args:
        total: the positive sum of each row.

    Example:
        >>> import torch, bvfim
        >>> bvfim.Simplex().project(torch.tensor([0.5, 2.0, -1.0]))
        tensor([0., 1., 0.])
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        if not (_is_number(self.total) and 0 < self.total < torch.inf):
            raise ProblemError(f"Simplex: the total must be positive and finite, not {_short(self.total)}")

    def project(self, point: Tensor) -> Tensor:
        """Shift every row by its own threshold and clip at zero (Held, Wolfe and Crowder, 1974)."""
        point = point - point.detach().amax(-1, keepdim=True)  # a shift of a row changes nothing but the rounding
        ordered = point.sort(dim=-1, descending=True).values
        excess = ordered.cumsum(-1) - self.total
        count = torch.arange(1, point.shape[-1] + 1, device=point.device, dtype=point.dtype)
        kept = (ordered * count > excess).sum(-1, keepdim=True).clamp_min(1)  # none if a row is NaN
        threshold = excess.gather(-1, kept - 1) / kept
        return (point - threshold).clamp_min(0.0)

    def tangent(self, point: Tensor, gradient: Tensor) -> Tangent:
        """Free directions move mass between the entries that the bound at zero does not hold."""
        positive = point > 0
        count = positive.sum(-1, keepdim=True)
        level = (gradient * positive).sum(-1, keepdim=True) / count
        free = (positive | (gradient < level)).to(point.dtype)
        mass = free.sum(-1, keepdim=True)
        return Tangent(lambda v: free * (v - (free * v).sum(-1, keepdim=True) / mass), 0.0)


def _is_number(given: object) -> bool:
    return isinstance(given, numbers.Real)


def _is_dense(given: object) -> bool:
    return isinstance(given, Tensor) and given.layout is torch.strided and not given.is_meta


def _short(given: object) -> str:
    """A number as it is, and a tensor by its entries if these are few."""
    if not isinstance(given, Tensor):
        return repr(given)
    return str(given.tolist()) if _is_dense(given) and given.numel() <= 4 else f"a tensor of shape {tuple(given.shape)}"
