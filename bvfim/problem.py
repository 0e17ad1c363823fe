r"""A bilevel problem, and the problem at one x.

.. math:: \min_{x \in X,\, y} F(x, y) \quad\text{s.t.}\quad y \in \arg\min_{y \in Y} f(x, y)

:class:`Problem` is what a user states. :meth:`Problem.at` fixes x (and the batch) and gives an
:class:`At`: the only place where methods get values and derivatives from, and where these are counted.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from bvfim import sets, tree
from bvfim.status import ProblemError
from bvfim.tree import Tree

Objective = Callable[[list[Tensor], Tree], Tensor]
"""F or f as a function of (u, y)."""
Weigh = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(F, f) -> the weights of their gradients."""
LinearMap = Callable[[Tree], Tree]
Pullback = Callable[[Tree], tuple[Tree, ...]]


@dataclass
class Evaluations:
    """How often each kind of evaluation was asked for.

    ``upper`` and ``lower`` count gradients of F and f, ``forward`` values without a gradient, ``hvp``
    products with the lower Hessian, ``jvp`` products with the mixed second derivative.
    """

    upper: int = 0
    lower: int = 0
    forward: int = 0
    hvp: int = 0
    jvp: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return dataclasses.asdict(self)


class Draw(NamedTuple):
    """The pair of batches that :class:`bvfim.Batches` drew: one for each objective.

    Example:
        >>> import bvfim
        >>> bvfim.Draw(upper="validation rows", lower="training rows").lower
        'training rows'
    """

    upper: Any
    lower: Any


class Several(NamedTuple):
    """Draws of f for one upper step: one for each inner step, and a last one that its values are taken with.

    Example:
        >>> import bvfim
        >>> bvfim.Draw(upper="validation rows", lower=bvfim.problem.Several(("rows 0", "rows 1"))).lower.draws[-1]
        'rows 1'
    """

    draws: tuple[Any, ...]


@dataclass(frozen=True)
class Problem:
    r"""A bilevel problem: minimise F(x, y) over x in X and y in argmin f(x, .) over Y.

    Args:
        upper: F. Takes ``(x, y)`` or ``(x, y, data)``, returns a scalar tensor.
        lower: f, likewise.
        x_set: X; a set, a tree of sets like x, or ``None`` for the whole space.
        y_set: Y, likewise.
        context: ``context(x, batch)`` computes once per upper step what does not depend on y (features,
            sample weights). Its value, a tree of tensors, becomes ``data``; the inner loops see it
            detached, and the gradient in x flows through it. ``batch`` is ``None`` without batches.
        joint: returns the pair (F, f) from one pass where the two share work. It takes what ``upper`` takes; with
            :class:`bvfim.Batches` it gets the pair of batches, a :class:`bvfim.Draw`.

    ``data`` is the batch that ``solve(batches=...)`` drew, or the value of ``context`` where there is one.

    Example:
        >>> import torch, bvfim
        >>> problem = bvfim.Problem(
        ...     upper=lambda x, y: ((x - 2) ** 2 + (y - 2) ** 2).sum(),
        ...     lower=lambda x, y: torch.sin(x + y).sum(),
        ...     x_set=bvfim.Box(-10, 10),
        ... )
        >>> at = problem.at(torch.tensor([1.0]))
        >>> at.upper(torch.tensor([2.0]))
        tensor(1.)
        >>> problem.evaluations.forward
        1
    """

    upper: Callable[..., Tensor]
    lower: Callable[..., Tensor]
    x_set: sets.SetTree = None
    y_set: sets.SetTree = None
    context: Callable[[Tree, Any], Tree] | None = None
    joint: Callable[..., tuple[Tensor, Tensor]] | None = None
    evaluations: Evaluations = field(default_factory=Evaluations, init=False, compare=False, repr=False)
    memo: dict[str, bool] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("upper", "lower", "context", "joint"):
            given = getattr(self, name)
            if not callable(given) and not (given is None and name in ("context", "joint")):
                raise ProblemError(f"{name} must be a function, not a {type(given).__name__}")

    @functools.cached_property
    def _takes_data(self) -> dict[str, bool]:
        return {name: accepts(getattr(self, name), 3) for name in ("upper", "lower", "joint")}

    def call(self, name: str, x: Tree, y: Tree, data: Any) -> Any:
        """The objective ``name`` at (x, y), with the data where there are some and it takes them. Not counted."""
        objective = getattr(self, name)
        return objective(x, y, data) if data is not None and self._takes_data[name] else objective(x, y)

    def counted_anew(self) -> Problem:
        """The same problem with counters of its own, at zero."""
        return dataclasses.replace(self)

    def at(self, x: Tree, batch: Any = None) -> At:
        """The problem at one x and one batch."""
        return At(self, x, batch)

    def project_x(self, x: Tree) -> Tree:
        """The projection of x onto X."""
        return sets.project(self.x_set, x)

    def project_y(self, y: Tree) -> Tree:
        """The projection of y onto Y."""
        return sets.project(self.y_set, y)


