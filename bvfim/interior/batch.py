"""A problem at many x at once: values and first gradients of a batch of starts, counted for each start."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core import constraints
from bvfim.core.augmented import Augmented, Terms, violation
from bvfim.core.backends import AUTOGRAD
from bvfim.core.evaluator import At
from bvfim.core.problem import Problem
from bvfim.distributed.world import ALONE
from bvfim.interior.space import Space

KINDS = ("upper", "lower", "forward")
"""What is counted for each start, in the order of the columns of ``counts``."""
SAME = 1e-3
"""How closely a mapped gradient must agree with one taken alone: a mistake is larger, rounding in float32 smaller."""


class Batch:
    """The problem for starts that are the rows of matrices, each in its own units.

    Values come from ``torch.func.vmap`` where both objectives can be mapped, and from a loop where not. ``counts`` has,
    for each start, the gradients of F, the gradients of f and the values that it asked for. Where the problem has
    constraints, ``augmented`` has their terms, which F and f contain.
    """

    def __init__(
        self, problem: Problem, x: Space, y: Space, counts: Tensor, augmented: Augmented | None = None
    ) -> None:
        self.problem, self.x, self.y, self.counts, self.augmented = problem, x, y, counts, augmented

    def at(self, x: Tensor, members: Tensor) -> BatchAt:
        """The problem at each row of x; ``members`` says which starts they belong to."""
        with torch.no_grad():
            nothing = [None] * len(x)
            contexts = self.problem.world.attempt(lambda: self.contexts(self.x.of(members).plain(x)), nothing)
            return BatchAt(self, x, members, contexts)

    def contexts(self, x: Tensor) -> Any:
        """The contexts of plain rows: a tree with a leading dimension where rows are mapped, else a list."""
        context = self.problem.context
        if len(x) > 1 and self.mapped:
            return None if context is None else torch.func.vmap(lambda v: context(self.x.tree(v), None))(x)
        return [None if context is None else context(self.x.tree(v), None) for v in x]

    @property
    def mapped(self) -> bool:
        """Whether the objectives can be mapped; tried once for a problem."""
        if "mapped" not in self.problem.memo:
            world = self.problem.world
            self.problem.memo["mapped"] = True
            self.problem.memo["mapped"] = not world.agreed([not world.attempt(self._can_be_mapped, False)])[0]
        return bool(self.problem.memo["mapped"])

    def _can_be_mapped(self) -> bool:
        alone = self.problem.among(ALONE)
        alone.memo["mapped"] = True
        spaces = Space(self.x.like, self.x.own), Space(self.y.like, self.y.own)
        found = []
        for copies in (1, 2):
            x, y = (tree.flatten(v.like).detach().repeat(copies, 1) for v in (self.x, self.y))
            plain = Batch(alone, *spaces, self.counts, self.augmented and self.augmented.ones(x))
            try:
                parts = plain.at(x, torch.arange(copies)).barrier_parts(y, y, torch.ones(copies).to(y))
            except Exception:
                if copies == 1:
                    raise
                return False  # whatever an objective raises under vmap, it can't be mapped
            found.append([p[-1] for p in parts])
        return all(torch.allclose(a, b, rtol=SAME, equal_nan=True) for a, b in zip(*found, strict=True))


class BatchAt(At):
    """The functions F(x, .) and f(x, .) for each row x of a matrix: a value a row, in float64.

    No row depends on another, so the gradient of a sum of values has the gradient of each in its row.
    """

    def __init__(self, batch: Batch, x: Tensor, members: Tensor, contexts: Any) -> None:
        self.problem, self.backend, self.world = batch.problem, AUTOGRAD, batch.problem.world
        self._shares = self.world.shares(None, x)
        self.batch, self.x, self.members, self.contexts = batch, x, members, contexts
        self.of_x, self.of_y = batch.x.of(members), batch.y.of(members)
        self.u = [x]
        self._differentiated: tuple[list[Tensor], Any] | None = None
        self.plain = batch.augmented is None

    @property
    def current(self) -> Augmented | None:
        """The terms of constraints, as they are now; None for the objectives alone."""
        return None if self.plain else self.batch.augmented

    @property
    def bare(self) -> BatchAt:
        """The same without the terms of constraints."""
        found = copy.copy(self)
        found.plain, found.u = True, [self.x]
        return found

    def _terms(self, x: Tensor) -> Terms | None:
        """The terms of these rows."""
        return None if self.current is None else self.current.terms.take(self.members).at(x)

    def take(self, rows: Tensor) -> BatchAt:
        """Some of the rows."""
        contexts = self.contexts
        if isinstance(contexts, list):
            contexts = [contexts[i] for i in rows.tolist()]
        elif contexts is not None:
            contexts = tree.map(lambda t: t[rows], contexts)
        found = BatchAt(self.batch, self.x[rows], self.members[rows], contexts)
        found.plain = self.plain
        return found

    def note(self, **times: int) -> None:
        """Count evaluations, for each start and for the problem."""
        for kind, number in times.items():
            column = self.batch.counts[:, KINDS.index(kind)]
            column.index_add_(0, self.members, torch.full_like(self.members, number))
        super().note(**{kind: number * len(self.members) for kind, number in times.items()})

    def F(self, u: list[Tensor], y: Tensor) -> Tensor:
        """F at every (x, y)."""
        return self._of_rank(self._each("upper", u, y))

    def f(self, u: list[Tensor], y: Tensor) -> Tensor:
        """f at every (x, y)."""
        return self._of_rank(self._each("lower", u, y))

    def both(self, u: list[Tensor], y: Tensor) -> tuple[Tensor, Tensor]:
        """F and f, from one pass where the problem has ``joint``."""
        if self.problem.joint is None and self.current is None:
            return self.F(u, y), self.f(u, y)
        F, f = self._each("joint", u, y)
        return self._of_rank(F), self._of_rank(f)

    def _of_rank(self, values: Tensor) -> Tensor:
        """What this rank adds to the values: all ranks count alike, since there are no batches."""
        return values.double() if self._shares is None else self._shares.lower.part * values.double()

    def _contexts_at(self, u: list[Tensor]) -> Any:
        """The contexts; where x is differentiated they are computed from it again, once for all that is asked of it."""
        if u is self.u:
            return self.contexts
        if self._differentiated is None or self._differentiated[0] is not u:
            self._differentiated = u, self.batch.contexts(self.of_x.plain(u[0]))
        return self._differentiated[1]

    def _each(self, name: str, u: list[Tensor], y: Tensor) -> Any:
        """An objective row by row; where it fails on one of several ranks, not a number."""
        found = self._value(lambda: self._row_by_row(name, u, y))
        if found is None:
            found = torch.nan * (u[0].sum(-1) + y.sum(-1))
            return (found, found) if name == "joint" else found
        return found

    def _row_by_row(self, name: str, u: list[Tensor], y: Tensor) -> Any:
        contexts, x, y, terms = self._contexts_at(u), self.of_x.plain(u[0]), self.of_y.plain(y), self._terms(u[0])
        one = partial(self._one, name)
        if isinstance(contexts, list):
            found = [one(*row) for row in zip(x, contexts, y, _rows_of(terms, len(x)), strict=True)]
            pairs = name == "joint"
            return tuple(map(torch.stack, zip(*found, strict=True))) if pairs else torch.stack(found)
        in_dims = (0, None if contexts is None else 0, 0, None if terms is None else 0)
        return torch.func.vmap(one, in_dims=in_dims)(x, contexts, y, terms)

    def _one(self, name: str, x: Tensor, context: Any, y: Tensor, terms: Terms | None) -> Any:
        """An objective of one row, or both, with the terms of its constraints."""
        problem, at = self.problem, (self.batch.x.tree(x), self.batch.y.tree(y), context)
        if terms is None or self.current is None:
            return problem.call(name, *at)
        own, values = self.current._replace(terms=terms), constraints.values(problem, *at)
        if name == "constraints":
            return own.scaled(values)
        added = {"upper": own.upper, "lower": own.lower}
        if name != "joint":
            return problem.call(name, *at) + added[name](values)
        pair = [problem.call(part, *at) for part in added] if problem.joint is None else problem.call(name, *at)
        return tuple(value + add(values) for value, add in zip(pair, added.values(), strict=True))

    @torch.no_grad()
    def distances(self, y: Tensor) -> Tensor:
        """Every constraint at (x, y), as a distance: (B, M)."""
        self.note(forward=1)
        found: Tensor = self._row_by_row("constraints", self.u, y)
        return found

    def least_squares_grad(self, y: Tensor, lower: int | None = None) -> tuple[Tensor, Tensor]:
        """Half the sum of squares of what is violated, of the first entries alone if given, and its gradient in w."""
        assert self.current is not None
        self.note(lower=1)
        equal = self.current.layout.equal[:lower]

        def value(u: list[Tensor], y: Tensor) -> Tensor:
            return violation(self._row_by_row("constraints", u, y)[:, :lower], equal).square().sum(1) / 2

        found, pull, _ = self.backend.vjp(value, self.u, y)
        return found, torch.cat(tree.leaves(pull(torch.ones_like(found))), -1)

    def jacobian(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Every constraint at (x, y), as a distance, and its gradient in w: (B, M) and (B, M, size of w)."""
        self.note(lower=1)
        found, pull, _ = self.backend.vjp(lambda u, y: self._row_by_row("constraints", u, y), self.u, y)
        rows = []
        for j in range(found.shape[1]):
            one = torch.zeros_like(found).index_fill(1, torch.tensor([j], device=found.device), 1.0)
            rows.append(torch.cat(tree.leaves(pull(one, again=True)), -1))
        return found, torch.stack(rows, 1).double()

    @torch.no_grad()
    def lower_many(self, y: Any) -> Tensor:
        """f at (x, y_j) for several y_j a row: from (B, k, n) to (B, k)."""
        self.note(forward=y.shape[1])
        x, y, terms = self.of_x.plain(self.x), self.of_y.plain(y), self._terms(self.x)

        def many(x: Tensor, context: Any, y: Tensor, terms: Terms | None) -> Tensor:
            def one(v: Tensor) -> Any:
                return self._one("lower", x, context, v, terms)

            return torch.func.vmap(one)(y) if self.batch.mapped else torch.stack([one(v) for v in y])

        def every() -> Tensor:
            if isinstance(self.contexts, list):
                return torch.stack(
                    [many(*row) for row in zip(x, self.contexts, y, _rows_of(terms, len(x)), strict=True)]
                )
            in_dims = (0, None if self.contexts is None else 0, 0, None if terms is None else 0)
            return torch.func.vmap(many, in_dims=in_dims)(x, self.contexts, y, terms)

        found = self._value(every)
        return self._sum(self._of_rank(torch.nan * y.sum(-1) if found is None else found))[0]

    def _sum_but_u(self, value: Tensor, in_u: list[Tensor], in_y: Tensor) -> tuple[Any, ...]:
        """Here u is x: nothing is left to be pulled."""
        return self._sum(value, in_u, in_y)

    def upper_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """F and its gradient in (x, y)."""
        F, in_u, in_y = self.upper_grads(y)
        return F, torch.cat([*in_u, in_y], -1)

    def both_grads(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients in (x, y) of F and of f."""
        self.note(upper=1, lower=1)
        (F, f), pull, _ = self.backend.vjp(self.both, self.u, y)
        of_F, of_f = pull((torch.ones_like(F), None), again=True), pull((None, torch.ones_like(f)))
        _, in_F, in_f = self._sum((), *(torch.cat(tree.leaves(part), -1) for part in (of_F, of_f)))
        return in_F, in_f

    def barrier_grads(self, y: Tensor, z: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients in (x, y) of F(x, y) and of weight (f(x, y) - f(x, z))."""
        self.note(upper=1, lower=2)
        return self.barrier_parts(y, z, weight)

    def barrier_parts(self, y: Tensor, z: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`barrier_grads`, not counted."""

        def values(u: list[Tensor], y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return *self.both(u, y), self.f(u, z.detach())

        (F, _, _), pull, _ = self.backend.vjp(values, self.u, y)
        of_F = pull((torch.ones_like(F), None, None), again=True)
        of_f = pull((None, weight.double(), -weight.double()))
        _, in_F, in_f = self._sum((), *(torch.cat(tree.leaves(part), -1) for part in (of_F, of_f)))
        return in_F, in_f


def _rows_of(terms: Terms | None, count: int) -> list[Terms | None]:
    """The terms of each row."""
    return [None] * count if terms is None else [Terms(*row) for row in zip(*terms, strict=True)]
