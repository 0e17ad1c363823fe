"""Sets made of less than a projection and a tangent: of a projection alone, or of other sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bvfim.sets.base import Set, Tangent
from bvfim.status import ProblemError

LOOK_AHEAD = 0.25
"""The step t against the gradient is this power of the dtype's precision, relative to the size of the point: the
curvature that is found errs by the square of its product with t, and by rounding over t."""


@dataclass(frozen=True)
class Projected:
    r"""The set onto which a function projects: nothing else has to be known of it.

    The tangent is derived. At a point y that is stationary for the gradient g, :math:`P(y - t g) = y`, and there

    .. math:: D = P'(y - t g) = \Pi\, (I + t W)^{-1}, \qquad N = I - D, \qquad
              \Pi = I - N^3 + O(t^3), \qquad W v = (N + N^2)\, v / t + O(t^2) \quad (v = \Pi v),

    where :math:`\Pi` projects onto the free directions and W is the curvature of the face times its multiplier: zero
    where the face is flat. D v is one derivative of the projection, which is symmetric.

    Args:
        nearest: maps a point to the nearest one of the set, in torch operations that carry gradients. The set has to be
            closed and convex.

    Example:
        >>> import torch, bvfim
        >>> ordered = bvfim.sets.Projected(lambda v: torch.cat([v.mean()[None]] * 2) if v[0] > v[1] else v)
        >>> y, gradient = torch.ones(2), torch.tensor([-1.0, 1.0])
        >>> ordered.project(torch.tensor([2.0, 0.0])), ordered.tangent(y, gradient).project(torch.tensor([1.0, 0.0]))
        (tensor([1., 1.]), tensor([0.5000, 0.5000]))
    """

    nearest: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        if not callable(self.nearest):
            raise ProblemError(f"Projected: it takes the projection, a function, not a {type(self.nearest).__name__}")

    def project(self, point: Tensor) -> Tensor:
        """What the function returns."""
        found = self.nearest(point)
        if not isinstance(found, Tensor):
            raise ProblemError(f"Projected: the projection must return a tensor, not a {type(found).__name__}")
        if torch.is_grad_enabled() and point.requires_grad and not found.requires_grad:
            raise ProblemError(
                "Projected: the result of the projection carries no gradient; compute it by torch operations"
            )
        return found

    def tangent(self, point: Tensor, gradient: Tensor) -> Tangent:
        """From derivatives of the projection a short step against the gradient."""
        size = torch.finfo(point.dtype).eps ** LOOK_AHEAD * (1 + point.abs().amax())
        t = size / gradient.abs().amax().clamp_min(torch.finfo(point.dtype).tiny)
        t = torch.where(gradient.any(), t, 1.0)
        pull = torch.func.vjp(self.nearest, point - t * gradient)[1]

        def normal(v: Tensor) -> Tensor:
            """N v."""
            return v - pull(v)[0]

        def curved(v: Tensor) -> Tensor:
            once = normal(v)
            return (once + normal(once)) / t

        return Tangent(lambda v: v - normal(normal(normal(v))), curved)


@dataclass(frozen=True)
class Product:
    """A tensor whose parts, as :func:`torch.split` cuts it, each lie in a set of their own.

    Args:
        sizes: of the parts.
        sets: a set for each, or ``None`` where a part is free.
        dim: the dimension that is cut.

    Example:
        >>> import torch, bvfim
        >>> split = bvfim.sets.Product([2, 3], [bvfim.Box(0, 1), bvfim.Simplex()])
        >>> split.project(torch.tensor([-1.0, 0.5, 3.0, 0.0, 0.0]))
        tensor([0.0000, 0.5000, 1.0000, 0.0000, 0.0000])
    """

    sizes: tuple[int, ...]
    sets: tuple[Set | None, ...]
    dim: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        object.__setattr__(self, "sets", tuple(self.sets))
        if not all(isinstance(size, int) and size >= 0 for size in self.sizes):
            raise ProblemError(f"Product: sizes must be whole numbers, not {self.sizes}")
        if len(self.sizes) != len(self.sets):
            raise ProblemError(f"Product: {len(self.sizes)} sizes need as many sets, not {len(self.sets)}")
        for own in self.sets:
            if own is not None and (isinstance(own, type) or not isinstance(own, Set)):
                raise ProblemError(f"Product: every part needs a set or None, not {own!r}")

    def project(self, point: Tensor) -> Tensor:
        """Part by part."""
        return self._joined(
            [t if s is None else s.project(t) for s, t in zip(self.sets, self._parts(point), strict=True)]
        )

    def tangent(self, point: Tensor, gradient: Tensor) -> Tangent:
        """Part by part."""
        triples = zip(self.sets, self._parts(point), self._parts(gradient), strict=True)
        own = [Tangent(lambda v: v, 0.0) if s is None else s.tangent(t, g) for s, t, g in triples]

        def free(v: Tensor) -> Tensor:
            return self._joined([o.project(t) for o, t in zip(own, self._parts(v), strict=True)])

        def curved(v: Tensor) -> Tensor:
            return self._joined([o.bent(t) for o, t in zip(own, self._parts(v), strict=True)])

        return Tangent(free, 0.0 if all(o.flat for o in own) else curved)

    def _parts(self, point: Tensor) -> tuple[Tensor, ...]:
        return point.split(self.sizes, self.dim)

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return torch.cat(parts, self.dim)
