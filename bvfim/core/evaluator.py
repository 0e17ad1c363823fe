r"""The problem at one x: values, derivatives, and counts of both.

:class:`At` is the only place where methods get these from. It is written once, on the two operations of a
:mod:`backend <bvfim.core.backends>`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.backends import Backend, Objective, Pullback
from bvfim.core.draw import Draw, Several
from bvfim.core.evaluations import Evaluations
from bvfim.tree import Tree

Weigh = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(F, f) -> the weights of their gradients."""
LinearMap = Callable[[Tree], Tree]
Number: TypeAlias = float | Tensor

MAPPED = 4
"""Up to how many points are evaluated one by one: setting a map up takes as long."""


class Saddle(NamedTuple):
    """F(x, y), f(x, y), f(x, z) and f(x, y0), and gradients in x, y and z; see :meth:`At.saddle_grad`."""

    upper: Tensor
    lower: Tensor
    lower_z: Tensor
    lower_start: Tensor
    in_x: Tree
    in_y: Tree
    in_z: Tree


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

    def call(self, name: str, x: Tree, y: Tree, data: Any) -> Any:
        """An objective by name."""
        ...

    def project_y(self, y: Tree) -> Tree:
        """The projection of y onto Y."""
        ...

    @property
    def y_set(self) -> Any:
        """Y."""
        ...


