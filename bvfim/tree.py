"""Arithmetic on trees of tensors, and first gradients with respect to them.

A *tree* is a tensor, or any nesting of dicts, lists and (named) tuples whose leaves are tensors.
Every function is pure: no argument is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import optree
import torch
from torch import Tensor

from bvfim.status import ProblemError

Tree: TypeAlias = Any
"""A tensor, or a nesting of dicts, lists and tuples of tensors."""


def leaves(tree: Tree) -> list[Any]:
    """The leaves of ``tree`` in a fixed order."""
    return [tree] if isinstance(tree, Tensor) else optree.tree_leaves(tree)


def parts(tree: Tree) -> list[Any]:
    """The leaves of ``tree``, including ``None`` entries."""
    return [tree] if isinstance(tree, Tensor) else optree.tree_leaves(tree, none_is_leaf=True)


def map(fn: Callable[..., Any], tree: Tree, *rest: Tree) -> Tree:
    """``fn`` leaf by leaf, over one or several trees of the same structure."""
    if isinstance(tree, Tensor) and all(isinstance(other, Tensor) for other in rest):
        return fn(tree, *rest)
    return optree.tree_map(fn, tree, *rest)


def unflatten(like: Tree, new_leaves: Sequence[Any]) -> Tree:
    """The tree with the structure of ``like`` and the leaves ``new_leaves``."""
    if isinstance(like, Tensor) and len(new_leaves) == 1:
        return new_leaves[0]
    return optree.tree_unflatten(optree.tree_structure(like), new_leaves)


def same_structure(a: Tree, b: Tree) -> bool:
    """Whether ``a`` and ``b`` have the same structure."""
    return optree.tree_structure(a) == optree.tree_structure(b)


def detach(tree: Tree) -> Tree:
    """The same values, detached from any autograd graph."""
    return map(Tensor.detach, tree)


def clone(tree: Tree) -> Tree:
    """A detached copy in new memory."""
    return map(lambda t: t.detach().clone(), tree)


def variable(tree: Tree) -> Tree:
    """The same values as fresh autograd leaves, to differentiate with respect to."""
    return map(lambda t: t.detach().requires_grad_(), tree)


def add(a: Tree, b: Tree) -> Tree:
    """a + b."""
    return map(torch.add, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """a - b."""
    return map(torch.sub, a, b)


def scale(c: float | Tensor, a: Tree) -> Tree:
    """c a, for a scalar c, in the dtype of a."""
    return map(lambda t: c.to(t.dtype) * t if isinstance(c, Tensor) else c * t, a)


def axpy(c: float | Tensor, a: Tree, b: Tree) -> Tree:
    """c a + b, for a scalar c, in the dtype of b."""
    if isinstance(c, Tensor):
        return map(lambda s, t: t + c.to(t.dtype) * s, a, b)
    if torch.compiler.is_compiling():  # Inductor has lost the alpha of an add that follows a matrix product
        return map(lambda s, t: t + c * s, a, b)
    return map(lambda s, t: torch.add(t, s, alpha=c), a, b)


def where(condition: Tensor, a: Tree, b: Tree) -> Tree:
    """a if the scalar boolean tensor ``condition`` else b, without a host synchronisation."""
    return map(lambda s, t: torch.where(condition, s, t), a, b)


def equal(a: Tree, b: Tree) -> bool:
    """Whether all leaves are the same."""
    return all(torch.equal(s, t) for s, t in zip(leaves(a), leaves(b), strict=True))


def zeros_like(a: Tree) -> Tree:
    """0, in the shape of a."""
    return map(torch.zeros_like, a)


def dot(a: Tree, b: Tree) -> Tensor:
    """<a, b>, a scalar tensor."""
    products = [torch.sum(s * t) for s, t in zip(leaves(a), leaves(b), strict=True)]
    return products[0] if len(products) == 1 else torch.stack(products).sum()


def norm(a: Tree) -> Tensor:
    """|a|, the Euclidean norm over all leaves, a scalar tensor of at least single precision."""
    lengths = [torch.linalg.vector_norm(t, dtype=torch.promote_types(t.dtype, torch.float32)) for t in leaves(a)]
    return lengths[0] if len(lengths) == 1 else torch.linalg.vector_norm(torch.stack(lengths))


def size(a: Tree) -> int:
    """The number of scalars in a."""
    return sum(t.numel() for t in leaves(a))


def flatten(a: Tree) -> Tensor:
    """All scalars of a in one vector."""
    return torch.cat([t.reshape(-1) for t in leaves(a)])


def unravel(vector: Tensor, like: Tree) -> Tree:
    """The inverse of :func:`flatten`: the scalars of ``vector`` in the shape of ``like``."""
    parts = torch.split(vector, [t.numel() for t in leaves(like)])
    return unflatten(like, [p.reshape(t.shape).to(t.dtype) for p, t in zip(parts, leaves(like), strict=True)])


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tree,
    weights: Sequence[Tensor | None] | None = None,
    *,
    create_graph: bool = False,
    retain_graph: bool | None = None,
) -> Tree:
    """The gradient of sum_i weights_i outputs_i with respect to ``inputs``, a tree like it.

    Without weights, the outputs must be scalars and have weight one; a weight of None drops its output.
    An input that the outputs do not depend on has derivative zero.
    """
    outputs = [outputs] if isinstance(outputs, Tensor) else outputs
    pairs = zip(outputs, [None] * len(outputs) if weights is None else weights, strict=True)
    attached = [(o, w) for o, w in pairs if o.requires_grad and not (weights is not None and w is None)]
    if not attached:
        return zeros_like(inputs)
    found = torch.autograd.grad(
        [o for o, _ in attached],
        leaves(inputs),
        grad_outputs=None if weights is None else [w for _, w in attached],
        create_graph=create_graph,
        retain_graph=retain_graph,
        materialize_grads=True,
    )
    # torch 2.4 gives the zeros of unused inputs a graph of their own.
    return unflatten(inputs, found if create_graph else [g.detach() for g in found])


def parameters(module: torch.nn.Module) -> dict[str, Tensor]:
    """The parameters of a module as a dict by name: a tree to use as ``x`` or ``y``.

    The tensors are detached copies, so solving does not change the module. Call the module with them
    through ``torch.func.functional_call(module, parameters, inputs)``. Buffers still belong to the module: in training
    mode BatchNorm updates its running statistics at every evaluation, as it does outside bvfim.

    Example:
        >>> import torch, bvfim
        >>> layer = torch.nn.Linear(2, 1)
        >>> y = bvfim.parameters(layer)
        >>> sorted(y)
        ['bias', 'weight']
        >>> torch.func.functional_call(layer, y, (torch.ones(3, 2),)).shape
        torch.Size([3, 1])
    """
    if not isinstance(module, torch.nn.Module):
        raise ProblemError(f"parameters takes a torch module, not a {type(module).__name__}")
    return {name: p.detach().clone() for name, p in module.named_parameters()}
