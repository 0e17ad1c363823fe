"""What one of several processes adds to a value or a gradient, and the sums over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.evaluations import Evaluations
from bvfim.distributed.world import Share, Shares, World
from bvfim.tree import Tree


class Objectives(Protocol):
    """What an evaluator needs of a :class:`bvfim.Problem`."""

    @property
    def context(self) -> Callable[[Tree, Any], Tree] | None:
        """What is computed once per upper step."""
        ...

    @property
    def joint(self) -> Callable[..., tuple[Tensor, Tensor]] | None:
        """F and f from one pass."""
        ...

    @property
    def evaluations(self) -> Evaluations:
        """The counts."""
        ...

    @property
    def world(self) -> World:
        """The processes of the run."""
        ...

    @property
    def stated(self) -> tuple[str, ...]:
        """The kinds of constraints that there are."""
        ...

    def call(self, name: str, x: Tree, y: Tree, data: Any) -> Any:
        """An objective or a kind of constraints by name."""
        ...

    def project_y(self, y: Tree) -> Tree:
        """The projection of y onto Y."""
        ...

    @property
    def y_set(self) -> Any:
        """Y."""
        ...


class OfRank:
    """The part of an evaluator that knows of other processes: with one process, all of this is what is given."""

    problem: Objectives
    world: World
    _shares: Shares | None

    def _part(self, name: str, x: Tree, y: Tree, data: Any) -> Tensor:
        """What the rows of this rank add to an objective: all of it where there is one process."""
        if self._shares is None:
            return self.problem.call(name, x, y, data)
        share: Share = getattr(self._shares, name)
        return share.part * self._guarded(lambda: self.problem.call(name, x, y, data), (x, y), share.rows)

    def _guarded(self, call: Callable[[], Any], inputs: Tree, rows: int) -> Any:
        """A value that there is on every rank: zero where a rank has no rows, not a number where it fails."""
        found = self._value(call) if rows else None
        if found is not None:
            return found
        leaves = tree.leaves(inputs)
        # Not linear: its gradient can be differentiated too, and the other ranks wait for the sum in that derivative.
        zero = 0.0 * torch.stack([t.double().mean() for t in leaves]).sum().sin().to(leaves[0].dtype)
        return torch.nan * zero if rows or self.world.void else zero

    def _value(self, call: Callable[[], Any]) -> Any:
        """A value; None where it, or another one before it in this step, failed on this rank."""
        return None if self.world.void else self.world.attempt(call, None)

    def _sum(self, values: Tree, *gradients: Tree) -> tuple[Any, ...]:
        """The sums of values and gradients over all ranks, in one all-reduce."""
        if self.world.size == 1 or not tree.leaves((values, gradients)):
            return (values, *gradients)
        summed, rest = self.world.sum(tree.leaves(values), tree.leaves(gradients))
        return (tree.unflatten(values, summed), *tree.unflatten(gradients, rest))

    def _sum_with_x(self, values: Tree, in_x: Tree, *gradients: Tree) -> tuple[Any, ...]:
        """:meth:`_sum` with a gradient in x: where the rows of x lie on their ranks, so does it."""
        if not self.world.sharded:
            return self._sum(values, in_x, *gradients)
        values, *rest = self._sum(values, *gradients)
        return (values, in_x, *rest)

    def total(self, value: Tensor) -> Tensor:
        """The sum over the ranks of a value that :meth:`F` or :meth:`f` gave."""
        found: Tensor = self._sum(value.detach())[0]
        return found


def without(shares: Shares | None) -> Shares | None:
    """Shares that make every value not a number, where what all values rest on failed."""
    return shares and Shares(*(Share(share.rows, torch.nan * share.part) for share in shares))
