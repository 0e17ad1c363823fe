"""A problem at many x at once: values and first gradients of a batch of starts, counted for each start."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bvfim import tree
from bvfim.flat import Flat
from bvfim.problem import Problem

UPPER, LOWER, FORWARD = range(3)


class Batch:
    """The problem for starts that are the rows of matrices.

    Values come from ``torch.func.vmap`` where both objectives can be mapped, and from a loop where not; a gradient is
    that of the sum, since no row depends on another. ``counts`` has, for each start, the gradients of F, the gradients
    of f and the values that it asked for.
    """

    def __init__(self, problem: Problem, x: Flat, y: Flat, counts: Tensor) -> None:
        self.problem, self.x, self.y, self.counts = problem, x, y, counts

    def at(self, x: Tensor, members: Tensor) -> Rows:
        """The problem at each row of x; ``members`` says which starts they belong to."""
        with torch.no_grad():
            return Rows(self, x, members, self.contexts(x))

    def contexts(self, x: Tensor) -> Any:
        """The context of each row: a tree with a leading dimension where rows are mapped, else a list."""
        context = self.problem.context
        if len(x) > 1 and self.mapped:
            return None if context is None else torch.func.vmap(lambda v: context(self.x.tree(v), None))(x)
        return [None if context is None else context(self.x.tree(v), None) for v in x]

    def count(self, kind: int, members: Tensor, times: int = 1) -> None:
        """Note evaluations, for each start and for the problem."""
        self.counts[:, kind].index_add_(0, members, torch.full_like(members, times))
        total, name = times * len(members), ("upper", "lower", "forward")[kind]
        setattr(self.problem.evaluations, name, getattr(self.problem.evaluations, name) + total)

    @property
    def mapped(self) -> bool:
        """Whether the objectives can be mapped; tried once for a problem."""
        if "mapped" not in self.problem.memo:
            self.problem.memo["mapped"] = True
            self.problem.memo["mapped"] = self._can_be_mapped()
        return bool(self.problem.memo["mapped"])

    def _can_be_mapped(self) -> bool:
        nobody = torch.tensor([], dtype=torch.long)
        found = []
        for copies in (1, 2):
            x, y = (tree.flatten(v.like).detach().repeat(copies, 1) for v in (self.x, self.y))
            try:
                parts = self.at(x, nobody).gradients(y, y, torch.ones(copies).to(y))
            except Exception:
                if copies == 1:
                    raise
                return False  # whatever an objective raises under vmap, it can't be mapped
            found.append([p[-1] for p in parts])
        return all(torch.allclose(a, b, rtol=1e-3, equal_nan=True) for a, b in zip(*found, strict=True))


class Rows:
    """The functions F(x, .) and f(x, .) for each row x of a matrix. Values are in float64."""

    def __init__(self, batch: Batch, x: Tensor, members: Tensor, contexts: Any) -> None:
        self.batch, self.x, self.members, self.contexts = batch, x, members, contexts

    def take(self, rows: Tensor) -> Rows:
        """Some of the rows."""
        contexts = self.contexts
        if isinstance(contexts, list):
            contexts = [contexts[i] for i in rows.tolist()]
        elif contexts is not None:
            contexts = tree.map(lambda t: t[rows], contexts)
        return Rows(self.batch, self.x[rows], self.members[rows], contexts)

    def _evaluate(self, name: str, y: Tensor, x: Tensor | None = None, contexts: Any = None) -> Any:
        """An objective at every (x, y), not counted; x and its contexts may be given to differentiate through."""
        problem, xs, ys = self.batch.problem, self.batch.x, self.batch.y
        x, contexts = (self.x, self.contexts) if x is None else (x, contexts)

        def one(x: Tensor, context: Any, y: Tensor) -> Any:
            return problem.call(name, xs.tree(x), ys.tree(y), context)

        if isinstance(contexts, list):
            found = [one(*row) for row in zip(x, contexts, y, strict=True)]
            pairs = name == "joint"
            return tuple(map(torch.stack, zip(*found, strict=True))) if pairs else torch.stack(found)
        return torch.func.vmap(one, in_dims=(0, None if contexts is None else 0, 0))(x, contexts, y)

    def _both(self, y: Tensor, x: Tensor | None = None, contexts: Any = None) -> tuple[Tensor, Tensor]:
        """F and f, from one pass where the problem has ``joint``."""
        if self.batch.problem.joint is not None:
            return self._evaluate("joint", y, x, contexts)
        return self._evaluate("upper", y, x, contexts), self._evaluate("lower", y, x, contexts)

    @torch.no_grad()
    def values(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """F and f at (x, y)."""
        self.batch.count(FORWARD, self.members, 2)
        F, f = self._both(y)
        return F.double(), f.double()

    @torch.no_grad()
    def lower(self, y: Tensor) -> Tensor:
        """f at (x, y)."""
        self.batch.count(FORWARD, self.members)
        return self._evaluate("lower", y).double()

    @torch.no_grad()
    def lower_many(self, y: Tensor) -> Tensor:
        """f at (x, y_j) for several y_j a row: from (B, k, n) to (B, k)."""
        self.batch.count(FORWARD, self.members, y.shape[1])
        problem, xs, ys = self.batch.problem, self.batch.x, self.batch.y

        def many(x: Tensor, context: Any, y: Tensor) -> Tensor:
            def one(v: Tensor) -> Any:
                return problem.call("lower", xs.tree(x), ys.tree(v), context)

            return torch.func.vmap(one)(y) if self.batch.mapped else torch.stack([one(v) for v in y])

        if isinstance(self.contexts, list):
            return torch.stack([many(*row) for row in zip(self.x, self.contexts, y, strict=True)]).double()
        mapped = torch.func.vmap(many, in_dims=(0, None if self.contexts is None else 0, 0))
        return mapped(self.x, self.contexts, y).double()

    @torch.enable_grad()
    def lower_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """f and its gradient in y."""
        self.batch.count(LOWER, self.members)
        y = y.detach().requires_grad_()
        f = self._evaluate("lower", y)
        return f.detach().double(), tree.grad(f.sum(), y)

    @torch.enable_grad()
    def upper_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """F and its gradient in (x, y)."""
        self.batch.count(UPPER, self.members)
        x, y = self.x.detach().requires_grad_(), y.detach().requires_grad_()
        F = self._evaluate("upper", y, x, self.batch.contexts(x))
        return F.detach().double(), torch.cat(tree.grad(F.sum(), (x, y)), -1)

    def barrier_grad(self, y: Tensor, z: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients in (x, y) of F(x, y) and of weight (f(x, y) - f(x, z))."""
        self.batch.count(UPPER, self.members)
        self.batch.count(LOWER, self.members, 2)
        return self.gradients(y, z, weight)

    @torch.enable_grad()
    def gradients(self, y: Tensor, z: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`barrier_grad`, not counted."""
        x, y = self.x.detach().requires_grad_(), y.detach().requires_grad_()
        contexts = self.batch.contexts(x)
        F, f = self._both(y, x, contexts)
        weighted = (weight.to(f) * (f - self._evaluate("lower", z.detach(), x, contexts))).sum()
        of_F = tree.grad(F.sum(), (x, y), retain_graph=True)
        return torch.cat(of_F, -1), torch.cat(tree.grad(weighted, (x, y)), -1)
