r"""Closed convex sets that constrain x or y.

A set constrains one tensor. A single set applies to every leaf of a tree; a tree of sets (with ``None`` for
no constraint) gives each leaf its own. A set provides its projection and, for implicit differentiation,
the tangent of that projection: at a stationary y of f over the set, the response of y
to a change of x solves :math:`\Pi (H + c I) \Pi\, \dot y = -\Pi\, \partial^2_{yx} f\, \dot x`, with
:math:`\Pi` the projection onto the directions that stay on the active face and c the face's curvature.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import optree
import torch
from torch import Tensor

from bvfim import tree
from bvfim.status import ProblemError
from bvfim.tree import Tree


class Tangent(NamedTuple):
    """Free directions at a point of a set: their orthogonal projection, and the face's curvature.

    Example:
        >>> import torch, bvfim
        >>> at_the_bound = bvfim.Box(0, 1).tangent(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 1.0]))
        >>> at_the_bound.project(torch.tensor([3.0, 3.0]))
        tensor([0., 3.])
    """

    project: Callable[[Tensor], Tensor]
    curvature: Tensor | float


@runtime_checkable
class Set(Protocol):
    """The interface of a set. Any class with these two methods qualifies.

    Example:
        >>> import bvfim
        >>> isinstance(bvfim.Box(0, 1), bvfim.sets.Set)
        True
    """

    def project(self, point: Tensor) -> Tensor:
        """The nearest point of the set; differentiable almost everywhere."""
        ...

    def tangent(self, point: Tensor, gradient: Tensor) -> Tangent:
        """The free directions at a ``point`` of the set where the objective has the given gradient."""
        ...


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


SetTree = Any
"""``None``, one :class:`Set` for every leaf, or a tree of sets and ``None`` like the variable."""


def _is_set(item: Any) -> bool:
    return isinstance(item, Set) and not isinstance(item, type)


def per_leaf(sets: SetTree, variable: Tree) -> list[Set | None]:
    """One set (or ``None``) for each leaf of ``variable``."""
    count = len(tree.leaves(variable))
    if sets is None or _is_set(sets):
        return [sets] * count
    own, nesting = optree.tree_flatten(sets, none_is_leaf=True, is_leaf=_is_set)
    entries, like = optree.tree_flatten(variable, none_is_leaf=True)
    if nesting != like or not all(s is None or _is_set(s) for s in own):
        raise ProblemError(
            f"the set must be None, one set for all leaves, or a tree with a set or None for each of the {count} leaves"
        )
    return [s for s, entry in zip(own, entries, strict=True) if entry is not None]


def check_fit(sets: SetTree, variable: Tree, name: str) -> None:
    """Reject sets whose bounds or centres do not fit the shape of their leaf."""
    try:
        own = per_leaf(sets, variable)
    except ProblemError as error:
        raise ProblemError(f"{name}_set: {error}") from error
    for s, leaf in zip(own, tree.leaves(variable), strict=True):
        try:
            fits = s is None or getattr(s.project(leaf), "shape", None) == leaf.shape
        except (RuntimeError, IndexError):
            fits = False
        if not fits:
            raise ProblemError(f"{name}_set: a {type(s).__name__} does not fit a leaf of shape {tuple(leaf.shape)}")


def project(sets: SetTree, variable: Tree) -> Tree:
    """The projection of ``variable`` onto its set, leaf by leaf.

    Example:
        >>> import torch, bvfim
        >>> bvfim.sets.project({"a": bvfim.Box(0, 1), "b": None}, {"a": torch.tensor(2.0), "b": torch.tensor(2.0)})
        {'a': tensor(1.), 'b': tensor(2.)}
    """
    if sets is None:
        return variable
    moved = [
        t if s is None else s.project(t) for s, t in zip(per_leaf(sets, variable), tree.leaves(variable), strict=True)
    ]
    return tree.unflatten(variable, moved)


def tangent(
    sets: SetTree, variable: Tree, gradient: Tree
) -> tuple[Callable[[Tree], Tree], Callable[[Tree, Tree], Tree]]:
    """The maps v -> Pi v and (v, Hv) -> Hv + c v of the module's docstring, over whole trees."""
    triples = zip(per_leaf(sets, variable), tree.leaves(variable), tree.leaves(gradient), strict=True)
    own = [Tangent(lambda v: v, 0.0) if s is None else s.tangent(t, g) for s, t, g in triples]

    def free(v: Tree) -> Tree:
        return tree.unflatten(v, [o.project(t) for o, t in zip(own, tree.leaves(v), strict=True)])

    def curved(v: Tree, product: Tree) -> Tree:
        triples = zip(own, tree.leaves(v), tree.leaves(product), strict=True)
        flat = [isinstance(o.curvature, float) and o.curvature == 0 for o in own]
        return tree.unflatten(v, [p if f else p + o.curvature * t for f, (o, t, p) in zip(flat, triples, strict=True)])

    return free, curved
