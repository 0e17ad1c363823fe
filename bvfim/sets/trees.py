"""Sets of whole trees: one for each leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree
import torch

from bvfim import tree
from bvfim.sets.base import Set, Tangent
from bvfim.status import ProblemError
from bvfim.tree import Tree

SetTree = Any
"""``None``, one :class:`Set` for every leaf, or a tree of sets and ``None`` like the variable."""


def _is_set(item: Any) -> bool:
    return isinstance(item, Set) and not isinstance(item, type)


def per_leaf(sets: SetTree, variable: Tree) -> list[Set | None]:
    """One set (or ``None``) for each leaf of ``variable``."""
    count = len(tree.leaves(variable))
    if sets is None or _is_set(sets):
        return [sets] * count
    own, nesting = optree.tree_flatten(sets, none_is_leaf=True, is_leaf=_is_set)
    entries, like = optree.tree_flatten(variable, none_is_leaf=True)
    if nesting != like or not all(s is None or _is_set(s) for s in own):
        raise ProblemError(
            f"the set must be None, one set for all leaves, or a tree with a set or None for each of the {count} leaves"
        )
    return [s for s, entry in zip(own, entries, strict=True) if entry is not None]


STAYS = 0.5
"""A projection leaves points of its set where they are, to this power of the dtype's precision."""


def check_fit(sets: SetTree, variable: Tree, name: str) -> None:
    """Reject sets whose bounds or centres do not fit the shape of their leaf, and what is no projection."""
    try:
        own = per_leaf(sets, variable)
    except ProblemError as error:
        raise ProblemError(f"{name}_set: {error}") from error
    for s, leaf in zip(own, tree.leaves(variable), strict=True):
        if s is None:
            continue
        misfit = f"{name}_set: a {type(s).__name__} does not fit a leaf of shape {tuple(leaf.shape)}"
        try:
            nearest = s.project(leaf)
        except (RuntimeError, IndexError) as error:
            said = str(error).partition("\n")[0]
            raise ProblemError(f"{misfit} ({said})") from error
        if getattr(nearest, "shape", None) != leaf.shape:
            raise ProblemError(misfit)
        allowed = torch.finfo(nearest.dtype).eps ** STAYS
        if not torch.allclose(s.project(nearest), nearest, rtol=allowed, atol=allowed, equal_nan=True):
            raise ProblemError(
                f"{name}_set: a {type(s).__name__} moves a point of its own set: project must return the nearest point"
            )


def project(sets: SetTree, variable: Tree) -> Tree:
    """The projection of ``variable`` onto its set, leaf by leaf.

    Example:
        >>> import torch, bvfim
        >>> bvfim.sets.project({"a": bvfim.Box(0, 1), "b": None}, {"a": torch.tensor(2.0), "b": torch.tensor(2.0)})
        {'a': tensor(1.), 'b': tensor(2.)}
    """
    if sets is None:
        return variable
    moved = [
        t if s is None else s.project(t) for s, t in zip(per_leaf(sets, variable), tree.leaves(variable), strict=True)
    ]
    return tree.unflatten(variable, moved)


def tangent(
    sets: SetTree, variable: Tree, gradient: Tree
) -> tuple[Callable[[Tree], Tree], Callable[[Tree, Tree], Tree]]:
    """The maps v -> Pi v and (v, Hv) -> Hv + c v of the package's docstring, over whole trees."""
    triples = zip(per_leaf(sets, variable), tree.leaves(variable), tree.leaves(gradient), strict=True)
    own = [Tangent(lambda v: v, 0.0) if s is None else s.tangent(t, g) for s, t, g in triples]

    def free(v: Tree) -> Tree:
        return tree.unflatten(v, [o.project(t) for o, t in zip(own, tree.leaves(v), strict=True)])

    def curved(v: Tree, product: Tree) -> Tree:
        triples = zip(own, tree.leaves(v), tree.leaves(product), strict=True)
        return tree.unflatten(v, [p if o.flat else p + o.bent(t) for o, t, p in triples])

    return free, curved
