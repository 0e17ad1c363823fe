r"""The problem at one x: values, derivatives, and counts of both.

:class:`At` is the only place where methods get these from. It is written once, on the two operations of a
:mod:`backend <bvfim.core.backends>`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.augmented import Augmented
from bvfim.core.backends import Backend, Objective, Pullback
from bvfim.core.constraints import values
from bvfim.core.draw import Draw, Several
from bvfim.core.envelopes import Envelopes
from bvfim.core.of_rank import Objectives, without
from bvfim.tree import Tree

Weigh = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(F, f) -> the weights of their gradients."""
LinearMap = Callable[[Tree], Tree]

MAPPED = 4
"""Up to how many points are evaluated one by one: setting a map up takes as long."""


class At(Envelopes):
    r"""The problem at one x: the functions F(x, .) and f(x, .), their derivatives, and the counting.

    Everything that depends on x is gathered in ``u``, the list of the leaves of x followed by the
    floating-point leaves of the context c(x). Methods differentiate with respect to u, where c is a
    variable of its own, and :meth:`pull` turns the result into the gradient in x:
    :math:`g_x + (\partial c / \partial x)^\top g_c`.

    Where there are several processes, :meth:`F` and :meth:`f` are what the rows of this rank add to the value, and
    gradients in u are those of these parts until they are pulled. All other values and gradients are sums over ranks.
    """

    def __init__(
        self, problem: Objectives, x: Tree, batch: Any, backend: Backend, augmented: Augmented | None = None
    ) -> None:
        self.problem, self.backend, self.world = problem, backend, problem.world
        self.augmented = augmented
        self._x = tree.detach(x)
        several = isinstance(batch, Draw) and isinstance(batch.lower, Several)
        self._turns: tuple[Any, ...] = batch.lower.draws[:-1] if several else ()
        self._batch = Draw(batch.upper, batch.lower.draws[-1]) if several else batch
        self._shares = self.world.shares(self._batch, tree.leaves(x)[0])
        self._context: list[Any] = []
        self._attached: tuple[Tree, list[Tensor]] | None = None
        if problem.context is not None:
            with torch.enable_grad():
                source = tree.variable(x)
                value = self.world.attempt(partial(problem.context, source, batch), None)
            if value is None:
                self._shares = without(self._shares)
            self._structure = value
            self._context = [t.detach() if isinstance(t, Tensor) else t for t in tree.leaves(value)]
            self._attached = source, [t for t in tree.leaves(value) if _is_float(t)]
        self.u: list[Tensor] = tree.leaves(self._x) + [t for t in self._context if _is_float(t)]

    @property
    def context(self) -> list[Any]:
        """The leaves of the context, detached; none where there is no context."""
        return self._context

    def turn(self, t: int) -> At:
        """The problem as inner step t sees it: with a draw of f of its own where there are several, else as it is."""
        if not self._turns:
            return self
        own = copy.copy(self)
        own._batch = Draw(self._batch.upper, self._turns[t % len(self._turns)])
        own._shares = self.world.shares(own._batch, self.u[0])
        return own

    def note(self, **times: int) -> None:
        """Count evaluations: ``note(upper=1, lower=2)``."""
        if not torch.compiler.is_compiling():  # a compiled step that held a counter would be compiled for each value
            self.problem.evaluations.add(**times)

    def inner(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A step that an inner loop takes many times; an accelerated run compiles it here."""
        return self.backend.inner(step)

    # -- values as pure functions of (u, y), for methods that build graphs; not counted --

    def F(self, u: list[Tensor], y: Tree) -> Tensor:
        """F(x, y) with x and the context taken from u."""
        x, data = self._inputs(u)
        F = self._part("upper", x, y, data.upper if isinstance(data, Draw) else data)
        return F if self.augmented is None else F + self.augmented.upper(self.constraints(u, y)).to(F)

    def f(self, u: list[Tensor], y: Tree) -> Tensor:
        """f(x, y) with x and the context taken from u."""
        x, data = self._inputs(u)
        f = self._part("lower", x, y, data.lower if isinstance(data, Draw) else data)
        return f if self.augmented is None else f + self.augmented.lower(self.constraints(u, y)).to(f)

    def inputs(self) -> tuple[Tree, Any]:
        """x, and the batch or the context that objectives see."""
        return self._inputs(self.u)

    def constraints(self, u: list[Tensor], y: Tree) -> Tensor:
        """Every constraint at (x, y), as one vector, with x and the context taken from u."""
        x, data = self._inputs(u)
        return values(self.problem, x, y, data)

    def both(self, u: list[Tensor], y: Tree) -> tuple[Tensor, Tensor]:
        """(F, f), from one pass where the problem has ``joint``."""
        shares = self._shares
        several = shares is not None and 0 in (shares.upper.rows, shares.lower.rows)
        if self.problem.joint is None or several or self.augmented is not None:
            return self.F(u, y), self.f(u, y)
        x, data = self._inputs(u)
        if shares is None:
            return self.problem.call("joint", x, y, data)
        found = self._guarded(lambda: self.problem.call("joint", x, y, data), (x, y), shares.upper.rows)
        F, f = found if isinstance(found, tuple | list) else (found, found)
        return shares.upper.part * F, shares.lower.part * f

    # -- values --

    @torch.no_grad()
    def upper(self, y: Tree) -> Tensor:
        """F(x, y)."""
        self.note(forward=1)
        return self._sum(self.F(self.u, y))[0]

    @torch.no_grad()
    def lower(self, y: Tree) -> Tensor:
        """f(x, y)."""
        self.note(forward=1)
        return self._sum(self.f(self.u, y))[0]

    @torch.no_grad()
    def values(self, y: Tree) -> tuple[Tensor, Tensor]:
        """(F(x, y), f(x, y))."""
        self.note(forward=2)
        return self._sum(self.both(self.u, y))[0]

    @torch.no_grad()
    def lower_many(self, ys: list[Tree]) -> Tensor:
        """f(x, y) for each y of a list, in one batch where the objective allows it."""
        self.note(forward=len(ys))
        return self._sum(self._lower_many(ys))[0]

    def _lower_many(self, ys: list[Tree]) -> Tensor:
        if len(ys) > MAPPED:
            try:
                return torch.func.vmap(lambda *leaves: self.f(self.u, tree.unflatten(ys[0], leaves)))(
                    *[torch.stack(t) for t in zip(*map(tree.leaves, ys), strict=True)]
                )
            except (RuntimeError, NotImplementedError):
                pass  # an objective that can't be mapped is called once for each
        return torch.stack([self.f(self.u, y) for y in ys])

    # -- first gradients --

    def lower_grad(self, y: Tree) -> tuple[Tensor, Tree]:
        """f and its gradient in y."""
        self.note(lower=1)
        f, pull, _ = self.backend.vjp(partial(self.f, self.u), y)
        f, in_y = self._sum(f, pull(torch.ones_like(f), of=0))
        return f, in_y

    def weighted_grad(self, y: Tree, weigh: Weigh) -> tuple[Tensor, Tensor, Tree]:
        """F, f and a F_y + b f_y in one backward pass, where (a, b) = weigh(F, f) are held constant."""
        self.note(upper=1, lower=1)
        (F, f), pull, _ = self.backend.vjp(partial(self.both, self.u), y)
        ((F, f),) = self._sum((F, f))
        _, in_y = self._sum((), pull(weigh(F, f), of=0))
        return F, f, in_y

    def upper_grads(self, y: Tree) -> tuple[Tensor, list[Tensor], Tree]:
        """F, its gradient in u and its gradient in y."""
        self.note(upper=1)
        return self._grads(self.F, y)

    def lower_grads(self, y: Tree) -> tuple[Tensor, list[Tensor], Tree]:
        """f, its gradient in u and its gradient in y."""
        self.note(lower=1)
        return self._grads(self.f, y)

    def _grads(self, objective: Objective, y: Tree) -> tuple[Tensor, list[Tensor], Tree]:
        value, pull, _ = self.backend.vjp(objective, self.u, y)
        value, in_u, in_y = self._sum_but_u(value, *pull(torch.ones_like(value)))
        return value, in_u, in_y

    def _sum_but_u(self, value: Tensor, in_u: list[Tensor], in_y: Tree) -> tuple[Any, ...]:
        """:meth:`_sum` of a value and a gradient in y; that in u is summed when it is pulled."""
        value, in_y = self._sum(value, in_y)
        return value, in_u, in_y

    def pull(self, gradient: list[Tensor]) -> Tree:
        """The gradient in x, from a gradient in u."""
        _, in_x = self._sum_with_x((), self._pulled(gradient))
        return in_x

    def _pulled(self, gradient: list[Tensor]) -> Tree:
        """The gradient in x of the part of this rank."""
        count = len(tree.leaves(self._x))
        in_x = tree.unflatten(self._x, gradient[:count])
        if self._attached is None:
            return in_x
        source, outputs = self._attached
        pairs = [(c, g) for c, g in zip(outputs, gradient[count:], strict=True) if c.requires_grad]
        if not pairs:
            return in_x
        through = tree.grad([c for c, _ in pairs], source, [g for _, g in pairs], retain_graph=self.backend.retains)
        return tree.add(in_x, through)

    # -- gradients that are differentiated again --

    def lower_grad_at(self, u: list[Tensor], y: Tree, create_graph: bool = True) -> Tree:
        """The gradient of f in y, by default as part of the graph over u and y."""
        self.note(lower=1)
        return self.world.sum_in_graph(self.backend.grad_and_value(self.f, u, y, create_graph)[0])

    def upper_grad_at(self, u: list[Tensor], y: Tree, create_graph: bool = True) -> Tree:
        """The gradient of F in y, by default as part of the graph over u and y."""
        self.note(upper=1)
        return self.world.sum_in_graph(self.backend.grad_and_value(self.F, u, y, create_graph)[0])

    def vjp(self, fn: Callable[..., tuple[Tree, Tree]], *inputs: Tree) -> tuple[Tree, Pullback, Tree]:
        """The value of ``fn``, the map v -> (its Jacobian)' v (trees like the inputs), and what else it gave."""
        return self.backend.vjp(fn, *inputs, has_aux=True)

    def lower_products(self, y: Tree) -> tuple[Tensor, Tree, LinearMap, LinearMap]:
        """f, f_y, and the maps v -> f_yy v (any number of times) and, once, v -> f_uy v."""
        self.note(lower=1)
        gradient = partial(self.backend.grad_and_value, self.f, create_graph=True)
        f_y, pull, f = self.backend.vjp(gradient, self.u, y, has_aux=True)
        f, f_y = self._sum(f, f_y)

        def hessian(v: Tree) -> Tree:
            self.note(hvp=1)
            return self._sum((), pull(v, of=1, again=True))[1]

        def cross(v: Tree) -> Tree:
            self.note(jvp=1)
            return pull(v, of=0)

        return f, f_y, hessian, cross

    def lower_product(self, y: Tree, v: Tree) -> tuple[Tensor, Tree, list[Tensor], Tree]:
        """f, f_y, f_uy v and f_yy v, both products from one backward pass."""
        self.note(lower=1, hvp=1, jvp=1)
        gradient = partial(self.backend.grad_and_value, self.f, create_graph=True)
        f_y, pull, f = self.backend.vjp(gradient, self.u, y, has_aux=True)
        in_u, in_y = pull(v)
        f, f_y, in_y = self._sum(f, f_y, in_y)
        return f, f_y, in_u, in_y

    def tangents(self) -> list[Tensor]:
        """The derivative of u in each coordinate of x: m directions along a new leading dimension."""
        flat = tree.flatten(self._x)
        basis = torch.eye(flat.numel(), dtype=flat.dtype, device=flat.device)
        in_x = torch.func.vmap(lambda v: tree.leaves(tree.unravel(v, self._x)))(basis)
        if len(self.u) == len(in_x):
            return list(in_x)

        def context(x: list[Tensor]) -> list[Tensor]:
            assert self.problem.context is not None
            value = self.problem.context(tree.unflatten(self._x, x), self._batch)
            return [t for t in tree.leaves(value) if _is_float(t)]

        leaves = tree.leaves(self._x)
        in_c = torch.func.vmap(lambda v: torch.func.jvp(context, (leaves,), (v,))[1])(list(in_x))
        return [*in_x, *in_c]

    def _inputs(self, u: list[Tensor]) -> tuple[Tree, Any]:
        count = len(tree.leaves(self._x))
        x = tree.unflatten(self._x, u[:count])
        if self.problem.context is None:
            return x, self._batch
        variables = iter(u[count:])
        data = [next(variables) if _is_float(t) else t for t in self._context]
        return x, tree.unflatten(self._structure, data)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()
