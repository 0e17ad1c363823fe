"""The problems of benchopt's bilevel suite for PyTorch: on the data in their closures, or through JAX itself.

The suite's f(z, x, start, batch_size) is a mean over consecutive rows. Here a batch is the numbers of such rows, as
``bvfim.Shuffled(rows, size, blocks=True)`` draws them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import bvfim

Oracle = Callable[..., Any]
MATRICES = "hess_inner", "hess_outer", "cross", "linear_inner", "linear_outer"


def problem(inner: Oracle, outer: Oracle, source: str) -> bvfim.Problem:
    """F and f.

    Args:
        inner: the suite's inner function; outer: its outer one.
        source: ``"data"`` writes them anew in torch, on the same numbers; ``"bridge"`` calls them, which gives first
            gradients only but asks nothing of the problem.
    """
    if source == "bridge":
        return bvfim.Problem(bridged(outer), bridged(inner))
    of_inner, of_outer = held(inner), held(outer)
    return quadratic(of_inner, of_outer) if "cross" in of_inner else cleaning(of_inner, of_outer)


def held(function: Oracle) -> dict[str, Any]:
    """What a function of the suite holds in its closure: arrays as tensors, in the same memory."""
    plain = function.__wrapped__
    contents = (cell.cell_contents for cell in plain.__closure__)
    pairs = zip(plain.__code__.co_freevars, contents, strict=True)
    return {name: from_jax(value) if hasattr(value, "__dlpack__") else value for name, value in pairs}


def from_jax(array: Any) -> Tensor:
    """The memory of an array of JAX or NumPy as a tensor."""
    return torch.from_dlpack(array)


def to_jax(tensor: Tensor) -> jax.Array:
    """The same memory as an array."""
    return jax.dlpack.from_dlpack(tensor.detach().contiguous())


def rows(batch: Tensor) -> slice:
    """The rows of a batch, which are consecutive."""
    return slice(int(batch[0]), int(batch[-1]) + 1)


# -- in torch --


def quadratic(inner: dict[str, Tensor], outer: dict[str, Tensor]) -> bvfim.Problem:
    """`simulated`: means of quadratics, whose matrices are averaged over the batch once a step."""

    def mean(of: dict[str, Tensor], batch: Tensor) -> list[Tensor]:
        return [of[name][rows(batch)].mean(0) for name in MATRICES]

    def context(x: Tensor, drawn: bvfim.Draw) -> bvfim.Draw:
        return bvfim.Draw(mean(outer, drawn.upper), mean(inner, drawn.lower))

    def value(x: Tensor, z: Tensor, matrices: list[Tensor]) -> Tensor:
        in_z, in_x, cross, z_slope, x_slope = matrices
        return z @ (in_z @ z) / 2 + x @ (in_x @ x) / 2 + x @ (cross @ z) + z_slope @ z + x_slope @ x

    return bvfim.Problem(value, value, context=context)


def cleaning(inner: dict[str, Any], outer: dict[str, Any]) -> bvfim.Problem:
    """`mnist`: softmax regression with a weight for each training row, and a ridge in f."""
    inputs, labels, reg = inner["X_train"], inner["y_train"].argmax(1), inner["self"].reg
    trusted, true = outer["X_val"], outer["y_val"].argmax(1)

    def network(z: Tensor, images: Tensor) -> Tensor:
        return images @ z.reshape(images.shape[1], -1)

    def upper(x: Tensor, z: Tensor, batch: Tensor) -> Tensor:
        own = rows(batch)
        return cross_entropy(network(z, trusted[own]), true[own])

    def lower(x: Tensor, z: Tensor, batch: Tensor) -> Tensor:
        own = rows(batch)
        losses = cross_entropy(network(z, inputs[own]), labels[own], reduction="none")
        return (torch.sigmoid(x[own]) * losses).mean() + reg * z.square().sum()

    return bvfim.Problem(upper, lower)


# -- through JAX --


class Bridge(torch.autograd.Function):
    """A value of JAX whose gradients were computed along with it."""

    @staticmethod
    def forward(ctx: Any, gradient: Oracle, batch: Tensor, x: Tensor, z: Tensor) -> Tensor:
        """The value."""
        value, (in_z, in_x) = gradient(to_jax(z), to_jax(x), int(batch[0]), batch_size=len(batch))
        ctx.save_for_backward(from_jax(in_x), from_jax(in_z))
        return from_jax(value).clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Its gradients in x and z."""
        in_x, in_z = ctx.saved_tensors
        return None, None, outputs[0] * in_x, outputs[0] * in_z


def bridged(function: Oracle) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A function of the suite as one of x, z and a batch."""
    gradient = jax.jit(jax.value_and_grad(function, argnums=(0, 1)), static_argnames="batch_size")
    call = partial(Bridge.apply, gradient)
    return lambda x, z, batch: call(batch, x, z)
