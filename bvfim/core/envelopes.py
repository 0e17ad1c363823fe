"""First gradients of F and f at several y at once: of gaps, saddles and envelopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from bvfim import tree
from bvfim.core.backends import Backend
from bvfim.core.noise import Drawing
from bvfim.core.of_rank import OfRank
from bvfim.tree import Tree

Number: TypeAlias = float | Tensor
"""A weight, which a recorded step gets as a tensor."""


class Saddle(NamedTuple):
    """F(x, y), f(x, y), f(x, z) and f(x, y0), and gradients in x, y and z; see :meth:`At.saddle_grad`."""

    upper: Tensor
    lower: Tensor
    lower_z: Tensor
    lower_start: Tensor
    in_x: Tree
    in_y: Tree
    in_z: Tree


class Gap(NamedTuple):
    """F(x, y), f(x, y) and f(x, z), and gradients in x and y; see :meth:`At.gap_grads`."""

    upper: Tensor
    lower: Tensor
    lower_z: Tensor
    in_x: Tree
    in_y: Tree


class Envelopes(OfRank, Drawing):
    """The part of an evaluator that differentiates in x what is evaluated at several y, which are held constant."""

    backend: Backend
    both: Callable[[list[Tensor], Tree], tuple[Tensor, Tensor]]
    F: Callable[[list[Tensor], Tree], Tensor]
    f: Callable[[list[Tensor], Tree], Tensor]
    note: Callable[..., None]
    pull: Callable[[list[Tensor]], Tree]
    _pulled: Callable[[list[Tensor]], Tree]

    def barrier_grad(self, y: Tree, z: Tree, weigh: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tree]:
        """F, f and F_x(x, y) + w (f_x(x, y) - f_x(x, z)) with w = weigh(f) held constant, a tree like x."""
        self.note(upper=1, lower=2)
        y, z = tree.detach(y), tree.detach(z)

        def values(u: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
            return *self.both(u, y), self.f(u, z)

        (F, f, f_z), pull, _ = self.backend.vjp(values, self.u)
        ((F, f),) = self._sum((F, f))
        w = weigh(f)
        return F, f, self.pull(pull((torch.ones_like(F), _weight(w, f), _weight(-w, f_z)), of=0))

    def envelope_grad(self, terms: Sequence[tuple[Tree, float, Number]]) -> tuple[list[tuple[Tensor, Tensor]], Tree]:
        """F (0 where a is) and f at every y, and the gradient in x of the sum of a F(x, y) + b f(x, y) over (y, a, b).

        Every y is held constant: of minima at their minimisers, this is the derivative.
        """
        self.note(upper=sum(a != 0 for _, a, _ in terms), lower=len(terms))
        held = [(tree.detach(y), a) for y, a, _ in terms]

        def both(u: list[Tensor], y: Tree, a: float) -> tuple[Tensor, Tensor]:
            if a:
                return self.both(u, y)
            f = self.f(u, y)
            return torch.zeros_like(f), f

        values, pull, _ = self.backend.vjp(lambda u: [both(u, y, a) for y, a in held], self.u)
        weights = [(_weight(a, F), _weight(b, f)) for (_, a, b), (F, f) in zip(terms, values, strict=True)]
        values, in_x = self._sum_with_x(values, self._pulled(pull(weights, of=0)))
        return values, in_x

    def gap_grads(self, y: Tree, z: Tree, a: Number, b: Number) -> Gap:
        """The gradients of a F(x, y) + b (f(x, y) - f(x, z)) in x and in y, in one backward pass."""
        self.note(upper=1, lower=2)
        z = tree.detach(z)

        def values(u: list[Tensor], y: Tree) -> tuple[Tensor, ...]:
            return *self.both(u, y), self.f(u, z)

        (F, f, f_z), pull, _ = self.backend.vjp(values, self.u, y)
        in_u, in_y = pull((_weight(a, F), _weight(b, f), _weight(-b, f_z)))
        (F, f, f_z), in_x, in_y = self._sum_with_x((F, f, f_z), self._pulled(in_u), in_y)
        return Gap(F, f, f_z, in_x, in_y)

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
        (F, f, f_z, f_0), in_x, in_y, in_z = self._sum_with_x((F, f, f_z, f_0), self._pulled(in_u), in_y, in_z)
        return Saddle(F, f, f_z, f_0, in_x, in_y, in_z)


def _weight(number: Number, of: Tensor) -> Tensor:
    """The weight of a value, as a scalar like it."""
    return number.to(of.dtype) if isinstance(number, Tensor) else torch.full_like(of, number)
