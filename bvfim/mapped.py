"""Many starts of an estimator at once: its step, mapped over rows.

The estimators never ask the host anything, so ``torch.func.vmap`` can map a whole estimate over the starts. Only the
derivatives must then come from ``torch.func`` too, which :class:`MappedAt` sees to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bvfim import tree
from bvfim.methods import Estimator
from bvfim.problem import At, LinearMap, Objective, Problem, Pullback, Weigh
from bvfim.status import Status
from bvfim.tree import Tree

ENDS = (None, Status.NON_FINITE, Status.SLACK_LOST)
"""How a row may end before the others; its place here is the row's entry in ``RowsState.ended``."""


class MappedAt(At):
    """The problem at one x, with derivatives that can be mapped."""

    def lower_grad(self, y: Tree) -> tuple[Tensor, Tree]:
        """f and its gradient in y."""
        self.count.lower += 1
        return self._lower_grad(y)

    def _lower_grad(self, y: Tree) -> tuple[Tensor, Tree]:
        gradient, f = torch.func.grad_and_value(lambda y: self.f(self.u, y))(y)
        return f, gradient

    def weighted_grad(self, y: Tree, weigh: Weigh) -> tuple[Tensor, Tensor, Tree]:
        """F, f and a F_y + b f_y, where (a, b) = weigh(F, f) are held constant."""
        self.count.upper += 1
        self.count.lower += 1
        return self._weighted_grad(y, weigh)

    def _weighted_grad(self, y: Tree, weigh: Weigh) -> tuple[Tensor, Tensor, Tree]:
        (F, f), pull, *_ = torch.func.vjp(lambda y: self.both(self.u, y), y)
        return F, f, pull(weigh(F, f))[0]

    def barrier_grad(self, y: Tree, z: Tree, weigh: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tree]:
        """F, f and F_x(x, y) + w (f_x(x, y) - f_x(x, z)) with w = weigh(f) held constant, a tree like x."""
        self.count.upper += 1
        self.count.lower += 2
        (F, f, _), pull, *_ = torch.func.vjp(lambda u: (*self.both(u, y), self.f(u, z)), self.u)
        weight = weigh(f)
        return F, f, self.pull(pull((torch.ones_like(F), weight, -weight))[0])

    def vjp(self, fn: Callable[..., tuple[Tree, Tree]], *inputs: Tree) -> tuple[Tree, Pullback, Tree]:
        """The value of ``fn``, the map v -> (its Jacobian)' v, and what else it gave."""
        value, pull, *more = torch.func.vjp(fn, *inputs, has_aux=True)
        return value, pull, more[0]

    def lower_products(self, y: Tree) -> tuple[Tensor, Tree, LinearMap, LinearMap]:
        """f, f_y, and the maps v -> f_yy v and v -> f_uy v."""
        self.count.lower += 1
        gradient = torch.func.grad_and_value(self.f, argnums=1)
        f_y, pull, f = cast(Any, torch.func.vjp)(gradient, self.u, y, has_aux=True)

        def hessian(v: Tree) -> Tree:
            self.count.hvp += 1
            return pull(v)[1]

        def cross(v: Tree) -> Tree:
            self.count.jvp += 1
            return pull(v)[0]

        return f, f_y, hessian, cross

    def _grads(self, objective: Objective, y: Tree) -> tuple[Tensor, list[Tensor], Tree]:
        (in_u, in_y), value = torch.func.grad_and_value(objective, argnums=(0, 1))(self.u, y)
        return value, in_u, in_y

    def _grad_at(self, objective: Objective, u: list[Tensor], y: Tree, create_graph: bool) -> Tree:
        return torch.func.grad(objective, argnums=1)(u, y)


class Stacked(Problem):
    r"""All starts of a problem as one problem, with one start in each row of every leaf of x and y.

    .. math:: F(X, Y) = \sum_i F(x_i, y_i), \qquad f(X, Y) = \sum_i f(x_i, y_i)
    """

    def call(self, name: str, x: Tree, y: Tree, data: Any) -> Any:
        """The sum over the rows."""
        row = super().call
        return tree.map(lambda values: values.sum(0), torch.func.vmap(lambda x, y: row(name, x, y, None))(x, y))

    def project_x(self, x: Tree) -> Tree:
        """The projection of each row onto X."""
        return torch.func.vmap(super().project_x)(x)

    def project_y(self, y: Tree) -> Tree:
        """The projection of each row onto Y."""
        return torch.func.vmap(super().project_y)(y)


class _Row(Problem):
    """One start of a stacked problem, inside of the map."""

    def at(self, x: Tree, batch: Any = None) -> At:
        return MappedAt(self, x, batch)


class RowsState(NamedTuple):
    """The states of all rows, what each reported of its last step, and how far each came.

    A row that ended keeps its last good x and state; the others go on.
    """

    own: Any
    info: dict[str, Tensor]
    x: Tree
    ended: Tensor
    steps: Tensor


@dataclass(frozen=True)
class Rows(Estimator):
    """An estimator over a :class:`Stacked` problem: ``method``, for each row by itself."""

    method: Estimator
    row: Problem

    @classmethod
    def of(cls, method: Estimator, problem: Problem) -> Rows:
        """The method on the rows of a problem, with counters of its own."""
        return cls(method, _Row(problem.upper, problem.lower, problem.x_set, problem.y_set, None, problem.joint))

    def cautions(self, steps: int) -> list[str]:
        """Those of the method."""
        return getattr(self.method, "cautions", lambda steps: [])(steps)

    def init(self, problem: Problem, x: Tree, y: Tree) -> RowsState:
        """Every row under way."""
        count = len(tree.leaves(x)[0])
        own = torch.func.vmap(lambda x, y: self.method.init(self.row, x, y))(x, y)
        none = torch.zeros(count, dtype=torch.int64, device=tree.leaves(x)[0].device)
        return RowsState(own, {}, x, none, none)

    def estimate(self, problem: Problem, x: Tree, state: RowsState, k: int, data: Any) -> tuple[Tree, Any, Any]:
        """The estimate of each row; zero for those that ended."""

        def one(x: Tree, own: Any) -> tuple[Tree, Any, dict[str, Tensor]]:
            gradient, own, info = self.method.estimate(self.row, x, own, k, None)
            return gradient, own, {**info, "grad_norm": tree.norm(gradient)}

        gradient, own, info = torch.func.vmap(one)(x, state.own)
        finite = torch.stack([info[name].isfinite() for name in ("upper", "lower", "grad_norm")]).all(0)
        outside = info["slack"] <= 0 if "slack" in info else torch.zeros_like(finite)
        ended = torch.where(state.ended > 0, state.ended, torch.where(outside, 2, (~finite).long()))
        going = ended == 0

        def where(which: Tensor, new: Tree, old: Tree) -> Tree:
            return tree.map(lambda a, b: torch.where(which.reshape(-1, *[1] * (a.dim() - 1)), a, b), new, old)

        gradient = where(going, gradient, tree.zeros_like(gradient))
        found = RowsState(
            own=where(going, own, state.own),
            info=info,
            x=where(state.ended == 0, x, state.x),
            ended=ended,
            steps=state.steps + going,
        )
        whole = {name: torch.where(going, info[name], 0.0).sum() for name in ("upper", "lower")}
        return gradient, found, whole