class At:
    r"""The problem at one x: the functions F(x, .) and f(x, .), their derivatives, and the counting.

    Everything that depends on x is gathered in ``u``, the list of the leaves of x followed by the
    floating-point leaves of the context c(x). Methods differentiate with respect to u, where c is a
    variable of its own, and :meth:`pull` turns the result into the gradient in x:
    :math:`g_x + (\partial c / \partial x)^\top g_c`.
    """

    retained: ClassVar[bool] = True
    """Whether gradients can be pulled through the context more than once."""

    def __init__(self, problem: Problem, x: Tree, batch: Any = None) -> None:
        self.problem = problem
        self.count = problem.evaluations
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

    def turn(self, t: int) -> At:
        """The problem as inner step t sees it: with a draw of f of its own where there are several, else as it is."""
        if not self._turns:
            return self
        own = copy.copy(self)
        own._batch = Draw(self._batch.upper, self._turns[t % len(self._turns)])
        return own

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
        self.count.forward += 1
        return self.F(self.u, y)

    @torch.no_grad()
    def lower(self, y: Tree) -> Tensor:
        """f(x, y)."""
        self.count.forward += 1
        return self.f(self.u, y)

    @torch.no_grad()
    def values(self, y: Tree) -> tuple[Tensor, Tensor]:
        """(F(x, y), f(x, y))."""
        self.count.forward += 2
        return self.both(self.u, y)

    # -- first gradients --

    @torch.enable_grad()
    def lower_grad(self, y: Tree) -> tuple[Tensor, Tree]:
        """f and its gradient in y."""
        self.count.lower += 1
        y = tree.variable(y)
        f = self.f(self.u, y)
        return f.detach(), tree.grad(f, y)

    @torch.enable_grad()
    def weighted_grad(self, y: Tree, weigh: Weigh) -> tuple[Tensor, Tensor, Tree]:
        """F, f and a F_y + b f_y in one backward pass, where (a, b) = weigh(F, f) are held constant."""
        self.count.upper += 1
        self.count.lower += 1
        y = tree.variable(y)
        F, f = self.both(self.u, y)
        weights = weigh(F.detach(), f.detach())
        return F.detach(), f.detach(), tree.grad([F, f], y, weights)

    def upper_grads(self, y: Tree) -> tuple[Tensor, list[Tensor], Tree]:
        """F, its gradient in u and its gradient in y."""
        self.count.upper += 1
        return self._grads(self.F, y)

    def lower_grads(self, y: Tree) -> tuple[Tensor, list[Tensor], Tree]:
        """f, its gradient in u and its gradient in y."""
        self.count.lower += 1
        return self._grads(self.f, y)

    @torch.enable_grad()
    def _grads(self, objective: Objective, y: Tree) -> tuple[Tensor, list[Tensor], Tree]:
        u, y = tree.variable(self.u), tree.variable(y)
        value = objective(u, y)
        in_u, in_y = tree.grad(value, (u, y))
        return value.detach(), in_u, in_y

    @torch.no_grad()
    def lower_many(self, ys: list[Tree]) -> Tensor:
        """f(x, y) for each y of a list, in one batch where the objective allows it."""
        self.count.forward += len(ys)
        if len(ys) > 4:
            try:
                return torch.func.vmap(lambda *leaves: self.f(self.u, tree.unflatten(ys[0], leaves)))(
                    *[torch.stack(t) for t in zip(*map(tree.leaves, ys), strict=True)]
                )
            except (RuntimeError, NotImplementedError):
                pass  # an objective that can't be mapped is called once for each
        return torch.stack([self.f(self.u, y) for y in ys])

    @torch.enable_grad()
    def barrier_grad(self, y: Tree, z: Tree, weigh: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tree]:
        """F, f and F_x(x, y) + w (f_x(x, y) - f_x(x, z)) with w = weigh(f) held constant, a tree like x."""
        self.count.upper += 1
        self.count.lower += 2
        u, y, z = tree.variable(self.u), tree.detach(y), tree.detach(z)
        F, f = self.both(u, y)
        gradient = tree.grad(F + weigh(f.detach()) * (f - self.f(u, z)), u)
        return F.detach(), f.detach(), self.pull(gradient)

    def inner(self, step: Callable[[Tree], Tree]) -> Callable[[Tree], Tree]:
        """A step that an inner loop takes many times; an accelerated run compiles it here."""
        return step

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
        through = tree.grad([c for c, _ in pairs], source, [g for _, g in pairs], retain_graph=self.retained)
        return tree.add(in_x, through)

    # -- graphs of the lower gradient, for second derivatives --

    def lower_grad_at(self, u: list[Tensor], y: Tree, create_graph: bool = True) -> Tree:
        """The gradient of f in y, by default as part of the autograd graph over u and y."""
        self.count.lower += 1
        return self._grad_at(self.f, u, y, create_graph)

    def upper_grad_at(self, u: list[Tensor], y: Tree, create_graph: bool = True) -> Tree:
        """The gradient of F in y, by default as part of the autograd graph over u and y."""
        self.count.upper += 1
        return self._grad_at(self.F, u, y, create_graph)

    @torch.enable_grad()
    def _grad_at(self, objective: Objective, u: list[Tensor], y: Tree, create_graph: bool) -> Tree:
        y = y if create_graph else tree.variable(y)
        return tree.grad(objective(u, y), y, create_graph=create_graph)

    @torch.enable_grad()
    def vjp(self, fn: Callable[..., tuple[Tree, Tree]], *inputs: Tree) -> tuple[Tree, Pullback, Tree]:
        """The value of ``fn``, the map v -> (its Jacobian)' v (trees like the inputs), and what else it gave."""
        inputs = tree.variable(inputs)
        value, more = fn(*inputs)
        return tree.detach(value), lambda v: tree.grad(tree.leaves(value), inputs, tree.leaves(v)), tree.detach(more)

    @torch.enable_grad()
    def lower_products(self, y: Tree) -> tuple[Tensor, Tree, LinearMap, LinearMap]:
        """f, f_y, and the maps v -> f_yy v (any number of times) and, once, v -> f_uy v."""
        self.count.lower += 1
        u, y = tree.variable(self.u), tree.variable(y)
        f = self.f(u, y)
        f_y = tree.leaves(tree.grad(f, y, create_graph=True))

        def hessian(v: Tree) -> Tree:
            self.count.hvp += 1
            return tree.grad(f_y, y, tree.leaves(v), retain_graph=True)

        def cross(v: Tree) -> Tree:
            self.count.jvp += 1
            return tree.grad(f_y, u, tree.leaves(v))

        return f.detach(), tree.unflatten(y, [g.detach() for g in f_y]), hessian, cross

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


def accepts(objective: Callable[..., Any] | None, count: int) -> bool:
    """Whether ``objective`` can be called with ``count`` positional arguments, as far as its signature tells."""
    if objective is None:
        return False
    try:
        signature = inspect.signature(objective.forward if isinstance(objective, torch.nn.Module) else objective)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
