"""How functions of trees are differentiated: by autograd, or by torch.func.

A backend gives two things, and everything that :class:`bvfim.core.evaluator.At` knows is built on them: the value of a
function with the map v -> (its Jacobian)' v, and a gradient in y that can itself be differentiated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from bvfim import tree
from bvfim.status import ProblemError
from bvfim.tree import Tree

Objective = Callable[[list[Tensor], Tree], Tensor]
"""F or f as a function of (u, y)."""

ONCE = {
    r"donated buffer|aot_autograd does not currently support double": (
        "torch.compile made it so: call the module that is not compiled, or choose bvfim.StochasticBVFIM() or "
        "bvfim.BVFIM(), which need no more than that"
    ),
    r"derivative for \S*backward\S* is not implemented|[Dd]ouble.backward|once_differentiable": (
        "choose bvfim.StochasticBVFIM(), bvfim.BVFIM() or bvfim.AdaptiveBVFIM(), which need no second derivatives; or, "
        "if it is attention, call it under torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
    ),
}
"""What PyTorch says of that which can be differentiated only once, and what to do about it."""


class Pullback(Protocol):
    """v -> (J_1' v, J_2' v, ...), with J_i the Jacobian in input i.

    ``of`` asks for that of one input alone. ``again`` keeps what further calls need. A part of v that is None is zero.
    """

    def __call__(self, v: Tree, of: int | None = None, again: bool = False) -> Any:
        """The products."""
        ...


class Backend(Protocol):
    """What gives derivatives."""

    retains: bool
    """Whether gradients can be pulled through a context more than once."""

    def vjp(self, fn: Callable[..., Any], *inputs: Tree, has_aux: bool = False) -> tuple[Tree, Pullback, Tree]:
        """The value of ``fn``, its pullback, and, with ``has_aux``, what else it gave: fn returns (value, aux)."""
        ...

    def grad_and_value(self, f: Objective, u: list[Tensor], y: Tree, create_graph: bool) -> tuple[Tree, Tensor]:
        """f_y(u, y), by default as a part of what is differentiated around it, and f(u, y)."""
        ...

    def inner(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A step that an inner loop takes many times, as this backend takes it."""
        ...


@contextmanager
def differentiated_once() -> Iterator[None]:
    """Say in one sentence that an objective can't be differentiated as often as a method does.

    Example:
        >>> from bvfim.core.backends import differentiated_once
        >>> with differentiated_once():
        ...     raise RuntimeError("derivative for aten::fold_backward is not implemented")
        Traceback (most recent call last):
        bvfim.status.ProblemError: an objective can be differentiated only once (derivative for aten::fold_backward is \
not implemented): choose bvfim.StochasticBVFIM(), bvfim.BVFIM() or bvfim.AdaptiveBVFIM(), which need no second \
derivatives; or, if it is attention, call it under torch.nn.attention.sdpa_kernel(SDPBackend.MATH)
    """
    try:
        yield
    except RuntimeError as error:
        found = next((what for said, what in ONCE.items() if re.search(said, str(error))), None)
        if found is None:
            raise
        said = str(error).splitlines()[0].partition(". ")[0]
        raise ProblemError(f"an objective can be differentiated only once ({said}): {found}") from error


class Autograd:
    """Torch's own graphs."""

    retains = True

    @torch.enable_grad()
    def vjp(self, fn: Callable[..., Any], *inputs: Tree, has_aux: bool = False) -> tuple[Tree, Pullback, Tree]:
        """See :class:`Backend`."""
        variables = tuple(tree.variable(one) for one in inputs)
        value, aux = fn(*variables) if has_aux else (fn(*variables), None)

        def pull(v: Tree, of: int | None = None, again: bool = False) -> Any:
            wanted = variables if of is None else variables[of]
            with differentiated_once():
                return tree.grad(tree.leaves(value), wanted, tree.parts(v), retain_graph=again or None)

        return tree.detach(value), pull, tree.detach(aux) if has_aux else None

    @torch.enable_grad()
    def grad_and_value(self, f: Objective, u: list[Tensor], y: Tree, create_graph: bool) -> tuple[Tree, Tensor]:
        """See :class:`Backend`."""
        y = y if create_graph else tree.variable(y)
        value = f(u, y)
        with differentiated_once():
            return tree.grad(value, y, create_graph=create_graph), value

    def inner(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The step as it is."""
        return step


class Functional:
    """torch.func, whose derivatives can be mapped over rows and followed by the compiler."""

    retains = True

    def vjp(self, fn: Callable[..., Any], *inputs: Tree, has_aux: bool = False) -> tuple[Tree, Pullback, Tree]:
        """See :class:`Backend`."""
        value, whole, *aux = torch.func.vjp(fn, *inputs, has_aux=has_aux)

        def pull(v: Tree, of: int | None = None, again: bool = False) -> Any:
            return whole(v) if of is None else whole(v)[of]

        return value, pull, aux[0] if has_aux else None

    def grad_and_value(self, f: Objective, u: list[Tensor], y: Tree, create_graph: bool) -> tuple[Tree, Tensor]:
        """See :class:`Backend`."""
        found: Any = torch.func.grad_and_value(f, argnums=1)(u, y)
        return found

    def inner(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The step as it is."""
        return step


AUTOGRAD, FUNCTIONAL = Autograd(), Functional()
