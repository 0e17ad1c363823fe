"""What a set has to provide."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor


class Tangent(NamedTuple):
    """Free directions at a point of a set: their orthogonal projection, and the face's curvature.

    The curvature is a number, one for each entry, or a linear map where it depends on the direction.

    Example:
        >>> import torch, bvfim
        >>> at_the_bound = bvfim.Box(0, 1).tangent(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 1.0]))
        >>> at_the_bound.project(torch.tensor([3.0, 3.0]))
        tensor([0., 3.])
    """

    project: Callable[[Tensor], Tensor]
    curvature: Tensor | float | Callable[[Tensor], Tensor]

    @property
    def flat(self) -> bool:
        """Whether the face is known to have no curvature."""
        return isinstance(self.curvature, float) and self.curvature == 0

    def bent(self, v: Tensor) -> Tensor:
        """c v."""
        return self.curvature(v) if callable(self.curvature) else self.curvature * v


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