class At:
    r"""The problem at one x: the functions F(x, .) and f(x, .), their derivatives, and the counting.

    Everything that depends on x is gathered in ``u``, the list of the leaves of x followed by the
    floating-point leaves of the context c(x). Methods differentiate with respect to u, where c is a
    variable of its own, and :meth:`pull` turns the result into the gradient in x:
    :math:`g_x + (\partial c / \partial x)^\top g_c`.
    """

    def __init__(self, problem: Objectives, x: Tree, batch: Any, backend: Backend) -> None:
        self.problem, self.backend = problem, backend
        self._x = tree.detach(x)
        several = isinstance(batch, Draw) and isinstance(batch.lower, Several)
        self._turns: tuple[Any, ...] = batch.lower.draws[:-1] if several else ()
        self._batch = Draw(batch.upper, batch.lower.draws[-1]) if several else batch
        self._context: list[Any] = []
        self._attached: tuple[Tree, list[Tensor]] | None = None
        if problem.context is not None:
            with torch.enable_grad():
                source = tree.variable(x)
                value = problem.context(source, batch)
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
        return self.problem.call("upper", x, y, data.upper if isinstance(data, Draw) else data)

    def f(self, u: list[Tensor], y: Tree) -> Tensor:
        """f(x, y) with x and the context taken from u."""
        x, data = self._inputs(u)
        return self.problem.call("lower", x, y, data.lower if isinstance(data, Draw) else data)

    def both(self, u: list[Tensor], y: Tree) -> tuple[Tensor, Tensor]:
        """(F, f), from one pass where the problem has ``joint``."""
        if self.problem.joint is None:
            return self.F(u, y), self.f(u, y)
        x, data = self._inputs(u)
        return self.problem.call("joint", x, y, data)

    # -- values --

    @torch.no_grad()
    def upper(self, y: Tree) -> Tensor:
        """F(x, y)."""
        self.note(forward=1)
        return self.F(self.u, y)

    @torch.no_grad()
    def lower(self, y: Tree) -> Tensor:
        """f(x, y)."""
        self.note(forward=1)
        return self.f(self.u, y)

    @torch.no_grad()
    def values(self, y: Tree) -> tuple[Tensor, Tensor]:
        """(F(x, y), f(x, y))."""
        self.note(forward=2)
        return self.both(self.u, y)

    @torch.no_grad()
    def lower_many(self, ys: list[Tree]) -> Tensor:
        """f(x, y) for each y of a list, in one batch where the objective allows it."""
        self.note(forward=len(ys))
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
        return f, pull(torch.ones_like(f), of=0)

    def weighted_grad(self, y: Tree, weigh: Weigh) -> tuple[Tensor, Tensor, Tree]:
        """F, f and a F_y + b f_y in one backward pass, where (a, b) = weigh(F, f) are held constant."""
        self.note(upper=1, lower=1)
        (F, f), pull, _ = self.backend.vjp(partial(self.both, self.u), y)
        return F, f, pull(weigh(F, f), of=0)

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
        in_u, in_y = pull(torch.ones_like(value))
        return value, in_u, in_y

    def barrier_grad(self, y: Tree, z: Tree, weigh: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tree]:
        """F, f and F_x(x, y) + w (f_x(x, y) - f_x(x, z)) with w = weigh(f) held constant, a tree like x."""
        self.note(upper=1, lower=2)
        y, z = tree.detach(y), tree.detach(z)

        def barrier(u: list[Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            F, f = self.both(u, y)
            return F + weigh(f.detach()) * (f - self.f(u, z)), (F, f)

        value, pull, (F, f) = self.backend.vjp(barrier, self.u, has_aux=True)
        return F, f, self.pull(pull(torch.ones_like(value), of=0))

    def saddle_grad(self, y: Tree, z: Tree, start: Tree, a: Number, b: Number, rho: Number) -> Saddle:
        """The gradients of a F(x, y) + b (f(x, y) - (1 - rho) f(x, z) - rho f(x, y0)), in one backward pass.

        ``start`` is y0, where f is differentiated in x only: cheap where x weighs losses, a backward pass where x is in
        the network. An objective that draws random numbers (dropout, augmentation) draws the same for y, z and y0.
        """
        self.note(upper=1, lower=2, forward=1)
        start = tree.detach(start)

        def saddle(u: list[Tensor], y: Tree, z: Tree) -> tuple[Tensor, ...]:
            if self.problem.joint is None:
                F, noise = self.F(u, y), self.random_state()
                f = self.f(u, y)
            else:
                noise = self.random_state()
                F, f = self.both(u, y)
            self.restore_random_state(noise)
            f_z = self.f(u, z)
            self.restore_random_state(noise)
            return F, f, f_z, self.f(u, start)

        (F, f, f_z, f_0), pull, _ = self.backend.vjp(saddle, self.u, y, z)
        of_F, of_f = _weight(a, F), _weight(b, f)
        in_u, in_y, in_z = pull((of_F, of_f, (rho - 1) * of_f, -rho * of_f))
        return Saddle(F, f, f_z, f_0, self.pull(in_u), in_y, in_z)

    def random_state(self) -> Tensor | None:
        """The state of the random generator that objectives draw from; None while a step is recorded or compiled."""
        device = self.u[0].device
        if torch.compiler.is_compiling() or (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            return None
        return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()

    def restore_random_state(self, state: Tensor | None) -> None:
        """The inverse of :meth:`random_state`."""
        device = self.u[0].device
        if state is None:
            return
        if device.type == "cuda":
            torch.cuda.set_rng_state(state, device)
        else:
            torch.set_rng_state(state)

    def draws_random(self, y: Tree) -> bool:
        """Whether an objective draws random numbers; the generator is left as it was."""
        before = self.random_state()
        self.values(y)
        after = self.random_state()
        self.restore_random_state(before)
        return before is not None and after is not None and not torch.equal(before, after)

    def pull(self, gradient: list[Tensor]) -> Tree:
        """The gradient in x, from a gradient in u."""
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
        return self.backend.grad_and_value(self.f, u, y, create_graph)[0]

    def upper_grad_at(self, u: list[Tensor], y: Tree, create_graph: bool = True) -> Tree:
        """The gradient of F in y, by default as part of the graph over u and y."""
        self.note(upper=1)
        return self.backend.grad_and_value(self.F, u, y, create_graph)[0]

    def vjp(self, fn: Callable[..., tuple[Tree, Tree]], *inputs: Tree) -> tuple[Tree, Pullback, Tree]:
        """The value of ``fn``, the map v -> (its Jacobian)' v (trees like the inputs), and what else it gave."""
        return self.backend.vjp(fn, *inputs, has_aux=True)

    def lower_products(self, y: Tree) -> tuple[Tensor, Tree, LinearMap, LinearMap]:
        """f, f_y, and the maps v -> f_yy v (any number of times) and, once, v -> f_uy v."""
        self.note(lower=1)
        gradient = partial(self.backend.grad_and_value, self.f, create_graph=True)
        f_y, pull, f = self.backend.vjp(gradient, self.u, y, has_aux=True)

        def hessian(v: Tree) -> Tree:
            self.note(hvp=1)
            return pull(v, of=1, again=True)

        def cross(v: Tree) -> Tree:
            self.note(jvp=1)
            return pull(v, of=0)

        return f, f_y, hessian, cross

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


def _weight(number: Number, of: Tensor) -> Tensor:
    """The weight of a value, as a scalar like it."""
    return number.to(of.dtype) if isinstance(number, Tensor) else torch.full_like(of, number)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()
